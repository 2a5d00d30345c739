import json
import math

import pytest

from genmetrics.core.sample import Sample
from genmetrics.report.document import document, sample_chunks, sample_lines, to_json
from tests.report.fakes import HOSTILE, Failure, Who, failure, record, result, samples


def strictly(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_document_has_the_fields_of_the_schema():
    made = strictly(to_json(document(record(missing=("a",), conversions={"grayscale": 3}))))
    assert made["schema"] == "genmetrics.results/2"
    assert made["created"] == "2026-01-02T03:04:05+00:00"
    assert made["inputs"]["generated"] == {
        "path": "gen",
        "n": 20,
        "digest": "sha256:" + "a" * 64,
    }
    assert made["missing"] == ["a"]
    assert made["conversions"] == {"grayscale": 3}
    assert made["runtime"]["seconds"] == 25.1
    fid = made["metrics"]["fid@clean"]
    assert fid["value"] == 441.18812
    assert fid["interval"] == [430.168, 452.208]
    assert fid["level"] == 0.95
    assert fid["protocol"] == {"metric": "fid@clean", "mean": [1.5, 2]}
    assert fid["status"] == "ok"
    assert fid["reason"] is None


def test_infinite_value_is_null_with_a_reason():
    # an infinite PSNR once made a whole results file unreadable for other languages
    made = strictly(to_json(document(record())))
    psnr = made["metrics"]["psnr"]
    assert psnr["value"] is None
    assert psnr["reason"] == "every score is inf"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nothing_that_is_not_finite_reaches_the_file(bad):
    everywhere = record(
        {"x": result("x", bad, parts={"p": bad}, protocol={"deep": [{"value": bad}]})},
        runtime={"seconds": 1.0, "images_per_second": bad},
        inputs={"generated": {"path": "g", "n": bad, "digest": "d"}},
    )
    made = strictly(to_json(document(everywhere)))
    assert made["metrics"]["x"]["value"] is None
    assert "JSON cannot hold" in made["metrics"]["x"]["reason"]
    assert made["metrics"]["x"]["parts"] == {"p": None}
    assert made["not_finite"]["/metrics/x/parts/p"] == str(bad)
    assert made["runtime"]["images_per_second"] is None


def test_skipped_samples_are_named_with_side_and_reason():
    reference = Failure(Who("reference", Sample(id="r")), "is empty")
    silent = failure("a", "a.png", "said nothing")._replace(model="judge")
    made = strictly(
        to_json(document(record(failures=(failure("bad", HOSTILE), reference, silent))))
    )
    assert made["skipped"] == [
        {
            "id": "bad",
            "side": "generated",
            "path": HOSTILE,
            "reason": f"{HOSTILE} is cut short",
            "model": None,
        },
        {"id": "r", "side": "reference", "path": None, "reason": "is empty", "model": None},
        {
            "id": "a",
            "side": "generated",
            "path": "a.png",
            "reason": "a.png said nothing",
            "model": "judge",
        },
    ]


def test_sample_lines_follow_the_samples_and_carry_every_metric_with_values():
    lines = [strictly(to_json(line)) for line in sample_lines(record())]
    assert [line["id"] for line in lines] == [f"img_{i}" for i in range(20)]
    assert lines[0] == {
        "id": "img_0",
        "path": "gen/img_0.png",
        "prompt": "a thing 0",
        "fid@clean": -10.0,
        "psnr": None,
        "not_finite": {"/psnr": "inf"},
        "reason": "psnr is inf",
    }
    assert lines[19]["reason"] == "psnr has no value"
    assert "not_finite" not in lines[19]


def test_skipped_sample_has_its_line_with_null_and_the_reason():
    fid = result(per_sample={"img_0": 1.0, "bad": math.nan})
    bad = failure()
    with_bad = record({"fid@clean": fid}, samples=(*samples(1), bad.who.sample), failures=(bad,))
    good, skipped = sample_lines(with_bad)
    assert "reason" not in good
    assert skipped["fid@clean"] is None
    assert skipped["reason"] == "gen/bad.png is cut short"
    assert "prompt" not in skipped


def test_sample_that_a_metric_did_not_score_says_so():
    fid = result(per_sample={"img_0": 1.0})
    _, line = sample_lines(record({"fid@clean": fid}, samples=samples(2)))
    assert line["fid@clean"] is None
    assert line["reason"] == "fid@clean has no value"


def test_numbers_of_a_sample_stand_in_an_object_with_details_and_labels_beside_it():
    judged = result(
        "geneval",
        0.5,
        per_sample={"img_0": 1.0, "img_1": 0.0},
        sample_parts={"task/color": {"img_0": 1.0}, "images": {"img_0": 1.0, "img_1": 0.0}},
        details={"img_1": {"reason": "no dog", "score": math.inf}},
        groups={"img_0": "color", "img_1": "count"},
        clusters={"img_0": "a thing 0", "img_1": "another"},
    )
    made = list(sample_lines(record({"geneval": judged}, samples=samples(2))))
    assert made == [
        {
            "id": "img_0",
            "path": "gen/img_0.png",
            "prompt": "a thing 0",
            "geneval": {"value": 1.0, "task/color": 1.0, "images": 1.0},
            "groups": {"geneval": "color"},
        },
        {
            "id": "img_1",
            "path": "gen/img_1.png",
            "prompt": "a thing 1",
            "geneval": {"value": 0.0, "images": 0.0},
            "groups": {"geneval": "count"},
            "clusters": {"geneval": "another"},
            "details": {"geneval": {"reason": "no dog", "score": None}},
            "not_finite": {"/details/geneval/score": "inf"},
        },
    ]


def test_pieces_of_the_file_are_its_lines():
    made = record(samples=samples(3000))
    pieces = list(sample_chunks(made))
    assert len(pieces) == 3
    lines = b"".join(pieces).decode().splitlines()
    assert [strictly(line) for line in lines] == list(sample_lines(made))
