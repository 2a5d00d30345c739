from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core import rows as rows_module
from genmetrics.core.errors import InputError
from genmetrics.core.rows import Ragged, StoredRows, take
from genmetrics.run.shard import pack
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
    assert not len(store.known(ToySpec(fault="x")))
    with pytest.raises(InputError, match="has no toy features"):
        store.read(ToySpec(fault="x"), KEYS[:1])


def one_shard(store):
    (shard,) = store.folder(SPEC).glob("*.safetensors")
    return shard


def where(shard, tensor):
    """Position of the tensor's last byte in the file."""
    data = shard.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return 8 + length + json.loads(data[8 : 8 + length])[tensor]["data_offsets"][1] - 1


def flip(shard, position):
    data = bytearray(shard.read_bytes())
    data[position] ^= 1
    shard.write_bytes(data)


def test_a_shard_with_damaged_header_or_keys_counts_as_missing_and_is_named(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[:2], features([0, 1]))
    store.write(SPEC, KEYS[2:4], features([2, 3]))
    shard = sorted(store.folder(SPEC).glob("*.safetensors"))[0]
    whole = shard.read_bytes()
    damages = {
        "length": lambda: flip(shard, 0),
        "length beyond": lambda: flip(shard, 7),
        "type": lambda: flip(shard, whole.index(b"F32")),
        "sum": lambda: flip(shard, whole.index(b"sums") + 40),
        "keys": lambda: flip(shard, where(shard, "/keys")),
        "cut in the header": lambda: shard.write_bytes(whole[:50]),
        "cut in the rows": lambda: shard.write_bytes(whole[:-1]),
        "empty": lambda: shard.write_bytes(b""),
    }
    for damage in damages.values():
        damage()
        again = FeatureStore(tmp_path)
        assert len(again.known(SPEC)) == 2
        assert again.damaged == [shard]
        shard.write_bytes(whole)
    assert len(FeatureStore(tmp_path).known(SPEC)) == 4


def test_a_damaged_shard_that_is_computed_again_is_whole(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[:2], features([0, 1]))
    shard = one_shard(store)
    flip(shard, where(shard, "/keys"))
    again = FeatureStore(tmp_path)
    assert not len(again.known(SPEC))
    again.write(SPEC, KEYS[:2], features([0, 1]))
    assert again.read(SPEC, KEYS[1:2])["grid"][0, 0] == 1
    assert one_shard(store) == shard


@pytest.mark.parametrize(
    ("tensor", "output", "rest"),
    [("grid", "grid", "boxes"), ("boxes", "boxes", "grid"), ("frames/values", "frames", "grid"),
     ("frames/offsets", "frames", "boxes")],
)  # fmt: skip
def test_a_damaged_output_is_found_when_it_is_read(tmp_path, tensor, output, rest):
    store = FeatureStore(tmp_path)
    frames = Ragged.of([np.ones((1, 2)), np.ones((3, 2))])
    store.write(SPEC, KEYS[:2], {**features([0, 1]), "frames": frames})
    flip(one_shard(store), where(one_shard(store), tensor))
    again = FeatureStore(tmp_path)
    assert len(again.known(SPEC)) == 2
    assert len(again.read(SPEC, KEYS[:2], [rest])[rest]) == 2
    with pytest.raises(InputError, match=f"{one_shard(store).name} is damaged; delete it"):
        again.read(SPEC, KEYS[:2], [output])
    lazy = again.open(SPEC, KEYS[:2], ["grid"])["grid"]
    if output == "grid":
        with pytest.raises(InputError, match="is damaged; delete it"):
            next(iter(lazy))


def test_opening_reads_no_rows(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS, {"grid": np.ones((6, 100), np.float32), "boxes": [{}] * 6})
    shard = one_shard(store)
    data = bytearray(shard.read_bytes())
    last = where(shard, "grid")
    data[last - 2399 : last + 1] = bytes(2400)
    shard.write_bytes(data)
    again = FeatureStore(tmp_path)
    assert again.known(SPEC).having(KEYS).all()
    assert [usage.rows for usage in again.usage()] == [6]
    assert again.damaged == []


