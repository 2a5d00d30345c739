"""Sets that the program holds: paths, tensors, arrays, Pillow images, data sets."""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import genmetrics as gm
from genmetrics.core.errors import InputError, UsageError
from genmetrics.samples.memory import described
from genmetrics.samples.sources import list_samples, read_samples

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 24, 20, 3), dtype=np.uint8)


class Rows:
    """A data set as of the Hugging Face library or torch: rows by number."""

    def __init__(self, images: list[Any], key: str = "image") -> None:
        self.images, self.key = images, key
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> dict[str, Any]:
        self.asked.append(i)
        return {self.key: self.images[i], "label": 0}


def files(folder: Path) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"{name}.png" for name in ("b10", "b9", "a")]
    for path, pixels in zip(paths, PIXELS, strict=True):
        Image.fromarray(pixels).save(path)
    return paths


def held(kind: str) -> Any:
    """The three pictures in each form that is taken."""
    images = [Image.fromarray(pixels) for pixels in PIXELS]
    tensor = torch.from_numpy(PIXELS.transpose(0, 3, 1, 2).copy())
    return {
        "tensor": tensor,
        "tensors": list(tensor),
        "array": PIXELS,
        "arrays": tuple(PIXELS),
        "pillow": images,
        "rows of pillow": Rows(images),
        "rows of arrays": Rows(list(PIXELS)),
        "rows of tensors": Rows(list(tensor)),
    }[kind]


