"""What is in a set, what is left out, and what is said of it: as users see it."""

from __future__ import annotations

import pytest

from tests.cli.test_main import one_line
from tests.report.test_document import strictly


def psnr(pairs, *more):
    return ("eval", pairs[0], "--pair-with", pairs[1], "-m", "psnr", "--device", "cpu", *more)


def value(text):
    return strictly(text)["metrics"]["psnr"]["value"]


# -- files that are no pictures by their suffix ----------------------------------------------------


def test_a_picture_under_another_suffix_counts_and_other_files_are_noted(run, pairs):
    code, before, _ = run(*psnr(pairs, "--json"))
    assert code == 0
    generated, _ = pairs
    (generated / "crop_1.png").rename(generated / "crop_1.heic")
    (generated / "crop_2.png").rename(generated / "crop_2")
    (generated / "notes.txt").write_text("a note")
    (generated / "clip.mp4").write_bytes(b"")
    code, after, _ = run(*psnr(pairs, "--json"))
    assert code == 0
    assert value(after) == value(before)
    (note,) = strictly(after)["metrics"]["psnr"]["warnings"]
    assert note == f"{generated}: 2 files are not read as images (1 .mp4, 1 .txt)"


@pytest.mark.parametrize("name", ["crop_1.heic", "crop_1.exr", "crop_1"])
def test_a_picture_that_cannot_be_read_is_an_error_or_skipped_by_name(run, pairs, name):
    generated, _ = pairs
    (generated / "crop_1.png").unlink()
    (generated / name).write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    code, _, err = run(*psnr(pairs))
    assert code == 2
    assert str(generated / name) in one_line(err)
    code, text, _ = run(*psnr(pairs, "--json", "--on-error", "skip"))
    assert code == 1
    assert [row["id"] for row in strictly(text)["skipped"]] == ["crop_1"]
    assert strictly(text)["metrics"]["psnr"]["n"] == 3


def test_names_that_link_to_one_blob_are_as_many_samples_as_copies(run, pairs, tmp_path):
    generated, clean = pairs
    for name in ("crop_8", "crop_9"):
        for folder in (generated, clean):
            (folder / f"{name}.png").write_bytes((folder / "crop_0.png").read_bytes())
    code, copies, _ = run(*psnr(pairs, "--json"))
    assert code == 0
    links = [tmp_path / "hub" / folder.name for folder in pairs]
    for folder, linked in zip(pairs, links, strict=True):
        linked.mkdir(parents=True)
        for file in folder.iterdir():
            blob = "crop_0.png" if file.stem in ("crop_8", "crop_9") else file.name
            (linked / file.name).symlink_to(folder / blob)
    code, text, _ = run(*psnr(links, "--json"))
    assert code == 0
    assert strictly(text)["metrics"]["psnr"]["n"] == 6
    assert value(text) == value(copies)


# -- of a column that came twice, the last one won -------------------------------------------------


def test_a_column_twice_is_an_error_that_names_it(run, pairs, tmp_path):
    table = tmp_path / "m.csv"
    table.write_text("file,reference,reference\ngen/crop_0.png,clean/crop_0.png,gen/crop_0.png\n")
    code, _, err = run("eval", table, "-m", "psnr")
    assert code == 2
    assert f"{table} line 1 has the column 'reference' more than once" in one_line(err)
