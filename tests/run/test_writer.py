from __future__ import annotations

import threading

import numpy as np
import pytest

from genmetrics.core.errors import InputError
from genmetrics.core.rows import Ragged
from genmetrics.run import writer as module
from genmetrics.run.store import FeatureStore
from genmetrics.run.writer import Writer

from .toys import ToySpec

SPEC, OTHER = ToySpec(), ToySpec(fault="other")


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def store(tmp_path):
    return FeatureStore(tmp_path, durable=False)


@pytest.fixture
def written(store, monkeypatch):
    """Numbers of rows in each write, in order; each write is done before the next batch."""
    sizes = []
    plain = store.write

    def write(spec, keys, features):
        plain(spec, keys, features)
        sizes.append((spec.fault, len(keys)))

    monkeypatch.setattr(store, "write", write)
    return sizes


def batch(i, n=4):
    return [f"{i * n + k:064x}" for k in range(n)], {"grid": np.full((n, 3), i, np.float32)}


def give(writer, i, spec=SPEC):
    writer.write(spec, *batch(i))
    under_way = writer._under_way
    if under_way is not None:
        under_way.result()


def test_batches_gather_until_a_quarter_of_a_second_has_gone_by(store, written):
    clock = Clock()
    with Writer(store, clock) as writer:
        for i in range(5):
            give(writer, i)
        assert written == []
        clock.now += 0.2
        give(writer, 5)
        assert written == []
        clock.now += 0.1
        give(writer, 6)
        assert written == [("", 28)]
        give(writer, 7)
    assert written == [("", 28), ("", 4)]
    found = FeatureStore(store.root).read(SPEC, [key for i in range(8) for key in batch(i)[0]])
    assert found["grid"][:, 0].tolist() == np.repeat(np.arange(8), 4).tolist()


def test_a_long_pass_writes_every_hundredth_of_its_time(store, written):
    clock = Clock()
    with Writer(store, clock) as writer:
        for i in range(99):
            clock.now += 10
            give(writer, i)
        many = len(written)
        assert sum(rows for _, rows in written) == 396  # a batch that took long is on disk at once
        for i in range(1000):
            clock.now += 0.5
            give(writer, i)
        assert len(written) - many == pytest.approx(500 / 12.5, abs=10)


def test_files_grow_with_the_logarithm_of_the_time(store, written):
    clock = Clock()
    with Writer(store, clock) as writer:
        counts = []
        for _ in range(3):
            for i in range(2000):
                clock.now += 2 ** len(counts) * 0.1
                give(writer, i)
            counts.append(len(written))
    assert counts[2] - counts[1] < 1.3 * (counts[1] - counts[0]) < 400


def test_many_bytes_are_written_at_once(store, written, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 3 * 4 * (32 + 12))
    with Writer(store, Clock()) as writer:
        for i in range(7):
            give(writer, i)
        assert written == [("", 12), ("", 12)]
    assert written[2:] == [("", 4)]


def test_extractors_gather_apart_and_none_is_forgotten(store, written):
    clock = Clock()
    with Writer(store, clock) as writer:
        give(writer, 0, OTHER)
        give(writer, 0)
        clock.now += 0.3
        give(writer, 1)
        assert sorted(written) == [("", 8), ("other", 4)]


def test_flush_returns_when_all_is_on_disk(store, written):
    with Writer(store, Clock()) as writer:
        writer.write(SPEC, *batch(0))
        writer.write(OTHER, *batch(0))
        writer.flush()
        assert sorted(written) == [("", 4), ("other", 4)]
        writer.flush()
    assert len(written) == 2


def test_ragged_rows_and_records_are_joined(store):
    with Writer(store, Clock()) as writer:
        for i in range(3):
            rows = {"frames": Ragged.of([np.full((i, 2), i, np.float32)] * 4), "names": [[i]] * 4}
            writer.write(SPEC, batch(i)[0], rows)
    assert len(store.shards(SPEC)) == 1
    found = store.read(SPEC, [batch(2)[0][0], batch(0)[0][0]])
    assert found["names"] == [[2], [0]]
    assert found["frames"].lengths.tolist() == [2, 0]


def test_a_slow_disk_holds_nobody_up_until_much_has_gathered(store, monkeypatch):
    clock, go, sizes = Clock(), threading.Event(), []

    def slow(spec, keys, features):
        assert go.wait(60)
        sizes.append(len(keys))

    monkeypatch.setattr(store, "write", slow)
    with Writer(store, clock) as writer:
        for i in range(5):
            clock.now += 1
            writer.write(SPEC, *batch(i))
        assert sizes == []
        threading.Timer(0.05, go.set).start()
        monkeypatch.setattr(module, "LARGE", 100)
        writer.write(SPEC, *batch(5))  # now it waits for the first
        assert sizes[0] == 4
    assert sizes == [4, 20]


def test_what_the_disk_says_is_raised_at_the_next_call(store, monkeypatch):
    def full(spec, keys, features):
        raise InputError("no space")

    monkeypatch.setattr(store, "write", full)
    clock = Clock()
    with Writer(store, clock) as writer:
        clock.now += 1
        with pytest.raises(InputError, match="no space"):
            give(writer, 0)  # waits for the thread, as the next call finds it done
        with pytest.raises(InputError, match="no space"):
            writer.write(SPEC, *batch(1))
    with pytest.raises(InputError, match="no space"), Writer(store, clock) as writer:
        writer.write(SPEC, *batch(0))


def test_a_run_that_failed_keeps_its_rows_and_its_own_error(store, written, monkeypatch):
    with pytest.raises(KeyError), Writer(store, Clock()) as writer:
        writer.write(SPEC, *batch(0))
        raise KeyError
    assert written == [("", 4)]

    def full(spec, keys, features):
        raise InputError("no space")

    monkeypatch.setattr(store, "write", full)
    with pytest.raises(KeyError), Writer(store, Clock()) as writer:
        writer.write(SPEC, *batch(0))
        raise KeyError
