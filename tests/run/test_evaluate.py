from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import genmetrics as gm
from genmetrics.core.errors import GenmetricsError, InputError, UsageError

from .conftest import write_images
from .toys import ToyBrightness, ToyDistance, ToySpec


def both(**options):
    spec = ToySpec(**options)
    return [ToyDistance(spec), ToyBrightness(spec)]


def values(report):
    return {name: (r.value, r.interval, r.per_sample) for name, r in report.results.items()}


def test_two_metrics_share_one_pass_and_each_image_is_seen_once(images, tmp_path):
    log = tmp_path / "log"
    report = gm.evaluate(*images, both(log=str(log)), cache=tmp_path / "cache", batch_size=4)
    assert report.ok
    assert report["toy-distance"].n == 13 and report["toy-distance"].n_reference == 9
    batches = [line.split() for line in log.read_text().splitlines()]
    assert sorted(map(len, batches)) == [1, 2, 4, 4, 4, 4, 4][1:] or sum(map(len, batches)) == 22
    assert sum(map(len, batches)) == 13 + 9
    assert report.runtime["features_computed"] == 22


def test_a_second_run_reads_features_only_and_gives_the_same(images, tmp_path):
    log = tmp_path / "log"
    first = gm.evaluate(*images, both(log=str(log)), cache=tmp_path / "cache")
    lines = log.read_text()
    again = gm.evaluate(*images, both(log=str(log)), cache=tmp_path / "cache")
    assert log.read_text() == lines
    assert values(again) == values(first)
    assert again.runtime["features_computed"] == 0 and again.runtime["features_reused"] == 22


def test_without_a_cache_nothing_is_kept(images, tmp_path, monkeypatch):
    monkeypatch.setenv("GENMETRICS_HOME", str(tmp_path / "home"))
    report = gm.evaluate(*images, both(), cache=False)
    assert report.ok and not (tmp_path / "home").exists()


@pytest.mark.parametrize("batch_size", [1, 4, 16])
@pytest.mark.parametrize("workers", [1, 3])
def test_batch_size_and_workers_move_nothing(images, batch_size, workers, tmp_path):
    one = gm.evaluate(*images, both(), cache=False, batch_size=5, workers=2)
    other = gm.evaluate(*images, both(), cache=False, batch_size=batch_size, workers=workers)
    assert values(other) == values(one)


def test_only_new_images_are_computed(images, tmp_path):
    log = tmp_path / "log"
    gm.evaluate(*images, both(log=str(log)), cache=tmp_path / "c", batch_size=4)
    log.unlink()
    write_images(tmp_path / "more", 2, seed=9)
    for i in range(2):
        (tmp_path / "more" / f"{i}.png").rename(images[0] / f"new{i}.png")
    report = gm.evaluate(*images, both(log=str(log)), cache=tmp_path / "c", batch_size=4)
    assert report["toy-distance"].n == 15
    assert log.read_text().split() == ["new0", "new1"]


def test_equal_files_are_computed_once(images, tmp_path):
    (images[0] / "copy.png").write_bytes((images[0] / "3.png").read_bytes())
    report = gm.evaluate(*images, both(), cache=False)
    brightness = report["toy-brightness"].per_sample
    assert report["toy-brightness"].n == 14
    assert brightness["copy"] == brightness["3"]
    assert report.runtime["features_computed"] == 22


def broken(folder: Path) -> set[str]:
    """One truncated, one empty, one text file with an image's name."""
    whole = (folder / "0.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.png").write_text("hello")
    return {"cut", "empty", "text"}


def test_bad_files_are_all_listed_at_once(images, tmp_path):
    names = broken(images[0])
    with pytest.raises(InputError) as caught:
        gm.evaluate(*images, both(), cache=False, out=tmp_path / "out")
    line = str(caught.value)
    assert "\n" not in line and "--on-error skip" in line
    assert not (tmp_path / "out").exists()
    found = {name for name in names if f"{name}." in line}
    assert found == names


def test_skipped_files_are_counted_named_and_nan(images):
    names = broken(images[0])
    report = gm.evaluate(*images, both(), cache=False, on_error="skip", batch_size=4)
    assert not report.ok
    assert report["toy-distance"].n == 13
    assert {failure.who.sample.id for failure in report.failures} == names
    assert all(failure.reason for failure in report.failures)
    assert all(math.isnan(report["toy-brightness"].per_sample[name]) for name in names)
    assert report["toy-brightness"].value == pytest.approx(
        np.nanmean(list(report["toy-brightness"].per_sample.values()))
    )


def test_skipping_is_the_same_on_a_resumed_run(images, tmp_path):
    broken(images[0])
    first = gm.evaluate(*images, both(), cache=tmp_path / "c", on_error="skip", batch_size=4)
    again = gm.evaluate(*images, both(), cache=tmp_path / "c", on_error="skip", batch_size=4)
    assert values(first).keys() == values(again).keys()
    assert first["toy-distance"].value == again["toy-distance"].value
    assert first.conversions == again.conversions
    assert len(again.failures) == 3 and again.runtime["features_computed"] == 0


def test_all_zero_features_stop_the_run_and_name_a_sample(images):
    with pytest.raises(GenmetricsError, match="toy gave a vector of norm 0.0"):
        gm.evaluate(*images, both(fault="zeros"), cache=False)


