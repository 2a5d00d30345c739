"""Memory that runs out, writes behind the computation, precision as a choice."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
import torch

import genmetrics as gm
from genmetrics.core.errors import InputError, UsageError
from genmetrics.run.batches import cut
from genmetrics.run.store import FeatureStore

from .conftest import write_images
from .toys import ToyBrightness, ToyDistance, ToyExtractor, ToySpec


@pytest.fixture
def small_memory(monkeypatch):
    """A device that holds batches of 4."""
    sizes = []
    plain = ToyExtractor.forward

    def forward(self, prepared):
        if len(prepared) > 4:
            raise torch.OutOfMemoryError("no room")
        sizes.append(len(prepared))
        return plain(self, prepared)

    monkeypatch.setattr(ToyExtractor, "forward", forward)
    return sizes


def test_auto_halves_the_batch_until_it_fits_and_computes_nothing_twice(images, small_memory):
    whole = gm.evaluate(*images, [ToyDistance(ToySpec())], cache=False, batch_size=4)
    small_memory.clear()
    report = gm.evaluate(*images, [ToyDistance(ToySpec())], cache=False, batch_size="auto")
    assert report["toy-distance"] == whole["toy-distance"]
    assert report.runtime["batch_size"] == 4
    assert report.runtime["features_computed"] == 22
    assert set(small_memory) == {4}


def test_a_batch_size_that_was_asked_for_is_not_changed_in_silence(images, small_memory):
    with pytest.raises(UsageError, match="a batch of 8 does not fit.*--batch-size"):
        gm.evaluate(*images, [ToyDistance(ToySpec())], cache=False, batch_size=8)


def test_an_error_of_the_store_ends_the_run(images, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        gm.evaluate(*images, [ToyBrightness(ToySpec())], cache=tmp_path / "c", batch_size=4)
    assert not list((tmp_path / "c").rglob("*.safetensors"))


def test_slow_writes_lose_nothing(images, tmp_path, monkeypatch):
    plain = FeatureStore.write

    def slow(self, *arguments):
        time.sleep(0.05)
        plain(self, *arguments)

    monkeypatch.setattr(FeatureStore, "write", slow)
    report = gm.evaluate(*images, [ToyBrightness(ToySpec())], cache=tmp_path / "c", batch_size=2)
    assert report.ok
    monkeypatch.undo()
    again = gm.evaluate(*images, [ToyBrightness(ToySpec())], cache=tmp_path / "c", batch_size=2)
    assert again.runtime["features_computed"] == 0
    assert again["toy-brightness"] == report["toy-brightness"]


def test_batches_do_not_depend_on_what_whole_batches_were_done(tmp_path):
    from genmetrics.run.work import Who
    from genmetrics.samples.sources import read_samples

    members = [Who("generated", s) for s in read_samples(write_images(tmp_path / "g", 11))]
    fresh = list(cut(members, {who.place: (0,) for who in members}, 4))
    done = {who.place: () for batch in fresh[:2] for who in batch.members}
    wanted = {who.place: done.get(who.place, (0,)) for who in members}
    assert list(cut(members, wanted, 4)) == fresh[2:]


def test_precision_and_compile_enter_the_protocol():
    plain = gm.FID()
    fingerprints = {plain.protocol.fingerprint}
    for choice in ({"precision": "bf16"}, {"compiled": True}):
        fingerprints.add(gm.FID().compute_with(**choice).protocol.fingerprint)
    assert len(fingerprints) == 3
    toy = ToyDistance(ToySpec())
    before = toy.protocol.fingerprint
    assert toy.compute_with(precision="bf16").protocol.fingerprint == before


@pytest.mark.slow
def test_bf16_moves_the_value_a_little_and_is_reported(tmp_path):
    for name, seed in (("g", 0), ("r", 1)):
        write_images(tmp_path / name, 12, seed=seed)
    plain, fast = (
        gm.evaluate(
            tmp_path / "g", tmp_path / "r", ["fd-lite"], cache=False, batch_size=4, precision=name
        )
        for name in ("fp32", "bf16")
    )
    assert fast["fd-lite"].fingerprint != plain["fd-lite"].fingerprint
    assert fast.runtime["precision"] == "bf16"
    assert fast["fd-lite"].value == pytest.approx(plain["fd-lite"].value, rel=0.1)
    assert fast["fd-lite"].value != plain["fd-lite"].value
    assert np.isfinite(fast["fd-lite"].value)
