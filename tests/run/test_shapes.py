"""The four shapes of metric (set, pair, prompt, record) through one runner."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import genmetrics as gm
from genmetrics.core.errors import InputError, PairingError
from genmetrics.extractors.detector import DetectorSpec
from tests.extractors.conftest import OPEN_CLIP, open_clip_file  # noqa: F401  (a fixture)

from .conftest import write_images


@pytest.fixture
def geneval(tmp_path):
    """Two prompts, two images each; the detector found a cat in all but one."""
    rng = np.random.default_rng(0)
    records = []
    for prompt in range(2):
        folder = tmp_path / "gen" / f"{prompt:05d}"
        (folder / "samples").mkdir(parents=True)
        row = {
            "tag": "single_object",
            "include": [{"class": "cat", "count": 1}],
            "prompt": f"a photo of cat {prompt}",
        }
        (folder / "metadata.jsonl").write_text(json.dumps(row))
        for i in range(2):
            pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "samples" / f"{i:04d}.png")
            label = "dog" if (prompt, i) == (1, 1) else "cat"
            found = [{"label": label, "box": [0, 0, 5, 5], "score": 0.9}]
            records.append({"id": f"{prompt:05d}/{i:04d}", "detections": found})
    path = tmp_path / "detections.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    return tmp_path / "gen", path


def test_records_go_the_way_of_vectors(geneval, tmp_path):
    folder, detections = geneval
    for computed in (4, 0):
        report = gm.evaluate(folder, None, f"geneval:detections={detections}", cache=tmp_path / "c")
        assert report["geneval"].value == 0.75
        assert report["geneval"].per_sample["00001/0001"] == 0.0
        assert report.runtime["features_computed"] == computed
        assert report.inputs["detections"]["n"] == 4
    with pytest.raises(InputError, match="prompts have no images"):
        for path in (folder / "00000" / "samples").iterdir():
            path.unlink()
        gm.evaluate(folder, None, f"geneval:detections={detections}", cache=False)
    report = gm.evaluate(
        folder, None, f"geneval:detections={detections}", cache=False, allow_missing=True
    )
    assert not report.ok and report.missing == ("00000",)
    assert any("not comparable" in warning for warning in report["geneval"].warnings)


def test_malformed_clauses_are_one_line():
    for clause in ({"class": "cat"}, {"class": "cat", "count": "1"}, {"count": 1}, "cat"):
        with pytest.raises(InputError, match="GenEval include clause 0"):
            gm.metrics.geneval.check({"tag": "single_object", "include": [clause]}, [])
    with pytest.raises(InputError, match="position"):
        row = {"class": "cat", "count": 1, "position": ["left of"]}
        gm.metrics.geneval.check({"tag": "position", "include": [row]}, [])


def test_detectors_of_one_name_are_told_apart():
    def make(label):
        def detect(images):
            return [[{"label": label, "box": [0, 0, 1, 1], "score": 0.9}] for _ in images]

        return detect

    cat, dog = make("cat"), make("dog")
    specs = [DetectorSpec.create(d) for d in (cat, dog, cat)]
    assert specs[0].fingerprint != specs[1].fingerprint
    assert specs[0].fingerprint == specs[2].fingerprint


def test_prompts_join_two_towers_and_each_text_is_embedded_once(
    tmp_path,
    open_clip_file,  # noqa: F811
):
    folder = write_images(tmp_path / "gen", 6)
    prompts = tmp_path / "prompts.jsonl"
    rows = [{"id": str(i), "prompt": ["a cat", "a dog"][i % 2]} for i in range(6)]
    prompts.write_text("\n".join(map(json.dumps, rows)))
    metrics = [
        gm.CLIPScore(convention=name, model=OPEN_CLIP, pretrained=str(open_clip_file))
        for name in ("hessel", "cos")
    ]
    report = gm.evaluate(folder, None, metrics, prompts=prompts, cache=tmp_path / "c")
    cosines = np.array(list(report["clipscore@cos"].per_sample.values()))
    assert len(cosines) == 6 and np.isfinite(cosines).all()
    # one image pass, and two texts for each of the two prefixes
    assert report.runtime["features_computed"] == 6 + 2 * 2
    assert report["clipscore@hessel"].interval is not None
    with pytest.raises(PairingError, match="image has no prompt"):
        prompts.write_text("\n".join(map(json.dumps, rows[:5])))
        gm.evaluate(folder, None, metrics, prompts=prompts, cache=False)


def test_one_broken_metric_does_not_take_the_others_along(tmp_path, monkeypatch):
    folder = write_images(tmp_path / "gen", 6)

    def broken(self, fake, ids):
        raise np.linalg.LinAlgError("did not converge")

    monkeypatch.setattr(gm.Vendi, "_compare", broken)
    report = gm.evaluate(folder, folder, ["vendi@lite", "kd-lite"], cache=False)
    assert report["vendi@lite"].status == "failed"
    assert report["vendi@lite"].reason == "LinAlgError: did not converge"
    assert report["kd-lite"].status == "ok" and not report.ok
