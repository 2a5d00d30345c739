"""What is in a set, what is left out, and what is said of it: as users see it."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.cli.test_main import one_line
from tests.report.test_document import strictly
from tests.samples.test_chunks import PROFILES


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
    (note,) = strictly(after)["notes"]
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


# -- one word in two Unicode forms -----------------------------------------------------------------


def test_names_in_another_unicode_form_meet(run, pairs):
    code, before, _ = run(*psnr(pairs, "--json"))
    for folder, name in zip(pairs, ("caf\u00e9", "cafe\u0301"), strict=True):
        (folder / "crop_1.png").rename(folder / f"{name}.png")
    code, after, _ = run(*psnr(pairs, "--json"))
    assert code == 0
    assert value(after) == pytest.approx(value(before), rel=1e-12)


# -- a manifest with empty cells was refused, whatever the flag ------------------------------------


def manifest(pairs, path, *, bare):
    """A manifest of generated images, with the counterpart of the first few left out."""
    generated, clean = pairs
    rows = []
    for i, file in enumerate(sorted(generated.iterdir())):
        row = {"id": file.stem, "file": str(file), "prompt": "a crop"}
        row["mask"] = str(clean / file.name)
        row["reference"] = str(clean / file.name)
        rows.append(row | dict.fromkeys(bare, "") if i < 1 else row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_empty_cells_of_a_manifest_are_refused_or_named(run, pairs, tmp_path):
    path = manifest(pairs, tmp_path / "m.jsonl", bare=["reference"])
    ask = ("eval", path, "-m", "psnr", "--device", "cpu")
    code, _, err = run(*ask)
    assert code == 2
    assert one_line(err).endswith(
        f"{path}: 1 image has no reference ('crop_0'); add them, or pass --allow-missing"
    )
    code, text, _ = run(*ask, "--json", "--allow-missing")
    assert code == 1
    assert strictly(text)["missing"] == ["crop_0"]
    assert strictly(text)["metrics"]["psnr"]["n"] == 3


def test_an_image_without_mask_among_masked_ones_stays_and_is_named(run, pairs, tmp_path):
    path = manifest(pairs, tmp_path / "m.jsonl", bare=["mask"])
    ask = ("eval", path, "-m", "psnr", "--device", "cpu")
    code, _, err = run(*ask)
    assert code == 2
    assert "1 image has no mask ('crop_0')" in one_line(err)
    code, text, _ = run(*ask, "--json", "--allow-missing")
    assert code == 1
    assert strictly(text)["missing"] == ["crop_0"]
    assert strictly(text)["metrics"]["psnr"]["n"] == 4


def test_the_flag_is_not_suggested_where_nothing_matches(run, pairs, tmp_path):
    generated, clean = pairs
    for file in list(clean.iterdir()):
        file.rename(clean / f"x{file.name}")
    for flag in ([], ["--allow-missing"]):
        code, _, err = run(*psnr(pairs, *flag))
        assert code == 2
        assert "4 images have no counterpart" in one_line(err)
        assert "allow-missing" not in err
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "y", "prompt": "p"}\n')
    code, _, err = run("eval", generated, "--prompts", path, "--allow-missing", "-m", "fd-lite")
    assert code == 2
    assert "allow-missing" not in one_line(err)


# -- what stands beside the pixels -----------------------------------------------------------------


def test_metadata_moves_nothing_and_other_profiles_are_counted(run, pairs):
    code, before, _ = run(*psnr(pairs, "--json"))
    assert code == 0
    text, profile = PngInfo(), PROFILES["Display P3"][0]
    text.add_text("workflow", "x" * (2 << 20), zip=True)
    for number in (1, 2):
        path = pairs[0] / f"crop_{number}.png"
        Image.open(path).save(path, pnginfo=text, icc_profile=profile)
    code, after, _ = run(*psnr(pairs, "--json"))
    assert code == 0
    assert value(after) == value(before)
    assert strictly(after)["conversions"] == {"profile_not_srgb": 2}
