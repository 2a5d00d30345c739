"""The search for a batch size, on a simulated device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, UsageError
from genmetrics.core.extractor import Extractor, ExtractorSpec
from genmetrics.run.batch_size import (
    GAIN,
    LARGEST,
    SMALLEST,
    UNMEASURED,
    measure,
    remember,
    remembered,
)


@dataclass(frozen=True, kw_only=True)
class CardSpec(ExtractorSpec):
    extractor: str = "card"
    compiled: bool = False

    def check(self) -> None:
        pass

    def build(self, device: str) -> Card:
        return Card(self, device)


class Card(Extractor):
    """A device with a memory, in images, on which a batch takes ``fixed + size`` units of time.

    Work is done when somebody waits for it, as on a GPU.
    """

    memory: float = LARGEST
    fixed = 0.0

    def __init__(self, spec: CardSpec, device: str = "cuda") -> None:
        super().__init__(spec, device)
        self.sizes: list[int] = []
        self.now = self.queued = 0.0

    def prepare(self, item):
        return item

    def forward(self, prepared: Sequence):
        self.sizes.append(len(prepared))
        if len(prepared) > self.memory:
            raise torch.OutOfMemoryError("no room")
        self.queued += (self.fixed + len(prepared)) * 1e-4
        return {"x": np.zeros((len(prepared), 1), np.float32)}

    def wait(self) -> None:
        self.now, self.queued = self.now + self.queued, 0.0

    def measured(self) -> int:
        return measure(self, object(), clock=lambda: self.now, wait=self.wait)


def card(*, memory: float = LARGEST, fixed: float = 0.0, **choices) -> Card:
    found = Card(CardSpec(**choices))
    found.memory, found.fixed = memory, fixed
    return found


def test_a_device_that_gets_no_faster_keeps_the_smallest_batch():
    it = card(fixed=0)
    assert it.measured() == SMALLEST
    assert set(it.sizes) == {32, 64}


def test_it_grows_while_a_batch_costs_more_than_its_images():
    assert card(fixed=1000).measured() == LARGEST
    # 32: 32 / 42, 64: 64 / 74 (13 % more), 128: 128 / 138 (7 %), 256: 256 / 266 (4 %)
    assert card(fixed=10).measured() == 128


def test_memory_ends_the_search_at_the_last_size_that_fitted():
    it = card(memory=200, fixed=1000)
    assert it.measured() == 128
    assert it.sizes.count(256) == 1


@pytest.mark.parametrize(("memory", "size"), [(31, 16), (9, 8), (1, 1)])
def test_a_small_memory_gets_a_small_batch(memory, size):
    assert card(memory=memory, fixed=1000).measured() == size


def test_a_memory_that_holds_nothing_is_told_in_one_line():
    with pytest.raises(UsageError, match="one image does not fit the memory of cuda with card"):
        card(memory=0).measured()


def test_nothing_runs_on_a_cpu_or_through_a_compiler():
    on_cpu = Card(CardSpec(), "cpu")
    assert on_cpu.measured() == SMALLEST
    compiled = card(compiled=True)
    assert compiled.measured() == UNMEASURED
    assert on_cpu.sizes == compiled.sizes == []


@settings(max_examples=60, deadline=None)
@given(st.floats(1, 2000), st.floats(0, 3000))
def test_never_beyond_the_memory_and_never_for_less_than_the_gain(memory, fixed):
    it = card(memory=memory, fixed=fixed)
    size = it.measured()

    def speed(n: int) -> float:
        return n / (fixed + n)

    assert size <= memory
    assert size <= LARGEST
    assert size == 2 ** int(log2(size))
    assert len(it.sizes) <= 4 * (log2(LARGEST / SMALLEST) + 1) + log2(SMALLEST)
    if size > SMALLEST:
        assert speed(size) >= (GAIN - 1e-9) * speed(size // 2)
    if SMALLEST <= size < LARGEST and 2 * size <= memory:
        assert speed(2 * size) <= (GAIN + 1e-9) * speed(size)
    if size < SMALLEST:
        assert 2 * size > memory


def test_other_errors_are_not_taken_for_a_full_memory():
    class Broken(Card):
        def forward(self, prepared):
            raise RuntimeError("device-side assert")

    with pytest.raises(RuntimeError, match="assert"):
        Broken(CardSpec()).measured()


# -- what is kept ----------------------------------------------------------------------------------


@pytest.fixture
def h200(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200 (141GB)")


def test_every_rank_and_every_later_run_reads_the_same_size(tmp_path, h200):
    assert remembered(tmp_path, "cuda:0") is None
    remember(tmp_path / "extractor", "cuda:0", 256)
    assert remembered(tmp_path / "extractor", "cuda:1") == 256
    assert [p.name for p in (tmp_path / "extractor").iterdir()] == ["batch-NVIDIA-H200-141GB-.json"]
    remember(tmp_path / "extractor", "cuda:0", 128)
    assert remembered(tmp_path / "extractor", "cuda:0") == 128


def test_another_card_or_another_torch_measures_anew(tmp_path, h200, monkeypatch):
    remember(tmp_path, "cuda", 256)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200 141GB")
    assert remembered(tmp_path, "cuda") is None
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200 (141GB)")
    assert remembered(tmp_path, "cuda") == 256
    monkeypatch.setattr(torch, "__version__", "2.99")
    assert remembered(tmp_path, "cuda") is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '{"batch_size": 64}', "-1", "0", "true", "9999", '"64"']
)
def test_a_damaged_note_counts_as_none(tmp_path, h200, text):
    remember(tmp_path, "cuda", 64)
    (file,) = tmp_path.iterdir()
    whole = json.loads(file.read_text())
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    simple = isinstance(value, int | str)
    file.write_text(json.dumps({**whole, "batch_size": value}) if simple else text)
    assert remembered(tmp_path, "cuda") is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path, h200):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"batch-NVIDIA.* cannot be written"):
        remember(tmp_path / "file", "cuda", 64)
