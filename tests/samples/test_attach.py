"""Prompts, references and masks are joined by name; everything left over is named."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from genmetrics.core.errors import InputError, PairingError, UsageError
from genmetrics.core.fields import FIELDS
from genmetrics.core.sample import Sample
from genmetrics.samples.attach import attach, check_sizes, require_filled, without_missing
from genmetrics.samples.sources import read_samples
from tests.samples.make import attach_masks, attach_pairs, attach_prompts

PARTNERS = ("reference", "mask")


def grey(folder, names, size=(4, 4)):
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", size, 20 * i).save(folder / name)
    return folder


def table(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# -- prompts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        ["a", "b"],
        ["a.png", "b.png"],
        ["gen/a.png", "./gen/b.png"],
        ["/data/run 1/gen/a.png", "C:\\gen\\b.png"],
        ["a.jpg", "b"],
    ],
)
@pytest.mark.parametrize("column", ["id", "file"])
def test_a_key_is_an_id_or_a_file_with_or_without_suffix_and_folders(tmp_path, keys, column):
    samples = read_samples(grey(tmp_path / "gen", ["a.png", "b.png"]))
    rows = [{column: key, "prompt": f"p{i}"} for i, key in enumerate(keys)]
    found, missing = attach_prompts(samples, table(tmp_path / "p.jsonl", rows[::-1]))
    assert [(s.id, s.prompt) for s in found] == [("a", "p0"), ("b", "p1")]
    assert missing == []


def test_folders_and_suffixes_in_ids_are_matched_literally_first(tmp_path):
    names = ["x/a.png", "y/a.png", "z/b.png", "z/c.png", "z/c.jpg"]
    samples = read_samples(grey(tmp_path / "gen", names), recursive=True)
    keys = ["gen/x/a.png", "y/a", "b.png", "z/c.png", "c.jpg"]
    rows = [{"id": key, "prompt": key} for key in keys]
    found, _ = attach_prompts(samples, table(tmp_path / "p.jsonl", rows))
    assert {s.id: s.prompt for s in found} == {
        "x/a": "gen/x/a.png",
        "y/a": "y/a",
        "z/b": "b.png",
        "z/c.png": "z/c.png",
        "z/c.jpg": "c.jpg",
    }
    ambiguous = [{"id": "a.png", "prompt": "p"}, *rows[2:]]
    with pytest.raises(PairingError, match=r"1 prompt has no image \('a\.png'\); 2 images have no"):
        attach_prompts(samples, table(tmp_path / "p.jsonl", ambiguous))


def test_prompts_are_kept_letter_by_letter(tmp_path):
    prompts = ["A fantasy landscape", "a fantasy landscape", "x" * 400, "a/b\nc", " spaced "]
    samples = read_samples(grey(tmp_path / "gen", [f"{i}.png" for i in range(5)]))
    rows = [{"id": i, "prompt": p} for i, p in enumerate(prompts)]
    found, _ = attach_prompts(samples, table(tmp_path / "p.jsonl", rows))
    assert [s.prompt for s in found] == prompts


def test_an_empty_prompt_is_named(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", [f"{i}.png" for i in range(3)]))
    rows = [{"id": str(i), "prompt": p} for i, p in enumerate(["a cat", "", "  \n"])]
    with pytest.raises(InputError, match=r"2 samples have an empty prompt or none: '1', '2'"):
        attach_prompts(samples, table(tmp_path / "p.jsonl", rows))
    with pytest.raises(InputError, match=r"^gen: 3 samples"):
        require_filled(samples, FIELDS["prompt"], "gen")


def test_every_name_without_partner_is_listed_on_both_sides(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", [f"{i}.png" for i in range(9)]))
    rows = [{"id": str(i), "prompt": "p"} for i in range(1, 10)]
    path = table(tmp_path / "p.jsonl", rows)
    with pytest.raises(PairingError) as caught:
        attach_prompts(samples, path)
    assert str(caught.value) == (
        f"{path}: 1 prompt has no image ('9'); 1 image has no prompt ('0'); add them, or pass"
        " --allow-missing"
    )
    found, missing = attach_prompts(samples, path, allow_missing=True)
    assert len(found) == 8
    assert missing == ["9", "0"]


def test_nine_images_of_ten_prompts_are_an_error_unless_allowed(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", [f"{i}.png" for i in range(9)]))
    path = table(tmp_path / "p.jsonl", [{"id": str(i), "prompt": "p"} for i in range(10)])
    with pytest.raises(PairingError, match="'9'"):
        attach_prompts(samples, path)
    found, missing = attach_prompts(samples, path, allow_missing=True)
    assert (len(found), missing) == (9, ["9"])


def test_long_lists_are_cut_but_counted(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", ["0.png"]))
    path = table(tmp_path / "p.jsonl", [{"id": str(i), "prompt": "p"} for i in range(500)])
    with pytest.raises(
        PairingError, match="499 prompts have no image .*'10' and 489 more"
    ) as caught:
        attach_prompts(samples, path)
    assert len(str(caught.value)) < 400


def test_nothing_in_common_is_an_error_even_if_missing_is_allowed(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", ["0.png"]))
    path = table(tmp_path / "p.jsonl", [{"id": "x", "prompt": "p"}])
    with pytest.raises(PairingError):
        attach_prompts(samples, path, allow_missing=True)


@pytest.mark.parametrize("keys", [["a", "a"], ["a", "a.png"], ["zz", "zz"]])
def test_two_prompts_for_one_image_are_an_error(tmp_path, keys):
    samples = read_samples(grey(tmp_path / "gen", ["a.png"]))
    rows = [{"id": key, "prompt": f"p{i}"} for i, key in enumerate(keys)]
    with pytest.raises(InputError, match=r"line 2 gives .* a second time \(first: .*line 1\)"):
        attach_prompts(samples, table(tmp_path / "p.jsonl", rows))


def test_tables_without_the_columns_say_what_they_have(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", ["a.png"]))
    with pytest.raises(InputError, match=r"no 'prompt' \(columns: id, caption\)"):
        attach_prompts(samples, table(tmp_path / "p.jsonl", [{"id": "a", "caption": "x"}]))
    with pytest.raises(InputError, match=r"no 'id' and no 'file' \(columns: prompt\)"):
        attach_prompts(samples, table(tmp_path / "p.jsonl", [{"prompt": "x"}]))
    with pytest.raises(InputError, match="is not a table"):
        attach_prompts(samples, tmp_path / "prompts.txt")
    (tmp_path / "p.csv").write_text('file,prompt\na.png,"a cat, sitting"\n')
    assert attach_prompts(samples, tmp_path / "p.csv")[0][0].prompt == "a cat, sitting"


# -- string order let r_10 meet the target of r_2 --------------------------------------------------


def test_equal_stems_pair_whatever_the_order_and_suffix(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", [f"r_{i}.png" for i in range(12)]))
    grey(tmp_path / "ref", [f"r_{i}.bmp" for i in range(12)])
    found, missing = attach_pairs(samples, tmp_path / "ref")
    assert missing == []
    for sample in found:
        assert sample.reference.name.endswith(f"{sample.id}.bmp")
        assert (sample.image.load().pixels == sample.reference.load().pixels).all()


def test_unequal_stems_are_refused_unless_order_is_asked_for(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", [f"{i:02d}.png" for i in range(12)]))
    ref = grey(tmp_path / "ref", [f"r_{i}.png" for i in range(12)])
    with pytest.raises(
        PairingError, match=r"12 images have no counterpart.*'r_2'.*--pair-by order"
    ):
        attach_pairs(samples, ref)
    found, _ = attach_pairs(samples[::-1], ref, by="order")
    for i, sample in enumerate(found):
        assert sample.reference.name.endswith(f"r_{i}.png")
        assert sample.image.load().pixels.max() == sample.reference.load().pixels.max() == 20 * i
    with pytest.raises(PairingError, match="11 images against 12 counterparts"):
        attach_pairs(samples[1:], ref, by="order")
    with pytest.raises(UsageError, match="'name' is unknown; there is stem, order"):
        attach_pairs(samples, ref, by="name")


def test_missing_partners_are_all_listed(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", ["a.png", "b.png"]))
    ref = grey(tmp_path / "ref", ["b.png", "c.png", "d.png"])
    with pytest.raises(PairingError) as caught:
        attach_pairs(samples, ref)
    assert str(caught.value) == (
        f"{ref}: 1 image has no counterpart ('a'); 2 counterparts have no image ('c', 'd'); pair"
        " equal names, or pass --allow-missing"
    )
    found, missing = attach_pairs(samples, ref, allow_missing=True)
    assert [s.id for s in found] == ["b"]
    assert missing == ["a", "c", "d"]


def test_pairs_in_subfolders_and_archives(tmp_path):
    import shutil

    samples = read_samples(grey(tmp_path / "gen", ["x/1.png", "y/1.png"]), recursive=True)
    ref = grey(tmp_path / "ref", ["x/1.png", "y/1.png"])
    assert [s.reference.name for s in attach_pairs(samples, ref)[0]] == [
        str(ref / "x" / "1.png"),
        str(ref / "y" / "1.png"),
    ]
    archive = shutil.make_archive(str(tmp_path / "ref"), "zip", ref)
    assert len(attach_pairs(samples, archive)[0]) == 2


def test_masks_are_needed_unless_missing_is_allowed(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", ["a.png", "b.png"]))
    masks = grey(tmp_path / "masks", ["b.png", "c.png"])
    with pytest.raises(PairingError, match=r"1 image has no mask \('a'\); 1 mask has no image"):
        attach_masks(samples, masks)
    found, missing = attach_masks(samples, masks, allow_missing=True)
    assert [(s.id, s.mask is not None) for s in found] == [("a", False), ("b", True)]
    assert missing == ["a", "c"]


# -- a pair of different sizes failed deep inside a network ----------------------------------------


def test_pairs_of_unequal_size_are_shown_with_paths_and_sizes(tmp_path):
    samples = read_samples(grey(tmp_path / "gen", ["a.png", "b.png"], (64, 64)))
    ref = grey(tmp_path / "ref", ["a.png", "b.png"], (65, 64))
    pairs, _ = attach_pairs(samples, ref)
    with pytest.raises(PairingError) as caught:
        check_sizes(pairs, PARTNERS)
    assert str(caught.value) == (
        f"{tmp_path / 'gen' / 'a.png'} is 64×64 but {ref / 'a.png'} is 65×64 (2 such pairs); resize"
        " or replace the files"
    )
    check_sizes(samples, PARTNERS)  # without partners there is nothing to compare
    masks = grey(tmp_path / "masks", ["a.png", "b.png"], (64, 64))
    check_sizes(attach_masks(samples, masks)[0], PARTNERS)


# -- a manifest with empty cells -------------------------------------------------------------------


def test_samples_without_a_field_that_others_carry_are_left_out_by_name(tmp_path):
    grey(tmp_path, [f"{i}.png" for i in range(6)])
    rows = [
        {"file": f"{i}.png", "prompt": "p", "reference": "0.png", "mask": "0.png", "spec": {"a": 1}}
        for i in range(6)
    ]
    rows[1]["prompt"] = " "
    rows[2]["reference"] = ""
    rows[3]["mask"] = rows[1]["mask"] = ""
    rows[4]["spec"] = None
    path = table(tmp_path / "m.jsonl", rows)
    samples = read_samples(path)
    expected = {"prompt": "1", "reference": "2", "spec": "4"}
    for field, bare in expected.items():
        with pytest.raises(PairingError, match=rf"1 image has no {field} \('{bare}'\); .*--allow"):
            without_missing(samples, [field, "image"], path)
        kept, missing = without_missing(samples, [field, "image"], path, allow_missing=True)
        assert missing == [bare]
        assert [s.id for s in kept] == [i for i in "012345" if i != bare]
    kept, missing = without_missing(samples, [*expected, "mask"], path, allow_missing=True)
    assert [s.id for s in kept] == ["0", "3", "5"]
    assert missing == ["1", "2", "3", "4"]
    kept, missing = without_missing(samples, ["image"], path)
    assert (len(kept), missing) == (6, [])


def test_a_field_that_no_sample_has_is_the_metric_s_to_refuse(tmp_path):
    grey(tmp_path, ["a.png", "b.png"])
    path = table(tmp_path / "m.jsonl", [{"file": "a.png"}, {"file": "b.png"}])
    samples = read_samples(path)
    for allow in (False, True):
        assert without_missing(samples, ["prompt"], path, allow_missing=allow) == (samples, [])
    rows = [{"file": "a.png", "prompt": "p"}, {"file": "b.png", "reference": "a.png"}]
    samples = read_samples(table(path, rows))
    with pytest.raises(PairingError, match=r"no prompt \('b'\); .*no reference .*; add them$"):
        without_missing(samples, ["prompt", "reference"], path, allow_missing=True)


def test_several_of_a_field_are_called_by_their_plural(tmp_path):
    rows = [{"id": name, "questions": ["how many?"]} for name in "xyz"]
    with pytest.raises(PairingError, match=r"3 questions have no image \('x', 'y', 'z'\)"):
        attach([Sample(id="a")], FIELDS["questions"], table(tmp_path / "q.jsonl", rows))


@pytest.mark.parametrize("cell", ["", None])
def test_an_empty_cell_for_a_clip_is_left_out_by_name(tmp_path, cell):
    rows = [{"id": "a", "video": "a"}, {"id": "z", "video": cell}]
    path = table(tmp_path / "m.jsonl", rows)
    samples = read_samples(path)
    with pytest.raises(PairingError, match=r"1 sample has no video \('z'\); add .*--allow-missing"):
        without_missing(samples, ["video"], path)
    kept, missing = without_missing(samples, ["video"], path, allow_missing=True)
    assert ([s.id for s in kept], missing) == (["a"], ["z"])
    assert without_missing(samples, ["prompt"], path) == (samples, [])


def test_an_empty_record_says_which_column_is_to_be_filled(tmp_path):
    path = table(tmp_path / "b.jsonl", [{"id": "a", "boxes": []}])
    with pytest.raises(
        InputError, match=r"1 sample has an empty list of boxes or none: 'a'; fill the column 'box"
    ):
        attach([Sample(id="a")], FIELDS["boxes"], path)
