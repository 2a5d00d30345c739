"""Samples of many inputs: frames, pairs of frames, crops, questions; bounded memory, equal bits."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import genmetrics as gm
from genmetrics.core.errors import InputError, UsageError
from genmetrics.core.extractor import Extractor, ExtractorSpec
from genmetrics.core.sample import Item
from genmetrics.core.views import VIEWS, view_of
from genmetrics.extractors.pairs import SquaredErrorSpec
from genmetrics.metrics.base import SampleMetric

from .lane_toys import FrameSpec, OneProtocol, Steadiness

MIB = 1 << 20


def write_clips(root: Path, lengths, *, size=(24, 16), distinct: int = 7) -> Path:
    """Write clips as folders of frames, many names to few files, and a manifest of them."""
    rng = np.random.default_rng(0)
    files = []
    for i in range(distinct):
        low = rng.integers(40, 256, (6, 8, 3), dtype=np.uint8)
        file = root / f"{i}.jpg"
        root.mkdir(exist_ok=True)
        Image.fromarray(low).resize(size, Image.Resampling.BICUBIC).save(file, quality=90)
        files.append(file)
    rows = []
    for c, length in enumerate(lengths):
        folder = root / f"clip{c}"
        folder.mkdir()
        for t in range(length):
            os.link(files[(c + t * t) % distinct], folder / f"frame_{t}.jpg")
        rows.append({"id": f"c{c}", "video": f"clip{c}"})
    manifest = root / "clips.jsonl"
    manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return manifest


def start(manifest, root, name, *, batch=4, world=1, cache=None):
    """Start a run in a process of its own, or a world of some."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    out = root / f"{name}.json"
    command = [
        *(launcher if world > 1 else []), "-m", "tests.run.clip_target", str(manifest),
        str(cache or root / f"{name}-cache"), str(root / "log"), str(batch), str(out),
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return process, out


def found_by(manifest, root, name, **more):
    process, out = start(manifest, root, name, **more)
    _, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    return json.loads(out.read_text())


@pytest.mark.slow
def test_a_long_clip_needs_no_more_memory_than_a_short_one(tmp_path):
    manifest = write_clips(tmp_path / "long", [3000], size=(1280, 720), distinct=12)
    found = found_by(manifest, tmp_path, "long", batch=16)
    assert found["above"] < 600 * MIB
    assert len(found["values"]) == 1


@pytest.mark.slow
def test_worlds_batches_and_runs_killed_ten_times_give_equal_bits(tmp_path):
    manifest = write_clips(tmp_path / "clips", [1, 60, 7, 130, 16, 33], size=(320, 200))
    whole = found_by(manifest, tmp_path, "whole")
    assert whole["computed"] == 6
    for world in (2, 3):
        found = found_by(manifest, tmp_path, f"world{world}", world=world)
        assert found["values"] == whole["values"] and found["value"] == whole["value"]
    assert found_by(manifest, tmp_path, "sixteen", batch=16)["values"] == whole["values"]
    for i in range(10):
        process, out = start(manifest, tmp_path, "killed", cache=tmp_path / "k")
        before = len((tmp_path / "log").read_text())
        deadline = time.monotonic() + 60
        while len((tmp_path / "log").read_text()) < before + 12 * (i + 1):
            assert time.monotonic() < deadline
            if process.poll() is not None:
                break
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.communicate()
        out.unlink(missing_ok=True)
    resumed = found_by(manifest, tmp_path, "killed", cache=tmp_path / "k")
    assert resumed["values"] == whole["values"] and resumed["value"] == whole["value"]


def test_an_extractor_of_pictures_works_on_clips_as_it_is(tmp_path):
    """A network: rows of any batch size agree to 1e-6, and the loop gives what the run gives."""
    from dataclasses import replace

    manifest = write_clips(tmp_path / "clips", [3, 9], size=(64, 48))
    spec = replace(gm.FDLite(device="cpu").spec, view="frames")

    class Drift(Steadiness):
        id = "toy-drift"

        def scores(self, samples, features):
            rows = features["extractor"]["pooled"]
            return np.array([np.linalg.norm(r[-1] - r[0]) for r in rows], dtype=np.float64)

    by = {
        size: gm.evaluate(manifest, metrics=[Drift(spec)], cache=False, batch_size=size)
        for size in (4, 16)
    }
    values = [list(report["toy-drift"].per_sample.values()) for report in by.values()]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)
    frames = [
        torch.stack([gm.load_image(tmp_path / f"clips/clip{c}/frame_{t}.jpg") for t in range(n)])
        for c, n in enumerate([3, 9])
    ]
    metric = Drift(spec)
    metric.update(videos=frames, ids=["c0", "c1"])
    looped = list(metric.compute().per_sample.values())
    np.testing.assert_allclose(looped, values[1], rtol=1e-6)
    assert spec.fingerprint != gm.FDLite().spec.fingerprint
    assert "view" not in gm.FDLite().spec.to_dict()


