"""Detections from a file: the record format and its faults."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from genmetrics.core.batching import Batches
from genmetrics.core.errors import InputError
from genmetrics.core.sample import Item, Sample
from genmetrics.extractors.recorded import RecordedDetectionsSpec, as_detection, read_detections

DOG = {"label": "dog", "box": [0, 0, 9, 9], "score": 0.8}
CAT = {"label": "cat", "box": [1.5, 2, 3, 4], "score": 0.25, "color": "black", "mask": [[1, 0]]}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    rows = [{"id": "a", "detections": [DOG, CAT]}, {"id": "b", "detections": []}]
    path = tmp_path / "detections.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def test_records_come_back_by_id_as_plain_json_without_masks(recorded):
    spec = RecordedDetectionsSpec.create(recorded)
    spec.check()
    extractor = spec.build("cpu")
    prepared = [extractor.prepare(Item(id=name)) for name in ("b", "a")]
    found = Batches(extractor, 1).run(prepared)["detections"]
    assert found[0] == []
    assert found[1] == [
        {"label": "dog", "box": [0.0, 0.0, 9.0, 9.0], "score": 0.8},
        {"label": "cat", "box": [1.5, 2.0, 3.0, 4.0], "score": 0.25, "color": "black"},
    ]
    assert json.loads(json.dumps(found)) == found


def test_the_spec_is_the_content_and_not_the_place(recorded, tmp_path):
    spec = RecordedDetectionsSpec.create(recorded)
    moved = tmp_path / "elsewhere.jsonl"
    moved.write_bytes(recorded.read_bytes())
    assert RecordedDetectionsSpec.create(moved).fingerprint == spec.fingerprint
    assert str(tmp_path) not in json.dumps(spec.to_dict())
    moved.write_text(json.dumps({"id": "a", "detections": []}))
    assert RecordedDetectionsSpec.create(moved).fingerprint != spec.fingerprint


def test_only_the_id_keys_the_store(recorded):
    spec = RecordedDetectionsSpec.create(recorded)
    assert Sample(id="a").digest(spec.inputs) != Sample(id="b").digest(spec.inputs)


def test_a_file_that_changed_since_is_noticed(recorded):
    spec = RecordedDetectionsSpec.create(recorded)
    recorded.write_text(json.dumps({"id": "a", "detections": []}))
    with pytest.raises(InputError, match="changed since the metric was made"):
        spec.check()


def test_a_missing_image_is_an_error_and_not_an_empty_list(recorded):
    extractor = RecordedDetectionsSpec.create(recorded).build("cpu")
    with pytest.raises(
        InputError, match=r"no detections for image 'c'.*holds 2 images.*empty list"
    ):
        extractor.prepare(Item(id="c"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read detections .*nothing.jsonl: No such file"):
        RecordedDetectionsSpec.create(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2"),
        ("[]", r"line 2"),
        ('{"id": "x"}', r"line 2 is not \{"),
        ('{"id": "x", "detections": {}}', r"line 2 is not \{"),
        ('{"id": "a", "detections": []}', r"line 2 repeats the id 'a'"),
        (
            '{"id": "x", "detections": [{"label": "dog"}]}',
            r"line 2: detection 0 has no box and no score",
        ),
        ('{"id": "x", "detections": [], "detector": "yolo"}', r"line 2 is by detector 'yolo'"),
        ('{"id": "x", "detections": ["dog"]}', r"line 2: detection 0 is a str"),
    ],
)
def test_faults_name_file_and_line(tmp_path, line, message):
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": "a", "detections": []}\n' + line + "\n")
    with pytest.raises(InputError, match=message):
        read_detections(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"box": [0, 0, 1]}, "expected 4 finite edges"),
        ({"score": math.nan}, "expected 4 finite edges"),
        ({"box": [0, 0, math.inf, 1]}, "expected 4 finite edges"),
        ({"box": ["a", 0, 1, 1]}, "must be numbers"),
        ({"score": None}, "must be numbers"),
    ],
)
def test_numbers_that_are_none_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        as_detection({**DOG, **change}, "here")


def test_array_elements_become_plain_numbers():
    raw = {"label": "dog", "box": np.float32([0, 0, 1, 2]), "score": np.float32(0.5)}
    found = as_detection(raw, "here")
    assert json.dumps(found) == '{"label": "dog", "box": [0.0, 0.0, 1.0, 2.0], "score": 0.5}'
