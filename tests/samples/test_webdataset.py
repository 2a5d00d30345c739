"""WebDataset shards: read as the webdataset package reads them, by seeking."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError
from genmetrics.samples import unpack
from genmetrics.samples.sources import list_samples, read_samples
from tests.samples.make import attach_pairs, encode, picture
from tests.samples.test_media import write_tar

JPEGS = [encode(picture().rotate(7 * i), "JPEG") for i in range(24)]
PNG = encode(picture(), "PNG")


@contextlib.contextmanager
def files_left_open():
    """The webdataset package leaves files to the garbage collector, which then warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def write_shards(folder, *, per_shard=10, suffix="", samples=None):
    """Write shards with the webdataset package."""
    import webdataset

    pattern = str(folder / f"set-%06d.tar{suffix}")
    with files_left_open():
        with webdataset.ShardWriter(pattern, maxcount=per_shard, verbose=0) as sink:
            for sample in samples or default_samples():
                sink.write(sample)
        del sink
    return folder


def default_samples():
    return [
        {
            "__key__": f"dir/{i:05d}",
            "jpg": data,
            "txt": f"prompt {i} ü\n",
            "json": {"caption": f"caption {i}", "spec": {"tag": str(i)}, "width": 3},
            "cls": i % 3,
            "mask.png": PNG,
        }
        for i, data in enumerate(JPEGS)
    ]


def peer(files):
    """Keys, encoded images and prompts as the webdataset package sees them."""
    import webdataset

    with files_left_open():
        reader = webdataset.WebDataset([str(f) for f in files], shardshuffle=False)
        seen = {row["__key__"]: (row["jpg"], row["txt"].decode()) for row in reader}
        del reader
    return seen


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_shards_hold_what_the_webdataset_package_sees(tmp_path, suffix):
    write_shards(tmp_path, suffix=suffix)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    samples = read_samples(tmp_path)
    seen = peer(files)
    assert [f"dir/{s.id}" for s in samples] == list(seen)  # a folder all share is no part of ids
    for sample, (jpg, prompt) in zip(samples, seen.values(), strict=True):
        assert sample.image.read() == jpg
        assert sample.prompt == prompt
    assert [s.spec["tag"] for s in samples] == [str(i) for i in range(24)]
    assert read_samples(tmp_path / f"set-{{000000..000002}}.tar{suffix}") == samples


def test_a_run_of_samples_lies_in_few_shards(tmp_path):
    """So that a rank that takes a part of the samples in their order reads a part of the shards."""
    samples = read_samples(write_shards(tmp_path, per_shard=3))
    for rank in range(4):
        part = samples[6 * rank : 6 * rank + 6]
        assert len({sample.image.archive for sample in part}) == 2


def test_one_shard_is_read_as_many_are(tmp_path):
    write_shards(tmp_path, per_shard=100)
    (path,) = tmp_path.iterdir()
    assert read_samples(path) == read_samples(tmp_path)
    assert read_samples(path)[3].prompt == "prompt 3 ü\n"