@dataclass(frozen=True, kw_only=True)
class PartsSpec(ExtractorSpec):
    """Size, brightness and question of whatever part it is given."""

    outputs = {"size": "score", "seen": "record"}
    extractor: str = "toy-parts"

    def check(self) -> None:
        pass

    def build(self, device: str) -> Parts:
        return Parts(self, device)


class Parts(Extractor):
    fill = 1

    def prepare(self, item):
        return item.image.shape[-2:], item.question, item.part, item.prompt

    def forward(self, prepared):
        sizes = [float(h * w) for (h, w), *_ in prepared]
        return {
            "size": np.array(sizes, dtype=np.float32),
            "seen": [[question, part, prompt] for _, question, part, prompt in prepared],
        }


class Seen(SampleMetric):
    id = "toy-seen"
    summary = "test"
    inputs = ("image",)
    higher_is_better = True

    def __init__(self, view):
        spec = PartsSpec(view=view)
        super().__init__(OneProtocol(metric=self.id, extractor=spec), device="cpu")

    def scores(self, samples, features):
        return np.array([rows.sum() for rows in features["extractor"]["size"]], dtype=np.float64)

    def details(self, samples, features, scores):
        return [{"seen": seen} for seen in features["extractor"]["seen"]]


@pytest.fixture
def pictures(tmp_path):
    """Two pictures with boxes and questions."""
    rows = []
    for i, name in enumerate("ab"):
        Image.new("RGB", (20 + i, 10), (200, 9, 9)).save(tmp_path / f"{name}.png")
        row = {"id": name, "boxes": [[0, 0, 4, 5], [2, 1, 20, 10]][: i + 1]}
        rows.append({**row, "questions": ["how many?", "what colour?", "where?"][: 3 - i]})
    (tmp_path / "set.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path / "set.jsonl"


def test_crops_and_questions_are_parts_like_any_other(pictures):
    crops = gm.evaluate(pictures, metrics=[Seen("crops")], cache=False)["toy-seen"]
    assert dict(crops.per_sample) == {"a": 20.0, "b": 20.0 + 18 * 9}
    asked = gm.evaluate(pictures, metrics=[Seen("questions")], cache=False)["toy-seen"]
    assert asked.per_sample["a"] == 3 * 200
    assert asked.details["b"] == {"seen": [["how many?", 0, None], ["what colour?", 1, None]]}
    metric = Seen("questions")
    metric.update([gm.load_image(pictures.parent / "a.png")], ids=["a"], questions=[["how many?"]])
    assert metric.compute().details == {"a": {"seen": [["how many?", 0, None]]}}


def test_a_part_that_is_wrong_fails_its_sample_for_that_extractor(pictures):
    rows = [json.loads(line) for line in pictures.read_text().splitlines()]
    rows[1]["boxes"] = [[0, 0, 4, 50]]
    pictures.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(InputError, match=r"box 0 of 'b' is \[0, 0, 4, 50\] in a picture of 21x10"):
        gm.evaluate(pictures, metrics=[Seen("crops")], cache=False)
    report = gm.evaluate(pictures, metrics=[Seen("crops")], cache=False, on_error="skip")
    assert report["toy-seen"].n == 1


NUMBERS = "four finite numbers in pixels"


@pytest.mark.parametrize(
    ("boxes", "said"),
    [
        ([0, 0, 8, 8], f"box 0 of 'x' is 0; give [x1, y1, x2, y2], {NUMBERS}"),
        ([[0, 0, 4, 4], [0, 0, 8]], "box 1 of 'x' is [0, 0, 8]; give"),
        ([["0", "0", "8", "8"]], "box 0 of 'x' is ['0', '0', '8', '8']; give"),
        ([[False, 0, True, 8]], "box 0 of 'x' is [False, 0, True, 8]; give"),
        ([[0, 0, float("nan"), 8]], "box 0 of 'x' is [0, 0, nan, 8]; give"),
        ([[0, 0, 10**400, 8]], "box 0 of 'x' is [0, 0, 1"),
        ([{"x1": 0}], "box 0 of 'x' is {'x1': 0}; give"),
        ({"a": [0, 0, 8, 8]}, "boxes of 'x' is {'a': [0, 0, 8, 8]}; give a list"),
        (["abcd"], "box 0 of 'x' is 'abcd'; give"),
    ],
)
def test_boxes_of_another_shape_are_one_line_with_sample_and_entry(boxes, said):
    item = Item(id="x", image=torch.zeros(3, 10, 20, dtype=torch.uint8), boxes=boxes)
    with pytest.raises(InputError) as caught:
        list(view_of("crops").loads(item))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [tuple, np.array, torch.tensor, list])
