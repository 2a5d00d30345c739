"""What a hostile tester found, each as a test of its kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import genmetrics as gm
from genmetrics.core.errors import GenmetricsError, InputError, UsageError
from genmetrics.samples.statistics import StatisticsEntry, read_statistics, write_statistics

from .conftest import write_images
from .toys import ToyBrightness, ToyDistance, ToyExtractor, ToySpec


def test_a_file_that_changes_under_way_never_poisons_the_store(images, tmp_path, monkeypatch):
    generated = images[0]
    right = gm.evaluate(generated, None, [ToyBrightness(ToySpec())], cache=False)
    plain = ToySpec.build

    def build(self, device):
        for i in range(5):  # after the digests were taken, before anything is decoded
            shutil.copy(images[1] / f"{i}.png", generated / f"{i}.png")
        return plain(self, device)

    saved = {path: path.read_bytes() for path in generated.iterdir()}
    monkeypatch.setattr(ToySpec, "build", build)
    with pytest.raises(InputError, match="5 samples cannot be used.*changed while the run"):
        gm.evaluate(generated, None, [ToyBrightness(ToySpec())], cache=tmp_path / "c")
    monkeypatch.undo()
    for path, data in saved.items():
        path.write_bytes(data)
    again = gm.evaluate(generated, None, [ToyBrightness(ToySpec())], cache=tmp_path / "c")
    assert again["toy-brightness"] == right["toy-brightness"]


def test_a_flipped_bit_in_a_statistics_file_is_damage(tmp_path):
    path = tmp_path / "s.safetensors"
    entry = StatisticsEntry({"extractor": "toy"}, 4, {"grid.features": np.ones((4, 3))}, "")
    write_statistics(path, [entry])
    assert read_statistics(path).entries[0].n == 4
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 0x40
    path.write_bytes(bytes(whole))
    with pytest.raises(InputError, match="is damaged.*does not have the sha256"):
        read_statistics(path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"mu": np.array(["a", "b"]), "sigma": np.eye(2)},
        {"mu": np.zeros(2, complex), "sigma": np.eye(2)},
        {"mu": np.zeros(2), "sigma": np.eye(3)},
    ],
)
def test_odd_npz_statistics_are_one_line(tmp_path, arrays):
    np.savez(tmp_path / "s.npz", **arrays)
    with pytest.raises(InputError, match=r"s\.npz"):
        read_statistics(tmp_path / "s.npz", allow_unverified=True)


def test_a_flipped_bit_in_a_plain_npz_of_images_is_damage(tmp_path):
    from genmetrics.samples.sources import read_samples

    path = tmp_path / "images.npz"
    np.savez(path, arr_0=np.zeros((4, 8, 8, 3), np.uint8))
    assert len(read_samples(path)) == 4
    whole = bytearray(path.read_bytes())
    whole[400] ^= 1
    path.write_bytes(bytes(whole))
    with pytest.raises(InputError, match=r"images\.npz.*CRC"):
        read_samples(path)


def test_metric_objects_of_one_id_are_all_computed_and_left_as_they_were(images):
    mine = gm.PRDCLite(k=2)
    report = gm.evaluate(*images, [mine, gm.PRDCLite(k=3)], cache=False)
    assert len(report) == 2
    assert len({result.fingerprint for result in report.values()}) == 2
    again = gm.evaluate(*images, [mine], cache=False)
    assert again["prdc-lite"].n == 13
    with pytest.raises(UsageError, match="neither an id nor a Metric"):
        gm.evaluate(*images, ["fd-lite", gm.KDLite], cache=False)


def test_reference_images_count_once(feed_toy):
    metric = gm.FDLite()
    feed_toy(metric, ["a", "b", "c"], real=True)
    with pytest.raises(InputError, match="'a' was given twice"):
        feed_toy(metric, ["a"], real=True)
    other = gm.FDLite()
    feed_toy(other, ["c", "d"], real=True)
    with pytest.raises(InputError, match="'c' was given twice"):
        metric.merge(other)
    with pytest.raises(InputError, match="into itself"):
        metric.merge(metric)


def test_unlike_references_do_not_merge(feed_toy, tmp_path):
    loaded = []
    for i in range(2):
        metric = gm.FDLite()
        feed_toy(metric, [f"{i}{j}" for j in range(4)], real=True, seed=i)
        n, arrays = metric.reference_arrays()
        path = tmp_path / f"{i}.safetensors"
        write_statistics(path, [StatisticsEntry(metric.spec.to_dict(), n, arrays, "")])
        loaded.append(gm.FDLite(reference=path))
    with pytest.raises(InputError, match="unlike references"):
        loaded[0].merge(loaded[1])
    with pytest.raises(InputError, match="unlike references"):
        gm.FDLite().merge(loaded[0])


@pytest.fixture
def feed_toy():
    def feed(metric, ids, *, real=False, seed=0):
        rows = np.random.default_rng(seed).standard_normal((len(ids), 5)).astype(np.float32)
        samples = [gm.Sample(id=name) for name in ids]
        metric.update_features(samples, {metric.role: {metric.output: rows}}, real=real)

    return feed


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: gm.PSNR(channel="foo"), "channel='foo' is not one of rgb"),
        (lambda: gm.KDLite(subset_size=0), "subset_size=0; pass a whole number of at least 2"),
        (lambda: gm.KDLite(seed=-1), "seed=-1"),
        (lambda: gm.KDLite(seed=2**32), "below 4294967296"),
        (lambda: gm.PRDCLite(k=0), "k=0"),
        (lambda: gm.PRDCLite(k=2.5), "k=2.5"),
        (lambda: gm.FDLite(infinity_points=-1), "infinity_points=-1"),
        (lambda: gm.InceptionScore(splits=0), "splits=0"),
        (lambda: gm.CMMD(estimator="none"), "estimator='none'"),
        (lambda: gm.CMMD(sigma=0), "sigma=0"),
    ],
)
def test_options_out_of_range_are_refused_before_any_work(build, message):
    with pytest.raises(UsageError, match=message):
        build()


def test_lists_that_are_one_text_are_refused():
    import torch

    images = torch.zeros(4, 3, 16, 16, dtype=torch.uint8)
    with pytest.raises(InputError, match="ids must be a list of texts"):
        gm.PSNR().update(images, references=images, ids="abcd")
    with pytest.raises(InputError, match="ids must be a list of texts"):
        gm.PSNR().update(images, references=images, ids=[1, 2, 3, 4])
    with pytest.raises(InputError, match="value_range"):
        gm.PSNR().update(images.float(), references=images, value_range=(0, float("inf")))


def test_masks_that_nothing_reads_are_refused(images, tmp_path):
    masks = write_images(tmp_path / "masks", 13)
    with pytest.raises(UsageError, match="no metric of this run reads masks"):
        gm.evaluate(*images, [ToyDistance(ToySpec())], masks=masks, cache=False)


def test_a_cache_that_cannot_be_written_is_seen_before_a_model_runs(images, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")

    def forward(self, prepared):
        raise AssertionError("a model ran")

    monkeypatch.setattr(ToyExtractor, "forward", forward)
    with pytest.raises(UsageError, match="is a file; pass another --cache, or --no-cache"):
        gm.evaluate(*images, [ToyDistance(ToySpec())], cache=tmp_path / "file" / "c")


def test_the_three_report_files_appear_together_or_not_at_all(images, tmp_path, monkeypatch):
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    report = gm.evaluate(*images, [ToyDistance(ToySpec())], cache=False)
    from genmetrics.report.files import write_report
    from genmetrics.report.record import RunRecord

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GenmetricsError, match="No space left on device"):
        write_report(RunRecord.of(report), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="shell redirections of Linux")
@pytest.mark.parametrize(
    ("redirection", "code"),
    [("2>&-", 0), ("2>/dev/full", 0), (">/dev/full", 2), ("| head -c 1", 0)],
)
def test_streams_that_are_lost(images, tmp_path, redirection, code):
    out = tmp_path / "out"
    command = (
        f"set -o pipefail; '{sys.executable}' -m genmetrics eval '{images[0]}' --pair-with"
        f" '{images[0]}' -m psnr --no-cache --out '{out}' {redirection}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert (out / "results.json").exists() == (code == 0)


@pytest.mark.parametrize("kind", [gm.FDLite, gm.KDLite])
def test_a_state_keeps_to_the_reference_it_was_made_with(kind, feed_toy, tmp_path):
    source = kind()
    feed_toy(source, [f"r{i}" for i in range(6)], real=True)
    n, arrays = source.reference_arrays()
    path = tmp_path / "reference.safetensors"
    write_statistics(path, [StatisticsEntry(source.spec.to_dict(), n, arrays, "")])
    metric = kind(reference=path)
    feed_toy(metric, [f"g{i}" for i in range(5)], seed=1)
    again = kind(reference=path)
    again.load_state_dict(metric.state_dict())
    assert again.compute() == metric.compute() and again.compute().n_reference == 6
    with pytest.raises(InputError, match="had a statistics file as its reference"):
        kind().load_state_dict(metric.state_dict())
    with pytest.raises(InputError, match="had images as its reference"):
        again.load_state_dict(source.state_dict())


def test_a_plan_runs_twice_with_the_same_answer(images):
    from genmetrics.run.build import Asked
    from genmetrics.run.decide import Decider
    from genmetrics.run.evaluate import Running, extracted
    from genmetrics.run.inputs import Inputs
    from genmetrics.run.ranks import ALONE

    inputs = Inputs(generated={"a": images[0], "b": images[0]}, reference=images[1])
    asked = Asked(metrics=[ToyDistance(ToySpec())])
    with extracted(inputs, asked, Running(cache=False), ALONE, None) as done:
        first, second = (Decider(done.plan, done.store).results() for _ in range(2))
    assert first == second
    assert first["a"]["toy-distance"].value == first["b"]["toy-distance"].value


def test_workers_and_batch_sizes_that_make_no_sense(images):
    for choice in ({"workers": 0}, {"batch_size": "big"}, {"on_error": "ignore"}):
        with pytest.raises(UsageError):
            gm.evaluate(*images, [ToyDistance(ToySpec())], cache=False, **choice)


def test_names_keep_to_their_backbones():
    for metric in (gm.FID, gm.KID, gm.PRDC, gm.InceptionScore):
        with pytest.raises(UsageError, match=f"has no variant 'lite'; there is {metric.id}@clean"):
            metric(protocol="lite")
    with pytest.raises(UsageError, match="no reference side"):
        gm.InceptionScore(reference="x.safetensors")