def test_a_shard_cut_after_it_was_opened_is_one_line(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS, features(range(6)))
    rows = store.open(SPEC, KEYS)["grid"]
    np.asarray(rows)
    shard = one_shard(store)
    shard.write_bytes(shard.read_bytes()[: where(shard, "grid")])
    with pytest.raises(InputError, match="is damaged; delete it"):
        np.asarray(rows)
    shard.unlink()
    with pytest.raises(InputError, match="cannot be read .*No such file.*; delete it"):
        np.asarray(rows)


def test_shards_of_an_older_layout_are_not_looked_into_but_can_be_removed(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[:2], features([0, 1]))
    older = store.folder(SPEC) / f"{'0' * 32}.safetensors"
    older.write_bytes(bytes(500))
    again = FeatureStore(tmp_path)
    assert len(again.known(SPEC)) == 2
    (usage,) = again.usage()
    assert again.damaged == []
    assert (usage.rows, usage.shards) == (2, 1)
    assert usage.bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    again.remove(usage)
    assert not older.exists()


def test_a_file_that_never_got_its_name_is_none(tmp_path, monkeypatch):
    def killed(self, target):
        raise KeyboardInterrupt

    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[:2], features([0, 1]))
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        store.write(SPEC, KEYS[2:], features(range(2, 6)))
    monkeypatch.undo()
    again = FeatureStore(tmp_path)
    assert again.known(SPEC).having(KEYS).tolist() == [True, True, False, False, False, False]
    assert again.damaged == []


def test_two_stores_of_one_folder_see_what_the_other_wrote_when_they_look(tmp_path):
    one, two = FeatureStore(tmp_path), FeatureStore(tmp_path)
    assert not len(one.known(SPEC))
    assert not len(two.known(SPEC))
    one.write(SPEC, KEYS[:4], features(range(4)))
    two.write(SPEC, KEYS[2:], features(range(2, 6)))
    assert KEYS[5] not in one.known(SPEC)
    one.scan(SPEC, one.shards(SPEC))
    assert len(one.known(SPEC)) == 6
    assert one.read(SPEC, KEYS)["grid"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_what_is_on_disk_is_known_also_after_a_write(tmp_path):
    FeatureStore(tmp_path).write(SPEC, KEYS[:2], features([0, 1]))
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[2:3], features([2]))
    assert len(store.known(SPEC)) == 3


def test_who_was_told_which_shards_to_read_reads_no_others(tmp_path):
    FeatureStore(tmp_path).write(SPEC, KEYS[:2], features([0, 1]))
    store = FeatureStore(tmp_path)
    store.scan(SPEC, [])
    assert not len(store.known(SPEC))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"grid": np.ones((1, 3), np.float32)}, r"of shape \(3,\), other shards \(2,\); delete it"),
        ({"grid": np.ones((1, 2))}, "holds 'grid' of another type; delete it"),
        ({"grid": [1]}, "holds 'grid' of another type; delete it"),
        ({"boxes": [1]}, "has no output 'grid'; delete it"),
    ],
)
def test_shards_that_do_not_fit_together_are_named(tmp_path, other, said):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[:1], {"grid": np.ones((1, 2), np.float32)})
    store.write(SPEC, KEYS[1:2], other)
    with pytest.raises(InputError, match=said):
        store.read(SPEC, KEYS[:2])


def test_what_the_format_cannot_hold_is_one_line(tmp_path):
    with pytest.raises(InputError, match="'wave' is of type complex64, which no store can hold"):
        FeatureStore(tmp_path).write(SPEC, KEYS[:1], {"wave": np.ones((1, 2), np.complex64)})


DTYPES = ["<f8", "<f4", "<f2", "<i8", "<u2", "|u1", "|b1", ">f4"]