def test_boxes_may_be_arrays_and_tensors(make):
    image = torch.zeros(3, 10, 20, dtype=torch.uint8)
    item = Item(id="x", image=image, boxes=[make([0, 0, 4, 5]), make([0.2, 0.0, 8.0, 4.0])])
    assert [load().image.shape[1:] for load in view_of("crops").loads(item)] == [(5, 4), (4, 8)]


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ("why?", "questions of 'x' is 'why?'; give a list"),
        ({"q": "why?"}, "questions of 'x' is {'q': 'why?'}; give a list"),
        (["why?", 3], "question 1 of 'x' is 3; give a text"),
    ],
)
def test_questions_that_are_no_texts_are_one_line_with_sample_and_entry(questions, said):
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        list(view_of("questions").loads(Item(id="x", questions=questions)))


def test_pairs_of_frames_are_pairs(tmp_path):
    manifest = write_clips(tmp_path / "clips", [1, 4])
    spec = SquaredErrorSpec(view="frame_pairs")

    class Change(Steadiness):
        id = "toy-change"

        def scores(self, samples, features):
            rows = features["extractor"]["squared_error"]
            return np.array([len(row) for row in rows], dtype=np.float64)

    with pytest.raises(InputError, match="'c0' has no frame pairs"):
        gm.evaluate(manifest, metrics=[Change(spec)], cache=False)
    report = gm.evaluate(manifest, metrics=[Change(spec)], cache=False, on_error="skip")
    assert report["toy-change"].per_sample["c1"] == 3
    decoded = []
    item = Item(id="x", video=[lambda t=t: (decoded.append(t), ()) for t in range(5)])
    assert len([load() for load in view_of("frame_pairs").loads(item)]) == 4
    assert decoded == [0, 1, 2, 3, 4]  # each frame once, although it is in two pairs


def test_clips_that_cannot_be_read_are_named(tmp_path):
    manifest = write_clips(tmp_path / "clips", [3, 3])
    (tmp_path / "clips" / "clip1" / "frame_1.jpg").unlink()
    (tmp_path / "clips" / "clip1" / "frame_1.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut")
    with pytest.raises(InputError, match=r"clip1.frame_1\.jpg"):
        gm.evaluate(manifest, metrics=[Steadiness()], cache=False)
    report = gm.evaluate(manifest, metrics=[Steadiness()], cache=False, on_error="skip")
    assert report["toy-steadiness"].n == 1
    black = tmp_path / "clips" / "clip0" / "frame_2.jpg"
    black.unlink()
    Image.new("RGB", (24, 16)).save(black)
    with pytest.raises(InputError, match="toy-frames: frame 2 is black|frame 2 is black"):
        gm.evaluate(manifest, metrics=[Steadiness()], cache=False, on_error="fail", limit=1)


def test_an_unknown_view_is_a_slip_of_the_pen():
    with pytest.raises(UsageError, match="view 'frame' is unknown.*did you mean 'frames'"):
        _ = FrameSpec(view="frame").reads
    assert set(VIEWS) == {"whole", "frames", "frame_pairs", "crops", "questions"}


def test_a_clip_that_a_manifest_leaves_empty_is_left_out_where_that_is_allowed(tmp_path):
    manifest = write_clips(tmp_path / "clips", [3, 4])
    with manifest.open("a") as file:
        file.write('{"id": "z", "video": ""}\n')
    with pytest.raises(
        InputError, match=r"1 sample has no video \('z'\); add them, or pass --allow"
    ):
        gm.evaluate(manifest, metrics=[Steadiness()], cache=False)
    report = gm.evaluate(manifest, metrics=[Steadiness()], cache=False, allow_missing=True)
    assert set(report["toy-steadiness"].per_sample) == {"c0", "c1"}
    assert list(report.missing) == ["z"]
    bare = tmp_path / "clips" / "bare.jsonl"
    bare.write_text('{"id": "z", "video": ""}\n')
    with pytest.raises(InputError, match="video"):
        gm.evaluate(bare, metrics=[Steadiness()], cache=False, allow_missing=True)
