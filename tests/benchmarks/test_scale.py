"""The benchmark of very many pictures: its arithmetic, and that it runs."""

from __future__ import annotations

import json

import pytest

from benchmarks.lab import Lab
from benchmarks.rows import QUICK
from benchmarks.scale import exponent, scale
from benchmarks.tiles import write_shards
from genmetrics.samples.sources import read_samples


@pytest.mark.parametrize("power", [0.5, 1.0, 1.9])
def test_growth_is_the_slope_of_logarithms(power):
    counts = (10, 100, 1000)
    assert exponent(counts, [3.0 * n**power for n in counts]) == pytest.approx(power)


def test_shards_hold_pictures_that_decode(tmp_path):
    write_shards(tmp_path / "tiles", count=30)
    samples = read_samples(tmp_path / "tiles")
    assert len(samples) == len({s.image.digest() for s in samples}) == 30
    assert samples[3].image.load().pixels.shape == (16, 16, 3)


@pytest.mark.slow
def test_it_runs(tmp_path):
    lab = Lab(tmp_path, 1, 1)
    rows = list(scale(lab, QUICK))
    assert [row.benchmark for row in rows] == ["scale"] * 4
    assert {m.side for m in lab.measurements} == {
        f"{run}, {n}" for run in ("first run", "second run") for n in QUICK.tiles
    }
    first, second = (m.output["value"] for m in lab.measurements[-3::2])
    assert first == second  # a second run finds what the first one kept
    json.dumps(lab.as_json())