def test_an_extractor_that_refuses_one_image_fails_that_image_only(images):
    report = gm.evaluate(*images, both(fault="prepare:7"), cache=False, on_error="skip")
    assert [(f.who.side, f.who.sample.id) for f in report.failures] == [
        ("reference", "7"),
        ("generated", "7"),
    ]
    assert report["toy-distance"].n == 12 and report["toy-distance"].n_reference == 8


def test_a_copy_of_an_image_that_gives_no_features_fails_as_the_image_does(images):
    Image.new("RGB", (12, 12), 0).save(images[0] / "black1.png")  # all-zero features
    (images[0] / "black2.png").write_bytes((images[0] / "black1.png").read_bytes())
    report = gm.evaluate(*images, both(), cache=False, on_error="skip")
    assert [f.who.sample.id for f in report.failures] == ["black1", "black2"]
    assert report["toy-distance"].n == 13


def test_nothing_left_is_a_failed_metric_and_not_a_crash(tmp_path):
    folder = tmp_path / "gen"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.png").write_bytes(b"x")
    (tmp_path / "ref").mkdir()
    write_images(tmp_path / "ref", 3)
    with pytest.raises(GenmetricsError, match="0 generated images"):
        gm.evaluate(folder, tmp_path / "ref", both(), cache=False, on_error="skip")


def test_conversions_are_counted_also_when_they_come_from_the_store(images, tmp_path):
    Image.new("L", (9, 9), 7).save(images[0] / "grey.png")
    Image.new("RGBA", (9, 9), (255, 0, 0, 128)).save(images[0] / "alpha.png")
    for _ in range(2):
        report = gm.evaluate(*images, both(), cache=tmp_path / "c")
        assert report.conversions == {"alpha_on_white": 1, "grayscale": 1}


def test_the_run_writes_strict_json_and_one_line_a_sample(images, tmp_path):
    gm.evaluate(*images, both(), cache=False, out=tmp_path / "out")
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert document["schema"] == "genmetrics.results/2"
    assert document["inputs"]["generated"]["n"] == 13
    lines = (tmp_path / "out" / "samples.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    assert len(lines) == 13 and first["id"] == "0"
    assert {"toy-distance", "toy-brightness"} <= set(first)


def test_copies_and_common_images_are_said(images):
    for i in range(2):
        (images[0] / f"copy{i}.png").write_bytes((images[0] / "3.png").read_bytes())
    (images[0] / "real.png").write_bytes((images[1] / "5.png").read_bytes())
    warnings = gm.evaluate(*images, both(), cache=False)["toy-distance"].warnings
    assert "2 of 16 generated images are copies of others" in warnings
    assert "1 images are in both the generated and the reference set" in warnings


def test_a_report_is_a_mapping_that_knows_bare_ids(images):
    report = gm.evaluate(*images, "kd-lite:subset_size=10", cache=False, limit=4)
    assert list(report) == ["kd-lite"] and len(report) == 1
    assert report["kd-lite:subset_size=10"] is report["kd-lite"]
    assert "kd-lite" in repr(report) and len(repr(report["kd-lite"])) < 1500
    assert f"{report['kd-lite']:.3f}" == f"{report['kd-lite'].value:.3f}"


def test_what_belongs_to_the_images_is_in_the_inputs(images, tmp_path):
    pairs = write_images(tmp_path / "pairs", 13, seed=0)
    one = gm.evaluate(images[0], None, "psnr", pair_with=pairs, cache=False).inputs
    assert one["counterparts"]["path"] == str(pairs) and one["counterparts"]["n"] == 13
    with Image.open(pairs / "0.png") as image:
        grey = Image.new("RGB", image.size, (9, 9, 9))
    grey.save(pairs / "0.png")
    other = gm.evaluate(images[0], None, "psnr", pair_with=pairs, cache=False).inputs
    assert one["generated"] == other["generated"]
    assert one["counterparts"]["digest"] != other["counterparts"]["digest"]


def test_limit_takes_the_first_of_each_set(images):
    report = gm.evaluate(*images, both(), cache=False, limit=5)
    assert (report["toy-distance"].n, report["toy-distance"].n_reference) == (5, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": []}, "no metric asked for"),
        ({"metrics": ["fid"], "reference": None}, "needs a reference set: pass --ref"),
        ({"metrics": ["psnr"]}, "needs a counterpart for each image.*pass --pair-with"),
        ({"metrics": ["toy"]}, "unknown metric 'toy'"),
        ({"batch_size": 0}, "batch size is 0"),
        ({"device": "gpu"}, "device 'gpu' is unknown"),
        ({"device": "cuda:7"}, "device 'cuda:7' is not there"),
        ({"weights": {"inceptoin": "x"}}, "inceptoin"),
        ({"suite": "light"}, "did you mean 'lite'"),
    ],
)
def test_bad_usage_is_one_line_before_anything_happens(images, tmp_path, arguments, message):
    generated, reference = images
    base = {"reference": reference, "metrics": both(), "cache": tmp_path / "cache"}
    with pytest.raises(UsageError, match=message) as caught:
        gm.evaluate(generated, **{**base, **arguments})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_equal_sets_have_equal_digests_whatever_their_names(images, tmp_path):
    one = gm.evaluate(*images, both(), cache=False).inputs["generated"]["digest"]
    for path in sorted(images[0].iterdir()):
        path.rename(images[0] / f"other_{path.name}")
    assert gm.evaluate(*images, both(), cache=False).inputs["generated"]["digest"] == one