def test_a_picture_has_one_digest_in_a_folder_and_in_a_shard(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for i, data in enumerate(JPEGS):
        (folder / f"{i:05d}.jpg").write_bytes(data)
    (tmp_path / "shards").mkdir()
    shards = read_samples(write_shards(tmp_path / "shards"))
    files = read_samples(folder)
    assert [s.image.digest() for s in shards] == [s.image.digest() for s in files]
    paired, missing = attach_pairs(files, tmp_path / "shards" / "set-*.tar")
    assert missing == []
    assert all(s.reference.digest() == s.image.digest() for s in paired)


def tar(path, **files):
    """Names with _ for the dots."""
    data = {name.replace("_", "."): value for name, value in files.items()}
    return write_tar(path, "w", data)


def test_prompts_come_from_text_or_json(tmp_path):
    tar(
        tmp_path / "a.tar",
        a_png=PNG,
        a_json=b'{"caption": "c", "prompt": "p"}',
        b_png=PNG,
        b_json=b'{"text": "t", "spec": [1]}',
        c_PNG=PNG,
        c_txt=b"",
        d_png=PNG,
        d_json=b'["x"]',
        e_png=PNG,
        e_json=b'{"caption": ["many"], "text": "one"}',
    )
    samples = read_samples(tmp_path / "a*.tar")
    assert [s.prompt for s in samples] == ["p", "t", "", None, "one"]
    assert [s.spec for s in samples] == [None] * 5
    chosen = read_samples(f"{tmp_path / 'a.tar'}:prompt=caption")
    assert [s.prompt for s in chosen] == ["c", None, None, None, None]


def test_keys_that_two_shards_share_get_the_name_of_the_shard(tmp_path):
    for name in ("a", "b"):
        tar(tmp_path / f"{name}.tar", **{"0_png": PNG, f"{name}1_png": PNG})
    assert [s.id for s in read_samples(tmp_path)] == ["a1", "a/0", "b1", "b/0"]
    for name in ("run-1", "run-2"):
        (tmp_path / name).mkdir()
        tar(tmp_path / name / "s.tar", **{"0_png": PNG})
    found = [s.id for s in read_samples(tmp_path / "run-*" / "s.tar")]
    assert found == [f"{tmp_path}/run-1/s/0", f"{tmp_path}/run-2/s/0"]


def test_several_images_of_a_key_are_chosen_from_and_not_guessed(tmp_path):
    path = tar(
        tmp_path / "a.tar",
        **{"0_in_png": PNG, "0_out_png": JPEGS[0], "0_txt": b"x", "1_in_png": PNG},
        **{"1_out_png": JPEGS[1]},
    )
    with pytest.raises(InputError, match=r"key '0' has 2 images \(in\.png, out\.png\).*:image="):
        read_samples(path)
    samples = read_samples(f"{path}:image=out.png")
    assert [(s.id, s.image.read()) for s in samples] == [("0", JPEGS[0]), ("1", JPEGS[1])]
    paired, _ = attach_pairs(samples, f"{path}:image=in.png")
    assert [s.reference.member for s in paired] == ["0.in.png", "1.in.png"]
    with pytest.raises(InputError, match=r"2 keys have no 'gt\.png': '0', '1'"):
        read_samples(f"{path}:image=gt.png")


def test_a_text_without_image_does_not_shrink_the_set(tmp_path):
    path = tar(tmp_path / "a.tar", a_png=PNG, a_txt=b"x", b_txt=b"y", c_cls=b"1")
    with pytest.raises(InputError, match=r"a\.tar: 1 keys have no image: 'b'.*--allow-missing"):
        read_samples(path)
    assert [s.id for s in read_samples(path, allow_missing=True)] == ["a"]


def test_archives_without_texts_are_read_as_before(tmp_path):
    path = tar(tmp_path / "a.tar", **{"r_1_5_png": PNG, "r_1_7_png": PNG, "labels_txt": b"\xff"})
    assert [s.id for s in read_samples(path)] == ["r.1.5", "r.1.7"]


def test_nothing_is_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.abort, ())

    bomb = pickle.dumps(Bomb())
    path = tar(tmp_path / "a.tar", a_png=PNG, a_pyd=bomb, a_pickle=bomb, a_pth=bomb, a_npy=bomb)
    (sample,) = read_samples(path)
    assert sample.image.read() == PNG


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a_txt", b"caf\xe9", r"s\.tar!a\.txt is not UTF-8 at byte 3"),
        ("a_json", b"{", r"s\.tar!a\.json is not JSON"),
        ("a_json", b'{"text": "a", "text": "b"}', r"a\.json has the column 'text' more than once"),
        ("a_json", b"[" * 100_000, r"s\.tar!a\.json is not JSON"),
        ("a_json", b"\xff", r"s\.tar!a\.json is not UTF-8"),
        ("a_txt", b"x" * ((8 << 20) + 1), r"s\.tar!a\.txt has 8388609 bytes"),
        ("a_PNG", PNG, r"'a\.png' and 'a\.PNG' are one field"),
    ],
)
def test_members_that_cannot_be_read_are_named_with_their_shard(tmp_path, name, data, reason):
    tar(tmp_path / "s.tar", **{"a_png": PNG, name: data})
    with pytest.raises(InputError, match=reason) as caught:
        read_samples(tmp_path / "s*.tar")
    assert "\n" not in str(caught.value)


def test_a_broken_image_is_named_with_its_shard(tmp_path):
    tar(tmp_path / "s.tar", a_png=PNG[:50], a_txt=b"x")
    (sample,) = read_samples(tmp_path)
    with pytest.raises(InputError, match=r"s\.tar!a\.png cannot be decoded"):
        sample.image.load()