KINDS = (
    *("tensor", "tensors", "array", "arrays", "pillow"),
    *("rows of pillow", "rows of arrays", "rows of tensors"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_gives_the_pixels_and_names_them(kind: str) -> None:
    samples = list_samples(held(kind), name="generated").samples
    assert [s.id for s in samples] == ["0", "1", "2"]
    assert [s.image.name for s in samples] == ["generated[0]", "generated[1]", "generated[2]"]
    for sample, pixels in zip(samples, PIXELS, strict=True):
        assert (sample.image.load().pixels == pixels).all()
        assert sample.image.size() == (20, 24)


@pytest.mark.parametrize("kind", KINDS)
def test_the_digest_is_that_of_the_same_array_in_a_file(kind: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", PIXELS)
    kept = [s.digest(["image"]) for s in read_samples(tmp_path / "a.npy")]
    assert [s.digest(["image"]) for s in read_samples(held(kind))] == kept


def test_a_list_of_paths_gives_the_samples_of_their_folder(tmp_path: Path) -> None:
    paths = files(tmp_path / "set")
    assert read_samples(paths) == read_samples(tmp_path / "set")
    assert read_samples([str(path) for path in paths], limit=2) == read_samples(
        tmp_path / "set", limit=2
    )


def test_paths_of_several_folders_keep_what_tells_them_apart(tmp_path: Path) -> None:
    paths = [*files(tmp_path / "x"), *files(tmp_path / "y")[:1]]
    assert [s.id for s in read_samples(paths)] == ["x/a", "x/b9", "x/b10", "y/b10"]


def test_a_path_that_comes_twice_or_is_missing_is_named(tmp_path: Path) -> None:
    paths = files(tmp_path / "set")
    with pytest.raises(InputError, match=r"images names '.*a.png' more than once; pass each"):
        read_samples([*paths, paths[-1]])
    (sample,) = read_samples([tmp_path / "none.png"])
    with pytest.raises(InputError, match=r"none.png does not exist"):
        sample.image.load()


def test_a_data_set_of_the_hugging_face_library_is_taken() -> None:
    datasets = pytest.importorskip("datasets")
    images = [Image.fromarray(pixels) for pixels in PIXELS]
    features = datasets.Features({"image": datasets.Image()})
    samples = read_samples(datasets.Dataset.from_dict({"image": images}, features=features))
    found = [sample.image.load().pixels for sample in samples]
    assert (np.stack(found) == PIXELS).all()


def test_ranks_are_told_that_they_cannot_share_what_one_program_holds() -> None:
    with pytest.raises(InputError, match=r"images\[0\] is held by one program.*pass a path"):
        pickle.dumps(read_samples(PIXELS))


def test_listing_a_data_set_looks_at_its_first_row_alone() -> None:
    rows = Rows([Image.fromarray(pixels) for pixels in PIXELS])
    read_samples(rows)
    assert rows.asked == [0]


def test_pillow_images_are_converted_as_files_are(tmp_path: Path) -> None:
    grey = Image.fromarray(PIXELS[0, :, :, 0])
    clear = Image.fromarray(np.dstack([PIXELS[0], PIXELS[1, :, :, 0]]))
    turned = Image.fromarray(PIXELS[0])
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.png", exif=exif)
    deep = Image.fromarray(np.arange(480, dtype=np.uint16).reshape(24, 20) * 130)
    for name, image in (("grey", grey), ("clear", clear), ("deep", deep)):
        image.save(tmp_path / f"{name}.png")
    for name, given in (
        ("grey", grey),
        ("clear", clear),
        ("deep", deep),
        ("turned", Image.open(tmp_path / "turned.png")),
        ("deep", Image.open(tmp_path / "deep.png")),
    ):
        (sample,), (stored,) = read_samples([given]), read_samples([tmp_path / f"{name}.png"])
        found, expected = sample.image.load(), stored.image.load()
        assert (found.pixels == expected.pixels).all()
        assert found.conversions == expected.conversions


def test_pixels_that_change_after_they_were_listed_are_refused() -> None:
    pixels = PIXELS.copy()
    sample = read_samples(pixels)[1]
    sample.image.digest()
    pixels[1, 0, 0] ^= 1
    with pytest.raises(InputError, match=r"images\[1\] changed while the run was under way"):
        sample.image.load()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (7, r"generated is an int \(7\); pass a path, or a list of paths"),
        (None, r"generated is a NoneType"),
        ({"a": 1}, r"generated is a dict"),
        ([], r"generated holds no images \(list of 0 images\)"),
        (PIXELS[:0], r"generated holds no images \(ndarray of 0 images\)"),
        (Rows([]), r"generated holds no images \(Rows of 0 images\)"),
        (PIXELS.astype(np.float32), r"a ndarray of float32 with shape \(3, 24, 20, 3\)"),
        (PIXELS[0], r"a ndarray of uint8 with shape \(24, 20, 3\)"),
        (torch.rand(2, 3, 8, 8), r"a Tensor of torch.float32 with shape \(2, 3, 8, 8\)"),
        ([PIXELS[0], 3], r"a list with an int \(3\) at 1"),
        ([PIXELS[0], "a.png"], r"a list of paths and pictures at once"),
        (Rows([1], key="picture"), r"generated is a Rows"),
    ],
)
def test_anything_else_is_one_line_that_says_what_is_taken(source: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        list_samples(source, name="generated")
    assert "\n" not in str(caught.value)
    assert "or a data set whose rows have an 'image'" in str(caught.value)


def test_a_row_without_a_picture_is_named_when_it_is_read() -> None:
    samples = read_samples(Rows([PIXELS[0], None, PIXELS[1, :, :, 0]]))
    for sample, what in ((samples[1], "a NoneType"), (samples[2], "a ndarray of uint8")):
        with pytest.raises(InputError, match=rf"images\[{sample.id}\] is {what}.*pass a Pillow"):
            sample.image.load()


def test_a_layout_is_of_folders_alone() -> None:
    with pytest.raises(UsageError, match=r"images is ndarray of 3 images, not layout 'geneval'"):
        read_samples(PIXELS, layout="geneval")
    with pytest.raises(UsageError, match="did you mean 'folder'"):
        read_samples(PIXELS, layout="foldr")


def test_a_set_is_described_in_a_few_words(tmp_path: Path) -> None:
    assert described(tmp_path) == str(tmp_path)
    assert described([tmp_path] * 3) == f"list of 3 {type(tmp_path).__name__}"
    assert described(torch.zeros(4, 3, 8, 8)) == "Tensor of 4 images"


@pytest.mark.parametrize("kind", ["tensor", "paths"])
def test_an_evaluation_takes_what_the_program_holds(kind: str, tmp_path: Path) -> None:
    paths = files(tmp_path / "set")
    source = paths if kind == "paths" else held(kind)
    values = [
        gm.evaluate(
            given, reference=given, metrics="fd-lite", device="cpu", cache=False, out=tmp_path / out
        )["fd-lite"].value
        for given, out in ((source, "held"), (tmp_path / "set", "stored"))
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-6)
    assert '"n": 3' in (tmp_path / "held" / "results.json").read_text()


def test_an_evaluation_refuses_what_is_no_set() -> None:
    with pytest.raises(InputError, match=r"generated is an int \(7\); pass a path"):
        gm.evaluate(7, metrics="psnr")
    with pytest.raises(InputError, match=r"reference is a float \(1.5\); pass a path"):
        gm.evaluate(PIXELS, reference=1.5, metrics="fd-lite")


# -- a row that raised ended the run ---------------------------------------------------------------


class Raising(Rows):
    """A data set of which some rows raise."""

    def __init__(self, images: list[Any], bad: dict[int, Exception]) -> None:
        super().__init__(images)
        self.bad = bad

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i in self.bad:
            raise self.bad[i]
        return super().__getitem__(i)


NOISE = np.random.default_rng(1).integers(0, 256, (12, 24, 20, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("disk gone"), "OSError: disk gone"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError("two\nlines"), "RuntimeError: two lines"),
        (StopIteration(), "StopIteration"),
    ],
)
@pytest.mark.parametrize("side", ["generated", "reference"])
def test_a_row_that_raises_is_a_sample_that_cannot_be_read(
    error: Exception, said: str, side: str
) -> None:
    sets = {"generated": Rows(list(NOISE)), "reference": Rows(list(NOISE[::-1]))}
    sets[side] = Raising(list(NOISE), {11: error})
    line = f"{side}[11] cannot be read: {said}; mend or remove it"

    def run(**more: Any) -> Any:
        return gm.evaluate(
            sets["generated"],
            reference=sets["reference"],
            metrics="fd-lite",
            device="cpu",
            cache=False,
            **more,
        )

    with pytest.raises(InputError, match=re.escape(line)) as caught:
        run()
    assert "\n" not in str(caught.value)
    report = run(on_error="skip")
    assert [failure.reason for failure in report.failures] == [line]
    assert report["fd-lite"].n == (11 if side == "generated" else 12)


def test_bytes_that_are_no_picture_in_a_hugging_face_column_are_named() -> None:
    datasets = pytest.importorskip("datasets")
    buffer = io.BytesIO()
    Image.fromarray(PIXELS[0]).save(buffer, "PNG")
    rows = [{"bytes": data, "path": None} for data in (b"xx", buffer.getvalue())]
    features = datasets.Features({"image": datasets.Image()})
    samples = read_samples(datasets.Dataset.from_dict({"image": rows}, features=features))
    with pytest.raises(InputError, match=r"images\[0\] cannot be read: UnidentifiedImageError: "):
        samples[0].image.load()
    assert (samples[1].image.load().pixels == PIXELS[0]).all()


def test_a_first_row_that_raises_hides_no_data_set() -> None:
    samples = read_samples(Raising(list(PIXELS), {0: OSError("gone")}))
    assert [sample.id for sample in samples] == ["0", "1", "2"]
    with pytest.raises(InputError, match=r"images\[0\] cannot be read: OSError: gone"):
        samples[0].image.size()
    nothing = Raising(list(PIXELS), dict.fromkeys(range(3), OSError("gone")))
    with pytest.raises(
        InputError, match=r"generated \(Raising of 3 images\) has no row .* OSError: gone; pass"
    ):
        list_samples(nothing, name="generated")
