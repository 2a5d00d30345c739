"""Which files the tools behind named variants see otherwise than our loader does."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from genmetrics.core.registry import registered
from genmetrics.metrics._tools import TOOLS, conversion_note
from genmetrics.samples.image import decode

PHOTO = np.random.default_rng(0).integers(0, 256, (12, 16, 3), np.uint8)
RGB = Image.fromarray(PHOTO)
GREY16 = Image.fromarray(PHOTO[..., 0].astype(np.uint16) * 257)


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def with_alpha(level: int) -> Image.Image:
    image = RGB.convert("RGBA")
    image.putalpha(level)
    return image


FILES = {
    "plain.png": (RGB, {}),
    "plain.jpg": (RGB, {"quality": 95}),
    "grey.png": (RGB.convert("L"), {}),
    "bits.png": (RGB.convert("1"), {}),
    "palette.png": (RGB.quantize(16), {}),
    "cmyk.jpg": (RGB.convert("CMYK"), {"quality": 95}),
    "frames.gif": (RGB, {"save_all": True, "append_images": [RGB.rotate(180)]}),
    "opaque.png": (with_alpha(255), {}),
    "transparent.png": (with_alpha(100), {}),
    "clear_colour.png": (RGB.quantize(4), {"transparency": 0}),
    "upright.jpg": (RGB, {"exif": turned(1)}),
    "turned.jpg": (RGB, {"exif": turned(6)}),
    "mirrored.png": (RGB, {"exif": turned(2)}),
    "grey16.png": (GREY16, {}),
    "numbers.tif": (GREY16.convert("I"), {}),
    "floats.tif": (Image.fromarray(PHOTO[..., 0].astype(np.float32) / 255), {}),
}


@pytest.mark.parametrize("name", FILES)
def test_there_is_a_note_where_the_tools_see_other_pixels_and_nowhere_else(tmp_path, name):
    """clean-fid, torch-fidelity and pytorch-fid all read ``Image.open(path).convert("RGB")``."""
    image, options = FILES[name]
    image.save(tmp_path / name, **options)
    with Image.open(tmp_path / name) as opened:
        theirs = np.asarray(opened.convert("RGB"))
    ours = decode((tmp_path / name).read_bytes(), name)
    counts = dict.fromkeys(ours.conversions, 1)
    assert np.array_equal(ours.pixels, theirs) == (conversion_note("fid@tf1", counts) is None)


def test_the_note_counts_and_names_the_tool():
    counts = {"exif_rotated": 3, "alpha_on_white": 2, "palette": 7, "grayscale": 4}
    note = conversion_note("kid@pytorch-fid:subsets=3", counts)
    assert note == (
        "3 images turned upright, 2 laid on white, which pytorch-fid does not do: not comparable"
        " with it on these files"
    )
    assert "clean-fid" in str(conversion_note("fid@clean", {"exif_rotated": 1}))
    assert str(conversion_note("fid@clean", {"exif_rotated": 1})).startswith("1 image turned")


@pytest.mark.parametrize("metric", ["fid@torchmetrics", "psnr", "fd-lite", "ssim@wang"])
def test_without_a_tool_that_reads_files_there_is_no_note(metric):
    assert conversion_note(metric, {"exif_rotated": 3, "alpha_on_white": 2}) is None


def test_the_high_byte_of_colour_is_everybodys():
    assert conversion_note("fid@clean", {"16bit": 3}) is None
    assert "1 image scaled from 16" in str(
        conversion_note("fid@clean", {"16bit": 3, "grayscale": 1})
    )


def test_every_tool_is_a_variant():
    variants = {variant for metric in registered().values() for variant in metric.variants}
    assert TOOLS.keys() <= variants