def test_pictures_of_unread_formats_and_without_suffix_do_not_vanish_from_shards(tmp_path):
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    tar(tmp_path / "s.tar", a_png=PNG, a_heic=heic, b_heic=heic, b_txt=b"b", c_data=PNG, c_txt=b"c")
    tar(tmp_path / "t.tar", d=PNG, e_cls=b"1", README=b"text", f_mp4=b"1", g_txt=b"g")
    found = list_samples(tmp_path, allow_missing=True)
    samples = found.samples
    assert [(s.id, s.prompt) for s in samples] == [("a", None), ("b", "b"), ("c", "c"), ("d", None)]
    assert [s.image.member for s in samples] == ["a.png", "b.heic", "c.data", "d"]
    assert found.missing == ["g"]
    assert found.ignored == {".cls": 1, ".mp4": 1, "without suffix": 1}


def test_shards_without_images_and_cut_shards_say_so(tmp_path):
    tar(tmp_path / "a.tar", a_cls=b"1")
    with pytest.raises(InputError, match=r"holds no images: 1 file seen"):
        read_samples(tmp_path)
    path = tar(tmp_path / "a.tar", a_png=PNG, a_txt=b"x", b_png=PNG, b_txt=b"y")
    whole = path.read_bytes()
    for length in (0, 100, 700, 1536, 3000):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"a\.tar is not a readable archive.*again"):
            read_samples(tmp_path / "*.tar")


def test_only_a_few_compressed_shards_are_unpacked_at_once(tmp_path):
    for i in range(20):
        write_tar(tmp_path / f"{i:02d}.tar.gz", "w:gz", {f"{i}.jpg": JPEGS[i], f"{i}.txt": b"x"})
    samples = read_samples(tmp_path)
    assert [s.image.read() for s in samples] == JPEGS[:20]
    assert len(unpack._FILES) <= 8
    assert [s.image.read() for s in samples[::-1]] == JPEGS[:20][::-1]


_COUNT = """
import sys
from genmetrics.samples.sources import read_samples
import genmetrics.samples.webdataset
try:
    import pyarrow, pyarrow.parquet
    from genmetrics.samples import arrow, parquet, columns
    pyarrow.parquet.ParquetFile
except ImportError:
    pass
def read():
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])
read(); before = read(); cost = read() - before
before = read()
samples = read_samples(sys.argv[1])
print(len(samples), read() - before - cost)
"""


def bytes_read_to_list(path) -> tuple[int, int]:
    """How many samples were listed, and what the process read for it, as the kernel counts."""
    done = subprocess.run(
        [sys.executable, "-c", _COUNT, str(path)], capture_output=True, text=True, check=True
    )
    count, read = done.stdout.split()
    return int(count), int(read)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs the kernel's counters")
def test_listing_reads_headers_and_texts_but_no_image(tmp_path):
    image = np.random.default_rng(0).bytes(60_000)
    for i in range(4):
        files = {}
        for j in range(50):
            files[f"{i}{j:03d}.jpg"] = image
            files[f"{i}{j:03d}.txt"] = b"a photo of a cat"
            files[f"{i}{j:03d}.json"] = json.dumps({"prompt": "x", "width": 512}).encode()
        write_tar(tmp_path / f"{i}.tar", "w", files)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    count, read = bytes_read_to_list(tmp_path)
    assert count == 200
    assert read < 0.05 * size


@settings(max_examples=120, deadline=None)
@given(
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.floats(0.5, 1.5),
    packed=st.booleans(),
)
def test_flipped_bytes_of_shards_never_raise_anything_else(flips, cut, packed):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz" if packed else "w") as archive:
        for i in range(3):
            for suffix, data in (("png", PNG), ("txt", b"x"), ("json", b'{"prompt": "a"}')):
                info = tarfile.TarInfo(f"{i}.{suffix}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    data = bytearray(buffer.getvalue())
    for where, value in flips:
        data[min(int(where * len(data)), len(data) - 1)] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("s.tar.gz" if packed else "s.tar")
        path.write_bytes(data[: int(cut * len(data))])
        try:
            for sample in read_samples(Path(folder) / "s*", allow_missing=True):
                sample.image.load()
        except InputError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)


def test_a_member_that_comes_twice_is_noted_with_its_shard(tmp_path):
    shard = write_tar(tmp_path / "s.tar", "w", {"a.png": PNG, "a.txt": b"one", "b.png": PNG})
    write_tar(shard, "a", {"a.txt": b"two"})
    write_tar(tmp_path / "t.tar", "w", {"c.png": PNG, "c.txt": b"three"})
    found = list_samples(tmp_path)
    assert [sample.prompt for sample in found.samples] == ["two", None, "three"]
    assert found.notes("set") == (
        f"set: 1 name comes more than once ('{shard}!a.txt'); the last one counts",
    )