@st.composite
def several_outputs(draw):
    """Rows of every kind, how they are cut into shards, and which are asked for."""
    n = draw(st.integers(1, 12))
    seed = np.random.default_rng(draw(st.integers(0, 99)))
    found = {"numbers": seed.integers(0, 9, n).astype(draw(st.sampled_from(DTYPES)))}
    shape = draw(st.sampled_from([(0,), (1,), (5,), (2, 3)]))
    found["array"] = seed.integers(0, 9, (n, *shape)).astype(draw(st.sampled_from(DTYPES)))
    found["ragged"] = Ragged.of(
        [seed.standard_normal((draw(st.integers(0, 3)), 2)).astype(np.float32) for _ in range(n)]
    )
    number = st.floats(allow_nan=False, allow_infinity=False)
    value = st.recursive(st.none() | st.text(max_size=4) | number, st.lists, max_leaves=3)
    found["records"] = draw(st.lists(value, min_size=n, max_size=n))
    wanted = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=15))
    return n, found, draw(st.integers(1, n)), wanted, draw(st.integers(1, 5))


def plain(rows):
    if isinstance(rows, Ragged):
        return [plain(row) for row in rows]
    if isinstance(rows, np.ndarray):
        return (
            rows.dtype.newbyteorder("<").str,
            rows.shape,
            rows.astype(rows.dtype.newbyteorder("<")).tobytes(),
        )
    return rows


@settings(max_examples=40, deadline=None)
@given(several_outputs())
def test_rows_of_every_kind_come_back_to_the_bit_whole_or_in_blocks(drawn):
    n, found, cut, wanted, block = drawn
    keys = [hashlib.sha256(bytes([i])).hexdigest() for i in range(n)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        store = FeatureStore(folder, durable=False)
        for start in range(0, n, cut):
            some = range(start, min(start + cut, n))
            store.write(SPEC, [keys[i] for i in some], take(found, some))
        store = FeatureStore(folder)
        asked = [keys[i] for i in wanted]
        whole, lazy = store.read(SPEC, asked), store.open(SPEC, asked)
        expected = take(found, wanted)
        assert {name: plain(rows) for name, rows in whole.items()} == {
            name: plain(rows) for name, rows in expected.items()
        }
        patch.setattr(rows_module, "BLOCK", block)
        for name, rows in lazy.items():
            assert isinstance(rows, StoredRows) == (
                name == "numbers" or (name == "array" and expected[name].ndim == 2)
            )
            if isinstance(rows, StoredRows):
                blocks = list(rows)
                assert max(map(len, blocks)) <= block
                rows = np.concatenate(blocks)
            assert plain(rows) == plain(whole[name])


def test_only_what_is_asked_for_is_read(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS, features(range(6)))
    assert list(store.read(SPEC, KEYS, ["boxes"])) == ["boxes"]
    assert store.read(SPEC, []) == {}


def test_far_apart_rows_of_a_large_shard(tmp_path):
    store = FeatureStore(tmp_path)
    keys = [f"{i:064x}" for i in range(3000)]
    rows = np.random.default_rng(0).standard_normal((3000, 64))
    store.write(SPEC, keys, {"grid": rows})
    wanted = [2999, 0, 1, 1500, 0, 2998]
    assert np.array_equal(store.read(SPEC, [keys[i] for i in wanted])["grid"], rows[wanted])


def test_a_million_keys_are_known_in_a_small_memory(tmp_path):
    n, shards = 1_000_000, 8
    words = np.random.default_rng(0).integers(0, 2**64, (n, 4), np.uint64)
    folder = FeatureStore(tmp_path).folder(SPEC)
    folder.mkdir()
    for part in np.split(words, shards):
        name, data = pack(part, {"score": np.zeros(len(part), np.float32)})
        (folder / name).write_bytes(data)
    store = FeatureStore(tmp_path)
    tracemalloc.start()
    try:
        assert len(store.known(SPEC)) == n
        held, peak = (bytes / 1e6 for bytes in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    assert held < 55
    assert peak < 160


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


def test_without_durability_nothing_is_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    FeatureStore(tmp_path / "a", durable=False).write(SPEC, KEYS[:1], features([0]))
    assert synced == []
    FeatureStore(tmp_path / "b").write(SPEC, KEYS[:1], features([0]))
    assert len(synced) == 2


def test_usage_and_remove(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(SPEC, KEYS[:3], features(range(3)))
    (usage,) = store.usage()
    assert (usage.extractor, usage.rows, usage.shards) == ("toy", 3, 1)
    store.remove(usage)
    assert not len(store.known(SPEC))


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
