"""What counts as a sample, in which order, under which id."""

from __future__ import annotations

import json
import os
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, UsageError
from genmetrics.samples.clips import FrameFolder
from genmetrics.samples.kinds import HEAD, SUFFIXES, looks_like_picture
from genmetrics.samples.listing import unique_ids, without_suffix
from genmetrics.samples.media import FileMedia, SpanMedia
from genmetrics.samples.sources import LAYOUTS, list_samples, read_samples
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
    fill(tmp_path, "notes.txt", ".hidden.png", "f.png.txt")
    assert ids(tmp_path) == ["a", "b", "c", "d", "e"]


def test_order_is_natural(tmp_path):
    fill(tmp_path, *(f"r_{i}.png" for i in range(12)))
    assert ids(tmp_path) == [f"r_{i}" for i in range(12)]
    assert ids(tmp_path, limit=3) == ["r_0", "r_1", "r_2"]
    assert ids(tmp_path, limit=99) == [f"r_{i}" for i in range(12)]


# -- of 28 names that link to 24 blobs, four vanished without a word -------------------------------


def test_each_name_is_a_sample_whatever_it_links_to(tmp_path):
    fill(tmp_path, "z.png", "blobs/0a1b")
    (tmp_path / "a.png").symlink_to(tmp_path / "z.png")
    (tmp_path / "m.png").symlink_to("a.png")
    assert ids(tmp_path) == ["a", "m", "z"]
    other = tmp_path / "other"
    other.mkdir()
    for name in ("a.png", "b.png", "c"):
        (other / name).symlink_to("../blobs/0a1b")
    assert ids(other) == ["a", "b", "c"]
    copies = fill(tmp_path / "copies", "a.png", "b.png", "c")
    digests = [s.digest(["image"]) for s in read_samples(other)]
    assert digests == [s.digest(["image"]) for s in read_samples(copies)]
    with tarfile.open(tmp_path / "links.tar", "w") as tar:
        tar.add(tmp_path / "blobs" / "0a1b", "blobs/0a1b.png")
        for name in ("a.png", "b.png"):
            tar.add(other / name, f"gen/{name}")
    with pytest.raises(InputError, match=r"gen/a\.png is a link .*without content"):
        ids(tmp_path / "links.tar")
    with tarfile.open(tmp_path / "links.tar", "w") as tar:
        tar.add(tmp_path / "z.png", "z.png")
        tar.add(tmp_path / "m.png", "m.png")
        tar.add(tmp_path / "a.png", "a.png")
    with pytest.raises(InputError, match=r"!m\.png is a link"):  # an absolute one leads out
        ids(tmp_path / "links.tar")
    (tmp_path / "a.png").unlink()
    (tmp_path / "a.png").symlink_to("z.png")
    with tarfile.open(tmp_path / "links.tar", "w") as tar:
        for name in ("z.png", "m.png", "a.png"):
            tar.add(tmp_path / name, name)
    samples = read_samples(tmp_path / "links.tar")
    assert [s.id for s in samples] == ["a", "m", "z"]
    assert len({s.digest(["image"]) for s in samples}) == 1


def test_a_folder_that_is_reached_twice_counts_once_under_its_own_name(tmp_path):
    fill(tmp_path, "set/real/1.png", "set/zoo/2.png", "far/3.png")
    for name in ("again", "zzz"):
        (tmp_path / "set" / name).symlink_to("real")
    (tmp_path / "set" / "real" / "loop").symlink_to("..")
    for name in ("b", "a"):
        (tmp_path / "set" / name).symlink_to("../far")
    (tmp_path / "set" / "round").symlink_to("round")
    assert ids(tmp_path / "set", recursive=True) == ["a/3", "real/1", "zoo/2"]
    (tmp_path / "set" / "round.png").symlink_to("round.png")
    assert "round" in ids(tmp_path / "set")  # it fails by name when it is read


# -- four of 24 pictures renamed to .heic gave another value, and no word --------------------------

FOREIGN = ["b.heic", "c.HEIF", "d.jxl", "e.tga", "f.exr", "g", "r_1.5"]


def packed(folder, path):
    """An archive of a folder, made by its suffix."""
    names = sorted(p for p in folder.rglob("*") if p.is_file())
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.write(name, name.relative_to(folder).as_posix())
    else:
        with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
            for name in names:
                archive.add(name, name.relative_to(folder).as_posix())
    return path


