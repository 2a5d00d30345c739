"""Parquet and Arrow: what the datasets library writes, read by pyarrow alone."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, MissingExtraError, UsageError
from genmetrics.samples import parquet
from genmetrics.samples.check import check_media
from genmetrics.samples.sources import read_samples
from tests.samples.make import attach_pairs, encode, picture
from tests.samples.test_webdataset import bytes_read_to_list

JPEGS = [encode(picture().rotate(7 * i), "JPEG") for i in range(24)]
PROMPTS = [f"prompt {i} ü" for i in range(24)]


def dataset(**more):
    import datasets

    datasets.disable_progress_bars()
    rows = {"image": [{"bytes": data, "path": None} for data in JPEGS], "caption": PROMPTS, **more}
    features = datasets.Features(
        {name: datasets.Value("string") for name in rows} | {"image": datasets.Image()}
    )
    return datasets.Dataset.from_dict(rows, features=features)


def write(path, rows=None, **options):
    """A Parquet file as any other tool writes it: no metadata of the datasets library."""
    table = rows if isinstance(rows, pa.Table) else pa.table(rows or {"image": JPEGS, "n": PROMPTS})
    pq.write_table(table, path, **options)
    return path


def check(samples, prompts=PROMPTS):
    assert [s.image.read() for s in samples] == JPEGS
    assert [s.prompt for s in samples] == list(prompts)
    assert [s.id for s in samples] == [f"{i:02d}" for i in range(24)]


# -- what the datasets library writes --------------------------------------------------------------


def test_a_column_twice_is_refused_by_name(tmp_path):
    """Whichever was meant, also one that is not read."""
    for name in ("image", "note"):
        columns = {"image": [encode(picture(), "PNG")], "prompt": ["a"], "note": ["b"]}
        table = pa.table([*columns.values(), columns[name]], names=[*columns, name])
        pq.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(InputError, match=rf"a\.parquet has the column '{name}' more than once"):
            read_samples(tmp_path / "a.parquet")


def test_a_saved_data_set_is_read_as_the_datasets_library_reads_it(tmp_path):
    import datasets

    dataset().save_to_disk(tmp_path / "saved", num_shards=3)
    samples = read_samples(tmp_path / "saved")
    check(samples)
    rows = datasets.load_from_disk(str(tmp_path / "saved"))
    for sample, row in zip(samples, rows, strict=True):
        np.testing.assert_array_equal(sample.image.load().pixels, np.asarray(row["image"]))
        assert sample.prompt == row["caption"]
    assert samples[9].path == f"{tmp_path}/saved/data-00001-of-00003.arrow!image[1]"
    assert read_samples(tmp_path / "saved" / "data-*.arrow") == samples


def test_rows_selected_and_shuffled_before_saving_keep_their_new_order(tmp_path):
    shuffled = dataset().shuffle(seed=3).select(range(7))
    shuffled.save_to_disk(tmp_path / "saved")
    samples = read_samples(tmp_path / "saved")
    assert [s.prompt for s in samples] == list(shuffled["caption"])
    assert [s.image.read() for s in samples] == [
        JPEGS[PROMPTS.index(prompt)] for prompt in shuffled["caption"]
    ]


def test_of_several_splits_one_must_be_named(tmp_path):
    import datasets

    datasets.DatasetDict(train=dataset(), test=dataset()).save_to_disk(tmp_path / "saved")
    with pytest.raises(
        InputError, match=r"several splits; pass one of .*saved/train, .*saved/test"
    ):
        read_samples(tmp_path / "saved")
    check(read_samples(tmp_path / "saved" / "test"))


def test_parquet_of_the_datasets_library_is_read(tmp_path):
    for i in range(2):
        part = dataset().select(range(12 * i, 12 * i + 12))
        part.to_parquet(tmp_path / f"train-{i:05d}-of-00002.parquet", batch_size=5)
    expected = read_samples(tmp_path)
    check(expected)
    assert read_samples(tmp_path / "train-*.parquet") == expected
    assert read_samples(tmp_path / "train-{00000..00001}-of-00002.parquet") == expected
    assert read_samples(tmp_path / "train-00001-of-00002.parquet")[0].id == "00"
    assert expected[14].path == f"{tmp_path}/train-00001-of-00002.parquet!image[2]"
    assert expected[14].image.group == 0 or expected[14].image.index < 5


def test_images_behind_a_path_are_named_and_fail_one_by_one(tmp_path):
    table = pa.table(
        {
            "image": pa.array(
                [{"bytes": JPEGS[0], "path": "0.jpg"}, {"bytes": None, "path": "1.jpg"}, None],
                pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
            )
        }
    )
    write(tmp_path / "a.parquet", table)
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as writer,
    ):
        writer.write_table(table)
    for path in (tmp_path / "a.parquet", tmp_path / "a.arrow"):
        samples = read_samples(path)
        reasons = check_media(samples)
        assert list(reasons) == ["1", "2"]
        assert reasons["1"].startswith(f"{path}!image[1] holds no image, or only a path")
        assert samples[0].image.read() == JPEGS[0]


# -- the same picture everywhere -------------------------------------------------------------------


def write_everywhere(folder):
    """One set as files, as Parquet, and in both formats of Arrow."""
    (folder / "files").mkdir()
    for i, data in enumerate(JPEGS):
        (folder / "files" / f"{i:02d}.jpg").write_bytes(data)
    table = pa.table({"image": JPEGS, "file_name": [f"x/{i:02d}.jpg" for i in range(24)]})
    write(folder / "a.parquet", table, row_group_size=7)
    write(
        folder / "large.parquet",
        table.cast(pa.schema([("image", pa.large_binary()), ("file_name", pa.large_string())])),
    )
    for name, new in (("stream", pa.ipc.new_stream), ("file", pa.ipc.new_file)):
        path = folder / f"{name}.arrow"
        with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    return [folder / name for name in ("a.parquet", "large.parquet", "stream.arrow", "file.arrow")]


def test_a_picture_has_one_digest_wherever_it_lies(tmp_path):
    paths = write_everywhere(tmp_path)
    expected = [s.image.digest() for s in read_samples(tmp_path / "files")]
    for path in paths:
        samples = read_samples(path)
        assert [s.image.digest() for s in samples] == expected
        assert [s.id for s in samples] == [f"x/{i:02d}" for i in range(24)]
        paired, missing = attach_pairs(samples, path)
        assert missing == []
        assert paired[3].reference == paired[3].image


def test_handles_are_pickled_with_the_digest_they_know(tmp_path):
    for path in write_everywhere(tmp_path):
        samples = read_samples(path)
        digests = [s.image.digest() for s in samples]
        copies = pickle.loads(pickle.dumps(samples))
        assert copies == samples
        assert copies[5].image.read() == JPEGS[5]
        path.unlink()
        assert [s.image.digest() for s in copies] == digests  # kept, not computed again


def test_a_file_that_changed_is_seen(tmp_path):
    path = write(tmp_path / "a.parquet")
    sample = read_samples(path)[3]
    sample.image.digest()
    write(path, {"image": JPEGS[::-1], "n": PROMPTS})
    path.touch()
    with pytest.raises(InputError, match="changed while the run was under way"):
        sample.image.load()


# -- which columns count ---------------------------------------------------------------------------


def test_columns_are_found_by_type_and_name_or_chosen(tmp_path):
    rows = {"jpg": JPEGS, "source": JPEGS[::-1], "text": PROMPTS, "key": range(24), "note": PROMPTS}
    path = write(tmp_path / "a.parquet", rows)
    samples = read_samples(path)
    assert [s.id for s in samples] == [str(i) for i in range(24)]
    assert samples[1].prompt == PROMPTS[1]
    assert samples[1].image.column == "jpg"
    chosen = read_samples(f"{path}:image=source,prompt=note,id=text")
    assert [s.id for s in chosen] == sorted(PROMPTS, key=lambda p: int(p.split()[1]))
    assert chosen[0].image.read() == JPEGS[-1]
    assert read_samples(f"{path}:id=")[5].id == "05"
    paired, _ = attach_pairs(samples, f"{path}:image=source")
    assert paired[0].reference.read() == JPEGS[-1]


def test_a_spec_is_a_json_object(tmp_path):
    specs = [json.dumps({"tag": i}) for i in range(24)]
    samples = read_samples(write(tmp_path / "a.parquet", {"image": JPEGS, "spec": specs}))
    assert samples[7].spec == {"tag": 7}
    write(tmp_path / "a.parquet", {"image": JPEGS, "spec": [*specs[:-1], "{"]})
    with pytest.raises(InputError, match=r"a\.parquet row 23: 'spec' is not JSON"):
        read_samples(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("rows", "choice", "error", "reason"),
    [
        (
            {"a": [b"x"], "b": [b"y"]},
            "",
            UsageError,
            r"2 columns of images; .*'a: binary'.*:image=",
        ),
        ({"a": ["x"], "b": [1]}, "", UsageError, r"no column of images; .*'a: string', 'b: int64'"),
        ({"a": [b"x"]}, ":image=c", UsageError, "no column 'c' for image"),
        ({"a": ["x"]}, ":image=a", InputError, "'a' holds string; expected encoded images"),
        ({"a": [b"x"], "p": [1.5]}, ":prompt=p", InputError, "'p' holds double; expected text"),
        ({"a": [b"x"], "id": [1.5]}, "", InputError, "'id' holds double; .*':id=' for row numbers"),
        ({"a": [b"x", b"y"], "id": ["0", "0"]}, "", InputError, r"row 1 gives 'id' '0' again"),
        ({"a": [b"x", b"y"], "id": ["0", None]}, "", InputError, r"row 1 has no 'id'"),
        ({"a": pa.array([], pa.binary())}, "", InputError, "holds no rows"),
    ],
)
def test_columns_that_do_not_fit_are_named(tmp_path, rows, choice, error, reason):
    path = write(tmp_path / "a.parquet", rows)
    with pytest.raises(error, match=reason) as caught:
        read_samples(f"{path}{choice}")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_of_unlike_columns_are_refused(tmp_path):
    write(tmp_path / "a.parquet", {"image": [JPEGS[0]], "id": ["a"]})
    write(tmp_path / "b.parquet", {"image": [JPEGS[1]]})
    with pytest.raises(InputError, match=r"b\.parquet has no column 'id'"):
        read_samples(tmp_path)
    write(tmp_path / "b.parquet", {"image": [JPEGS[1]], "id": ["a"]})
    with pytest.raises(InputError, match=r"b\.parquet row 0 gives 'id' 'a' again \(first: .*row 0"):
        read_samples(tmp_path)


def test_without_pyarrow_the_line_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r'pip install "genmetrics\[datasets\]"'):
        read_samples(path)


# -- reading rows ----------------------------------------------------------------------------------


def rows_of(path, monkeypatch, block, kept):
    monkeypatch.setattr(parquet, "_BLOCK", block)
    monkeypatch.setattr(parquet, "_KEPT", kept)
    monkeypatch.setattr(parquet, "_KEPT_ROWS", 2)
    parquet._OPEN.clear()
    return read_samples(path)


@pytest.mark.parametrize(("block", "kept"), [(1, 1), (3000, 4000), (1 << 20, 1 << 20)])
def test_rows_are_right_in_any_order_and_from_many_threads(tmp_path, monkeypatch, block, kept):
    path = write(tmp_path / "a.parquet", row_group_size=10)
    samples = rows_of(path, monkeypatch, block, kept)
    order = np.random.default_rng(0).permutation(24).tolist() * 3
    assert [samples[i].image.read() for i in order] == [JPEGS[i] for i in order]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda i: samples[i].image.read(), order)) == [JPEGS[i] for i in order]


def test_rows_in_order_are_decoded_once(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", row_group_size=12)
    samples = rows_of(path, monkeypatch, 3000, 6000)
    blocks = []
    keep = parquet._Reader._keep
    monkeypatch.setattr(parquet._Reader, "_keep", lambda s, b: (blocks.append(b), keep(s, b)))
    assert check_media(samples, workers=1) == {}
    assert sorted((b.group, b.first) for b in blocks) == sorted(
        {(b.group, b.first) for b in blocks}
    )
    assert sum(len(b.values) for b in blocks) == 24


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs the kernel's counters")
def test_listing_reads_footers_and_texts_but_no_image(tmp_path):
    image = np.random.default_rng(0)
    rows = {"image": [image.bytes(60_000) for _ in range(200)], "text": ["a photo of a cat"] * 200}
    write(tmp_path / "a.parquet", rows, row_group_size=50)
    table = pa.table(rows)
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=50)
    for name in ("a.parquet", "a.arrow"):
        count, read = bytes_read_to_list(tmp_path / name)
        assert count == 200
        assert read < 0.05 * (tmp_path / name).stat().st_size


_PEAK = """
import sys
import pyarrow
from genmetrics.samples.sources import read_samples
for sample in read_samples(sys.argv[1]):
    sample.image.read()
