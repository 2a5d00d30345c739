from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from genmetrics.core.errors import InputError
from genmetrics.run.store import FeatureStore

from .toys import ToySpec

SPEC = ToySpec()
KEYS = [f"{i:064x}" for i in range(6)]


def features(index):
    return {
        "grid": np.array([[float(i), 1.0] for i in index], np.float32),
        "boxes": [[{"label": "cat", "score": float(i)}] * i for i in index],
    }


def test_rows_come_back_in_the_order_asked_for_from_any_shards(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[:4], features(range(4)))
    store.write(SPEC, KEYS[4:], features(range(4, 6)))
    found = FeatureStore(tmp_path).read(SPEC, [KEYS[5], KEYS[0], KEYS[3], KEYS[0]])
    assert found["grid"][:, 0].tolist() == [5, 0, 3, 0]
    assert [len(row) for row in found["boxes"]] == [5, 0, 3, 0]


def test_another_protocol_sees_nothing(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[:1], features([0]))
    assert not store.known(ToySpec(fault="x"))
    with pytest.raises(InputError, match="has no toy features"):
        store.read(ToySpec(fault="x"), KEYS[:1])


def test_a_damaged_shard_counts_as_missing_and_is_named(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[:2], features([0, 1]))
    store.write(SPEC, KEYS[2:4], features([2, 3]))
    for kind in ("flip", "cut", "empty"):
        shard = sorted(store.folder(SPEC).glob("*.safetensors"))[0]
        whole = shard.read_bytes()
        broken = {"flip": whole[:-1] + bytes([whole[-1] ^ 1]), "cut": whole[:50], "empty": b""}
        shard.write_bytes(broken[kind])
        again = FeatureStore(tmp_path)
        assert len(again.known(SPEC)) == 2
        assert again.damaged == [shard]
        shard.write_bytes(whole)
    assert len(FeatureStore(tmp_path).known(SPEC)) == 4


def test_equal_rows_of_two_ranks_are_one_file(tmp_path):
    for _ in range(2):
        FeatureStore(tmp_path).write(SPEC, KEYS[:2], features([0, 1]))
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    store = FeatureStore(tmp_path)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        store.write(SPEC, KEYS[:1], features([0]))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_usage_and_remove(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[:3], features(range(3)))
    (usage,) = store.usage()
    assert (usage.extractor, usage.rows, usage.shards) == ("toy", 3, 1)
    store.remove(usage)
    assert not store.known(SPEC)


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_leaves_whole_shards_only(tmp_path):
    code = (
        "import numpy as np, sys; from genmetrics.run.store import FeatureStore;"
        "from tests.run.toys import ToySpec\n"
        "store = FeatureStore(sys.argv[1]); i = 0\n"
        "while True:\n"
        "    keys = [f'{i:064x}']; i += 1\n"
        "    store.write(ToySpec(), keys, {'grid': np.full((1, 2000), i, np.float32)})\n"
        "    print(i, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if int(line) >= 20:
            break
    process.kill()
    rest = process.stdout.read().split()
    written = int(rest[-1]) if rest else 20
    process.wait()
    process.stdout.close()
    store = FeatureStore(tmp_path)
    known = store.known(ToySpec())
    assert written <= len(known) <= written + 1
    assert store.damaged == []
