"""What counts as a sample, in which order, under which id."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, UsageError
from genmetrics.samples.geneval import prompts_without_images
from genmetrics.samples.listing import SUFFIXES, unique_ids, without_suffix
from genmetrics.samples.sources import LAYOUTS, read_samples
from tests.samples.make import sound

PNG = sound()["png-RGB"]


def fill(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PNG)
    return folder


def ids(path, **options):
    return [sample.id for sample in read_samples(path, **options)]


# -- upper-case suffixes were missed, or counted twice ---------------------------------------------


def test_suffixes_in_any_case_count_once_and_other_files_do_not(tmp_path):
    fill(tmp_path, "a.PNG", "b.png", "c.JPEG", "d.jpg", "e.WebP", ".DS_Store", "Thumbs.db")
    fill(tmp_path, "notes.txt", ".hidden.png", "png", "f.png.txt")
    assert ids(tmp_path) == ["a", "b", "c", "d", "e"]


def test_order_is_natural(tmp_path):
    fill(tmp_path, *(f"r_{i}.png" for i in range(12)))
    assert ids(tmp_path) == [f"r_{i}" for i in range(12)]
    assert ids(tmp_path, limit=3) == ["r_0", "r_1", "r_2"]
    assert ids(tmp_path, limit=99) == [f"r_{i}" for i in range(12)]


def test_a_file_behind_several_links_counts_once_under_its_own_name(tmp_path):
    fill(tmp_path, "z.png")
    (tmp_path / "a.png").symlink_to(tmp_path / "z.png")
    (tmp_path / "m.png").symlink_to("a.png")
    assert ids(tmp_path) == ["z"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.png").symlink_to(tmp_path / "z.png")
    (other / "a.png").symlink_to(tmp_path / "z.png")
    assert ids(other) == ["a"]


def test_broken_entries_are_listed_so_that_they_fail_by_name(tmp_path):
    fill(tmp_path, "a.png")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "link.png").symlink_to("nowhere.png")
    (tmp_path / "folder.png").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")
    assert ids(tmp_path) == ["a", "empty", "link"] + ["pipe"] * hasattr(os, "mkfifo")


def test_subfolders_count_when_asked(tmp_path):
    fill(tmp_path, "b.png", "x/10.png", "x/2.png", "x/y/1.png", ".cache/1.png")
    assert ids(tmp_path) == ["b"]
    assert ids(tmp_path, recursive=True) == ["b", "x/2", "x/10", "x/y/1"]
    (tmp_path / "x" / "loop").symlink_to(tmp_path)
    assert ids(tmp_path, recursive=True) == ["b", "x/2", "x/10", "x/y/1"]
    fill(tmp_path.parent / "elsewhere", "e.png")
    (tmp_path / "link").symlink_to(tmp_path.parent / "elsewhere")
    assert "link/e" in ids(tmp_path, recursive=True)


def test_files_that_would_share_an_id_keep_their_suffix(tmp_path):
    fill(tmp_path, "a.png", "a.jpg", "b.png", "r_1.5.png", "r_1.5b.png")
    assert ids(tmp_path) == ["a.jpg", "a.png", "b", "r_1.5", "r_1.5b"]


@settings(max_examples=100, deadline=None)
@given(
    st.sets(
        st.builds(
            lambda stem, suffixes: stem + "".join(suffixes),
            st.sampled_from(["a", "b", "r.5", "x/a"]),
            st.lists(st.sampled_from([".png", ".PNG", ".jpg"]), min_size=1, max_size=3),
        )
    )
)
def test_ids_are_unique_whatever_the_names(names):
    listed = sorted(names)
    found = unique_ids(listed)
    assert len(set(found)) == len(listed)
    assert all(i in (name, without_suffix(name)) for i, name in zip(found, listed, strict=True))


# -- an empty folder led to a complaint about range() ----------------------------------------------


def test_nothing_to_read_is_one_clear_line(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    texts = fill(tmp_path / "texts", "a.txt", "b.md", ".DS_Store")
    nested = fill(tmp_path / "nested", "sub/a.png", "notes.txt")
    hollow = tmp_path / "hollow"
    (hollow / "sub").mkdir(parents=True)
    cases = {
        empty: "0 files seen",
        texts: "3 files seen",
        nested: "1 file seen",
        hollow: "0 files seen",
        texts / "a.txt": "1 file seen",
        nested / "sub" / "a.png": "it is a single file, pass a folder",
        tmp_path / "none": "does not exist",
    }
    for path, reason in cases.items():
        with pytest.raises(InputError, match=reason) as caught:
            read_samples(path)
        message = str(caught.value)
        assert message.startswith(str(path))
        assert "\n" not in message
        assert ("--recursive" in message) == (path == nested)
        if path.exists():
            assert all(suffix in message for suffix in SUFFIXES)
    assert ids(nested, recursive=True) == ["sub/a"]
    with pytest.raises(InputError, match="holds no images"):
        read_samples(empty, recursive=True)


def test_bad_options_are_usage_errors(tmp_path):
    fill(tmp_path, "a.png")
    with pytest.raises(UsageError, match=r"'foldr'.*did you mean 'folder'"):
        read_samples(tmp_path, layout="foldr")
    for layout in ("vbench", "compbench"):
        with pytest.raises(UsageError, match=f"'{layout}' is not available yet; there is folder"):
            read_samples(tmp_path, layout=layout)
    for limit in (0, -1):
        with pytest.raises(UsageError, match=f"limit is {limit}"):
            read_samples(tmp_path, limit=limit)
    with pytest.raises(InputError, match="layout manifest expects"):
        read_samples(tmp_path, layout="manifest")
    with pytest.raises(InputError, match="not laid out as GenEval"):
        read_samples(tmp_path, layout="geneval")
    assert set(LAYOUTS) == {"folder", "manifest", "geneval"}


@pytest.mark.skipif(os.name != "posix", reason="file names are text elsewhere")
def test_a_name_that_is_no_text_is_refused(tmp_path):
    try:
        (tmp_path / "caf\udce9.png").write_bytes(PNG)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    with pytest.raises(InputError, match="not UTF-8; rename it"):
        read_samples(tmp_path)


def test_names_in_any_script_are_ids(tmp_path):
    fill(tmp_path, "café.png", "猫.png", "two words & more.png")
    assert set(ids(tmp_path)) == {"café", "猫", "two words & more"}


# -- manifests: prompts as file names collide by case and exceed 255 bytes -------------------------

LONG = "a cat " * 67
PROMPTS = ["A fantasy landscape", "a fantasy landscape", LONG, "left/right\nof a tree", ""]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def write_csv(path, rows):
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("writer", [write_jsonl, write_csv])
def test_a_manifest_keeps_every_prompt_apart(tmp_path, writer):
    fill(tmp_path, *(f"img/{i}.png" for i in range(5)))
    rows = [{"file": f"img/{i}.png", "prompt": prompt} for i, prompt in enumerate(PROMPTS)]
    suffix = ".jsonl" if writer is write_jsonl else ".csv"
    samples = read_samples(writer(tmp_path / f"m{suffix}", rows))
    assert [s.prompt for s in samples] == PROMPTS
    assert [s.id for s in samples] == [f"img/{i}" for i in range(5)]
    assert samples[4].image.load().pixels.shape[2] == 3


@pytest.mark.parametrize("writer", [write_jsonl, write_csv])
def test_a_manifest_names_everything_that_belongs_to_a_sample(tmp_path, writer):
    fill(tmp_path, "a.png", "ref/a.png", "mask/a.png")
    spec = {"tag": "counting", "include": [{"class": "cat", "count": 2}]}
    row = {
        "id": "x",
        "file": "a.png",
        "prompt": "two cats",
        "reference": "ref/a.png",
        "mask": "mask/a.png",
        "spec": spec if writer is write_jsonl else json.dumps(spec),
        "note": "ignored",
    }
    suffix = ".jsonl" if writer is write_jsonl else ".csv"
    (sample,) = read_samples(writer(tmp_path / f"m{suffix}", [row]))
    assert sample.id == "x"
    assert sample.spec == spec
    assert sample.reference.name == str(tmp_path / "ref" / "a.png")
    assert sample.mask.size() == sample.image.size()
    empty = {key: "" for key in row} | {"file": "a.png"}
    (sample,) = read_samples(writer(tmp_path / f"n{suffix}", [empty]))
    assert (sample.id, sample.reference, sample.mask, sample.spec) == ("a", None, None, None)


def test_a_manifest_by_id_finds_the_file_beside_it(tmp_path):
    fill(tmp_path, "a.PNG", "b.jpg", "sub/a.webp", "c.png", "c.jpg")
    path = tmp_path / "m.jsonl"
    write_jsonl(path, [{"id": "sub/a"}, {"id": "a"}, {"id": "b.jpg"}])
    samples = read_samples(path)
    assert [(s.id, s.path) for s in samples] == [
        ("a", str(tmp_path / "a.PNG")),
        ("b.jpg", str(tmp_path / "b.jpg")),
        ("sub/a", str(tmp_path / "sub" / "a.webp")),
    ]
    with pytest.raises(InputError, match=r"line 1: id 'c' .*'c\.jpg', 'c\.png' all fit"):
        read_samples(write_jsonl(path, [{"id": "c"}]))
    with pytest.raises(InputError, match="no image of that name; add 'file'"):
        read_samples(write_jsonl(path, [{"id": "none/d"}]))
    write_jsonl(path, [{"id": 7, "file": "a.PNG"}, {"id": 10, "file": "a.PNG"}])
    assert ids(path) == ["7", "10"]  # one file may stand for two samples if the manifest says so


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no rows"),
        ("\n\n", "has no rows"),
        ('{"file": "a.png"', "line 1 is not JSON"),
        ('\n{"file": "a.png"}\nxyz', "line 3 is not JSON"),
        ("[1]", "line 1 holds a list"),
        ('{"prompt": "x"}', r"line 1 has no 'file' and no 'id' \(columns: prompt\)"),
        ('{"file": "a.png", "spec": {"x": NaN}}', "NaN is no JSON value"),
        ('{"file": "a.png", "spec": 3}', "expected a JSON object"),
        ('{"file": "a.png", "spec": "{"}', "'spec' is not JSON"),
        ('{"file": ["a.png"]}', "expected text"),
        ('{"file": "a.png", "prompt": 1.5}', "'prompt' is 1.5; expected text"),
        ('{"file": "a.png"}\n{"file": "a.png", "id": "a"}', r"line 2 gives id 'a' again"),
    ],
)
def test_broken_jsonl_is_refused_by_line(tmp_path, text, reason):
    path = tmp_path / "m.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        read_samples(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "has no rows"),
        (b"file,prompt\n", "has no rows"),
        (b"file,prompt\na.png,a cat, sitting\n", "line 2 has more or fewer cells"),
        (b"file,prompt\na.png\n", "line 2 has more or fewer cells"),
        (b'file,prompt\na.png,"open\n', "is not csv"),
        (b"file,prompt\na.png,caf\xe9\n", "not UTF-8 at byte 21"),
        (b"picture,prompt\na.png,x\n", "no 'file' and no 'id'"),
    ],
)
def test_broken_csv_is_refused_by_line(tmp_path, text, reason):
    path = tmp_path / "m.csv"
    path.write_bytes(text)
    with pytest.raises(InputError, match=reason):
        read_samples(path)


def test_spreadsheets_may_write_a_byte_order_mark_and_spaces(tmp_path):
    fill(tmp_path, "a.png")
    path = tmp_path / "m.CSV"
    path.write_bytes('﻿file, prompt\r\na.png,"a ""cat"", sitting"\r\n'.encode())
    assert read_samples(path)[0].prompt == 'a "cat", sitting'


# -- GenEval's layout ------------------------------------------------------------------------------


def geneval(folder, prompts=3, images=2):
    for i in range(prompts):
        fill(folder, *(f"{i:05d}/samples/{j:04d}.png" for j in range(images)), f"{i:05d}/grid.png")
        write_jsonl(
            folder / f"{i:05d}" / "metadata.jsonl", [{"tag": "single_object", "prompt": f"a {i}"}]
        )
    return folder


def test_geneval_folders_are_recognised(tmp_path):
    fill(geneval(tmp_path), "notes/a.png", "00000/samples/0000.jpg", "00000/samples/preview.png")
    samples = read_samples(tmp_path)
    assert [s.id for s in samples] == [f"{i:05d}/{j:04d}" for i in range(3) for j in range(2)]
    assert samples[2].prompt == "a 1"
    assert samples[2].spec == {"tag": "single_object", "prompt": "a 1"}
    assert samples == read_samples(tmp_path, layout="geneval")
    assert ids(tmp_path, layout="folder", recursive=True)[0] == "00000/grid"
    assert ids(tmp_path, limit=3) == ["00000/0000", "00000/0001", "00001/0000"]


def test_missing_prompts_do_not_shrink_the_denominator(tmp_path):
    geneval(tmp_path, prompts=10, images=1)
    (tmp_path / "00004" / "samples" / "0000.png").unlink()
    with pytest.raises(InputError, match=r"1 prompts have no images.*'00004: a 4'.*allow-missing"):
        read_samples(tmp_path)
    assert len(read_samples(tmp_path, allow_missing=True)) == 9
    assert prompts_without_images(tmp_path) == ["00004"]


def test_geneval_without_metadata_is_an_error(tmp_path):
    geneval(tmp_path)
    fill(tmp_path, "00003/samples/0000.png", "00007/samples/0000.png")
    with pytest.raises(InputError, match=r"2 folders lack metadata\.jsonl: '00003', '00007'"):
        read_samples(tmp_path)


def test_geneval_metadata_must_be_one_row_with_a_prompt(tmp_path):
    geneval(tmp_path, prompts=1)
    metadata = tmp_path / "00000" / "metadata.jsonl"
    write_jsonl(metadata, [{"tag": "colors"}])
    with pytest.raises(InputError, match="has no prompt"):
        read_samples(tmp_path)
    write_jsonl(metadata, [{"prompt": "a"}, {"prompt": "b"}])
    with pytest.raises(InputError, match="has 2 rows; expected one"):
        read_samples(tmp_path)
    metadata.write_text(json.dumps({"prompt": "pretty", "tag": "x"}, indent=1))
    with pytest.raises(InputError, match="is not JSON"):
        read_samples(tmp_path)


def test_geneval_with_no_image_at_all_says_so(tmp_path):
    geneval(tmp_path, images=0)
    with pytest.raises(InputError, match="holds no images: every samples/ folder is empty"):
        read_samples(tmp_path, allow_missing=True)