print(pyarrow.default_memory_pool().max_memory())
"""


def test_memory_does_not_grow_with_the_row_group(tmp_path):
    data = np.random.default_rng(0).bytes(1 << 20)
    rows = {"image": [data[i:] + data[:i] for i in range(128)]}
    path = write(
        tmp_path / "a.parquet", rows, use_dictionary=False, compression="none", write_batch_size=4
    )
    assert pq.ParquetFile(path).num_row_groups == 1
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 60 << 20  # of 128 MiB


# -- damaged files ---------------------------------------------------------------------------------


@cache
def sound(kind):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        table = pa.table(
            {"image": JPEGS[:6], "id": [f"{i}" for i in range(6)], "text": PROMPTS[:6]}
        )
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=4)
        else:
            new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
            with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=4)
        return path.read_bytes()


def attempt(data, suffix):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{suffix}"
        path.write_bytes(data)
        try:
            for sample in read_samples(path):
                sample.image.load()
        except InputError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)
            return False
        return True


@pytest.mark.parametrize("kind", ["parquet", "stream", "file"])
def test_cut_files_are_never_a_smaller_set(kind):
    data = sound(kind)
    suffix = "parquet" if kind == "parquet" else "arrow"
    assert attempt(data, suffix)
    for length in (0, 3, 8, 100, *range(200, len(data) - 1, 397), len(data) - 9, len(data) - 1):
        assert not attempt(data[:length], suffix)
    assert not attempt(b"junk" * 40, suffix)


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(["parquet", "stream", "file"]),
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
    end=st.booleans(),
)
def test_flipped_bytes_of_tables_never_raise_anything_else(kind, flips, end):
    data = bytearray(sound(kind))
    span = 1500 if end else len(data)  # footers, and headers of batches, are small
    for where, value in flips:
        data[len(data) - span + min(int(where * span), span - 1)] = value
    attempt(bytes(data), "parquet" if kind == "parquet" else "arrow")


def test_compressed_arrow_is_refused_with_the_fix(tmp_path):
    table = pa.table({"image": JPEGS})
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    path = tmp_path / "a.arrow"
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, table.schema, options=options) as writer,
    ):
        writer.write_table(table)
    with pytest.raises(InputError, match="compressed, so its images cannot be read one by one"):
        read_samples(path)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("state.json", "{", "not what Dataset.save_to_disk writes"),
        ("state.json", '{"_data_files": 3}', "'_data_files' is 3"),
        ("state.json", '{"_data_files": []}', "without rows"),
        (
            "state.json",
            '{"_data_files": [{"filename": "x"}]}',
            "names the file 'x', which is missing",
        ),
        (
            "state.json",
            '{"_indices_data_files": [1], "_data_files": []}',
            "selects rows by an index",
        ),
        ("dataset_dict.json", "[]", "not what Dataset.save_to_disk writes"),
    ],
)
def test_damaged_folders_say_what_is_wrong(tmp_path, name, text, reason):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        read_samples(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_an_image_that_is_none_is_named_by_its_row(tmp_path):
    path = write(tmp_path / "a.parquet", {"image": [JPEGS[0], b"no image"]})
    assert check_media(read_samples(path)) == {
        "1": f"{path}!image[1] is not an image: it starts with b'no image'; readable formats are"
        " JPEG, PNG, WEBP, GIF, BMP, TIFF, PPM, JPEG2000, AVIF"
    }


def test_a_file_that_vanished_is_named(tmp_path):
    path = write(tmp_path / "a.parquet")
    sample = read_samples(path)[2]
    path.unlink()
    with pytest.raises(InputError, match=r"a\.parquet!image\[2\] cannot be read: No such file"):
        sample.image.read()