@pytest.mark.parametrize("form", ["folder", "set.zip", "set.tar", "set.tgz"])
def test_pictures_of_any_suffix_and_of_none_are_samples(tmp_path, form):
    folder = fill(tmp_path / "set", "a.png", *FOREIGN, ".hidden", "old.txt", "i.json", "x.txt")
    (folder / "clip.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    (folder / "LICENSE").write_text("BM is a text that begins so\n")
    (folder / "h").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    path = folder if form == "folder" else packed(folder, tmp_path / form)
    found = list_samples(path)
    samples = found.samples
    assert [s.id for s in samples] == ["a", "b", "c", "d", "e", "f", "g", "h", "r_1.5"]
    assert found.ignored == {".txt": 2, ".json": 1, ".mp4": 1, "without suffix": 1}
    assert found.notes("gen") == (
        "gen: 5 files are not read as images (2 .txt, 1 .json, 1 .mp4, 1 without suffix)",
    )
    for sample in samples:
        if sample.id == "h":
            with pytest.raises(InputError, match=r"h is not an image: it starts with .*ftypheic"):
                sample.image.load()
        else:
            assert sample.image.load().pixels.shape[2] == 3  # the content decides


@pytest.mark.parametrize("kind", sound())
def test_each_format_is_known_by_its_first_bytes(kind):
    assert looks_like_picture(sound()[kind][:HEAD])


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"BMW is a maker of cars, and of motor",
        b"P3 is a name",
        b"{}",
        b"%PDF-1.7",
        b"<html>",
        b"RIFF\0\0\0\0WAVEfmt ",
        b"\0\0\0\x18ftypisom\0\0\2\0isom",
        b"PK\3\4",
        bytes(32),
    ],
)
def test_what_is_no_picture_is_not_taken_for_one(head):
    assert not looks_like_picture(head)


def test_files_with_a_known_suffix_are_not_opened_for_the_listing(tmp_path, monkeypatch):
    fill(tmp_path, "a.png", "b.heic", "c.txt", "d.json")
    packed(tmp_path, tmp_path / "set.tar")
    opened = []
    monkeypatch.setattr(SpanMedia, "head", lambda self, _: opened.append(self.name) or b"")
    monkeypatch.setattr(FileMedia, "head", lambda self, _: opened.append(self.name) or b"")
    assert ids(tmp_path) == ids(tmp_path / "set.tar") == ["a", "b"]
    assert opened == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_and_dead_links_without_a_picture_s_suffix_are_counted(tmp_path):
    fill(tmp_path, "a.png")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.data").symlink_to("nowhere")
    found = list_samples(tmp_path)
    assert [s.id for s in found.samples] == ["a"]
    assert found.ignored == {"without suffix": 1, ".data": 1}


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
        ('{"file": "a.png", "spec": 3}', "'spec' is 3; expected a JSON object or list"),
        ('{"file": "a.png", "spec": "red"}', "'spec' is 'red'; expected a JSON object or list"),
        ('{"file": "a.png", "spec": "{"}', "'spec' is not JSON"),
        ('{"file": ["a.png"]}', "expected text"),
        ('{"file": "a.png", "prompt": 1.5}', "'prompt' is 1.5; expected text"),
        ('{"file": "a.png"}\n{"file": "a.png", "id": "a"}', r"line 2 gives id 'a' again"),
        (
            '{"file": "a.png"}\n{"file": "b", "file": "c"}',
            "line 2 has the column 'file' more",
        ),
        (
            '{"file": "a.png", "spec": {"x": 1, "x": 2}}',
            "line 1 has the column 'x' more",
        ),
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
        (b"file,reference,reference\na.png,b,a\n", "line 1 has the column 'reference' more than"),
        (b"file,note, note\na.png,b,a\n", "line 1 has the column 'note' more than once"),
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
    found = list_samples(tmp_path)
    samples = found.samples
    assert [s.id for s in samples] == [f"{i:05d}/{j:04d}" for i in range(3) for j in range(2)]
    assert found.ignored == {".jpg": 1, ".png": 1}
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
    found = list_samples(tmp_path, allow_missing=True)
    assert len(found.samples) == 9
    assert found.missing == ["00004"]


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


# -- folders of clips ------------------------------------------------------------------------------


def test_two_frames_of_one_name_are_refused_by_name(tmp_path):
    clip = fill(tmp_path / "clip", "0.png", "0.jpg", "1.png")
    found = FrameFolder(str(clip))
    for read in (found.frames, found.digest, found.size):
        with pytest.raises(InputError, match=r"clip holds '0\.jpg', '0\.png', frames of one name"):
            read()
    (clip / "0.jpg").unlink()
    assert len(list(found.frames())) == 2


def test_files_among_frames_that_are_no_pictures_are_counted(tmp_path):
    for name in "ab":
        folder = fill(tmp_path / name, "0.png")
        (folder / "clip.mp4").write_bytes(b"")
    path = tmp_path / "m.jsonl"
    rows = [{"id": name, "video": name} for name in ("a", "b", "gone")]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert list_samples(path).notes(path) == (f"{path}: 2 files are not read as images (2 .mp4)",)


def test_a_folder_of_clips_is_told_how_clips_are_given(tmp_path):
    fill(tmp_path / "clips" / "a", "0.png")
    with pytest.raises(InputError, match=r"pass --recursive, or, .* manifest with a column video"):
        read_samples(tmp_path / "clips")
