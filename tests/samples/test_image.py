"""Decoding: every kind of image file Pillow can write comes back as upright RGB."""

from __future__ import annotations

import io
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile, ImageOps

from genmetrics.core.errors import InputError
from genmetrics.samples.image import decode, image_size, load_image
from tests.samples.make import H, W, chunk, encode, picture, png, sound, with_orientation

RGB = np.asarray(picture())
GREY = np.repeat(np.asarray(picture("L"))[:, :, None], 3, axis=2)
RAMP = np.repeat((np.arange(W) * 11)[None, :], H, axis=0).astype(np.uint8)


def blended(rgb: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    a = alpha[:, :, None].astype(np.float64) / 255
    return np.rint(rgb * a + 255.0 * (1 - a)).astype(np.uint8)


@pytest.mark.parametrize("name", sound())
def test_every_kind_decodes_upright_and_its_header_says_the_size(name):
    data = sound()[name]
    pixels, conversions = decode(data, name)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    turned = "exif_rotated" in conversions and pixels.shape == (W, H, 3)
    assert turned or pixels.shape == (H, W, 3)
    assert image_size(data) == (pixels.shape[1], pixels.shape[0])
    assert len(set(conversions)) == len(conversions)


@pytest.mark.parametrize(
    ("name", "expected", "conversions"),
    [
        ("png-RGB", RGB, ()),
        ("png-L", GREY, ("grayscale",)),
        ("png-1", np.asarray(picture("1").convert("RGB")), ("1bit", "grayscale")),
        ("png-P", np.asarray(picture("P").convert("RGB")), ("palette",)),
        ("png-RGBA", blended(RGB, RAMP), ("alpha_on_white",)),
        ("png-LA", blended(GREY, RAMP), ("grayscale", "alpha_on_white")),
        ("bmp-RGB", RGB, ()),
        ("bmp-L", GREY, ("palette",)),
        ("ppm-RGB", RGB, ()),
        ("ppm-L", GREY, ("grayscale",)),
        ("webp-lossless", RGB, ()),
        ("webp-alpha", blended(RGB, RAMP), ("alpha_on_white",)),
        ("tiff-RGB", RGB, ()),
        ("tiff-tiff_lzw", RGB, ()),
        ("tiff-tiff_adobe_deflate", RGB, ()),
        ("tiff-packbits", RGB, ()),
        ("tiff-RGBA", blended(RGB, RAMP), ("alpha_on_white",)),
        ("tiff-CMYK", RGB, ("cmyk",)),
        ("jp2", RGB, ()),
        ("gif", np.asarray(picture("P").convert("RGB")), ("palette",)),
    ],
)
def test_lossless_files_give_the_exact_pixels(name, expected, conversions):
    if name == "bmp-L" and "palette" not in decode(sound()[name], name).conversions:
        conversions = ("grayscale",)  # Pillow reads a grey palette as grey
    pixels, found = decode(sound()[name], name)
    np.testing.assert_array_equal(pixels, expected)
    assert found == conversions


@pytest.mark.parametrize("name", ["jpeg-RGB", "jpeg-progressive", "webp", "tiff-jpeg", "avif"])
def test_lossy_rgb_is_what_pillow_decodes(name):
    direct = np.asarray(Image.open(io.BytesIO(sound()[name])).convert("RGB"))
    pixels, conversions = decode(sound()[name], name)
    np.testing.assert_array_equal(pixels, direct)
    assert conversions == ()


@pytest.mark.parametrize("name", ["jpeg-CMYK", "jpeg-YCCK"])
def test_cmyk_jpeg_as_adobe_writes_it_is_not_a_negative(name):
    pixels, conversions = decode(sound()[name], name)
    assert conversions == ("cmyk",)
    assert np.abs(pixels.astype(int) - RGB).mean() < 6


def test_ycbcr_and_lab_come_back_as_the_same_colours():
    pixels, conversions = decode(sound()["tiff-YCbCr"], "tiff-YCbCr")
    assert np.abs(pixels.astype(int) - RGB).max() <= 4  # Pillow's own round trip
    pixels, conversions = decode(sound()["tiff-LAB"], "tiff-LAB")
    assert np.abs(pixels.astype(int) - RGB).mean() < 8  # 8-bit LAB cannot hold every colour
    assert conversions == ("lab",)


# -- a 16-bit PNG turned white: everything above level 255 was clipped -----------------------------


@pytest.mark.parametrize("fmt", ["PNG", "TIFF", "PPM"])
def test_16_bit_is_scaled_and_not_clipped(fmt):
    ramp = Image.fromarray(np.repeat((np.arange(256) * 257)[None], 4, axis=0).astype(np.uint16))
    pixels, conversions = decode(encode(ramp, fmt), "ramp")
    np.testing.assert_array_equal(pixels, np.tile(np.arange(256)[None, :, None], (4, 1, 3)))
    assert conversions == ("16bit", "grayscale")


@pytest.mark.parametrize("order", ["<u2", ">u2"])
def test_16_bit_is_rounded_to_the_nearest_level(order):
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    data = encode(Image.fromarray(values.astype(order)), "TIFF")
    pixels = decode(data, "all").pixels
    np.testing.assert_array_equal(pixels[:, :, 1], np.rint(values / 257.0).astype(np.uint8))


def test_16_bit_colour_keeps_the_high_byte():
    values = np.array([[0, 255, 256, 65535, 40000, 12345]], dtype=">u2")
    data = png(2, 1, 16, 2, b"\0" + values.tobytes())
    pixels, conversions = decode(data, "deep")
    np.testing.assert_array_equal(pixels.reshape(-1), values[0] >> 8)
    assert conversions == ("16bit",)
    pixels, conversions = decode(
        png(1, 1, 16, 4, b"\0" + np.array([40000, 65535], ">u2").tobytes()), "deep grey with alpha"
    )
    np.testing.assert_array_equal(pixels.reshape(-1), 40000 >> 8)
    assert conversions == ("16bit", "grayscale")


def test_tiff_with_white_as_zero_is_no_negative():
    values = (np.arange(256) * 257).astype("<u2")[None]
    data = bytearray(encode(Image.fromarray(values), "TIFF"))
    entry = data.index(struct.pack("<HHI", 262, 3, 1))
    struct.pack_into("<H", data, entry + 8, 0)
    pixels, _ = decode(bytes(data), "white is zero")
    np.testing.assert_array_equal(pixels[0, :, 0], np.arange(255, -1, -1))


def test_floats_of_0_to_1_and_16_bit_numbers_in_32_bits_have_one_meaning():
    pixels, conversions = decode(sound()["tiff-F"], "f")
    np.testing.assert_array_equal(pixels[0, :, 0], np.rint(np.arange(W) / (W - 1) * 255))
    assert conversions == ("float", "grayscale")
    pixels, conversions = decode(sound()["tiff-I"], "i")
    assert pixels[0, 22, 0] == round(22 * 2849 / 257)
    assert conversions == ("32bit", "grayscale")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.float32([[0, 255]]), "from 0 to 255, expected 0 to 1"),
        (np.float32([[-0.5, 1]]), "from -0.5 to 1"),
        (np.float32([[np.nan, 1]]), "nan"),
        (np.int32([[0, 70000]]), "from 0 to 70000"),
        (np.int32([[-1, 5000]]), "from -1"),
        (np.int32([[0, 200]]), "8-bit or 16-bit"),
    ],
)
def test_numbers_without_a_known_white_are_refused_and_not_guessed(values, reason):
    with pytest.raises(InputError, match=reason) as caught:
        decode(encode(Image.fromarray(values), "TIFF"), "odd.tif")
    assert str(caught.value).startswith("odd.tif ")


# -- dropping alpha compared colours nobody sees ---------------------------------------------------


@pytest.mark.parametrize("fmt", ["PNG", "WEBP", "TIFF"])
def test_hidden_colours_vanish_on_white(fmt):
    for colour in ((255, 0, 0, 0), (0, 0, 255, 0)):
        options = {"lossless": True, "exact": True} if fmt == "WEBP" else {}
        data = encode(Image.new("RGBA", (8, 8), colour), fmt, **options)
        pixels, conversions = decode(data, "clear")
        assert (pixels == 255).all()
        assert conversions == ("alpha_on_white",)


def test_half_transparent_red_is_pink():
    pixels, _ = decode(encode(Image.new("RGBA", (2, 2), (255, 0, 0, 128)), "PNG"), "red")
    np.testing.assert_array_equal(pixels[0, 0], (255, 127, 127))


def test_alpha_of_every_kind_lands_on_white():
    grey = encode(Image.new("LA", (2, 2), (30, 0)), "PNG")
    np.testing.assert_array_equal(decode(grey, "LA").pixels, 255)
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.putpixel((1, 0), 1)
    for transparency in (0, b"\x00\xff"):
        pixels, found = decode(encode(palette, "PNG", transparency=transparency), "P")
        np.testing.assert_array_equal(pixels[0], [(255, 255, 255), (200, 100, 50)])
        assert found == ("palette", "alpha_on_white")
    gif = decode(encode(palette, "GIF", transparency=0), "gif")
    np.testing.assert_array_equal(gif.pixels[0], [(255, 255, 255), (200, 100, 50)])


@pytest.mark.parametrize(
    ("bits", "colour", "row", "clear", "expected"),
    [
        (1, 0, b"\x40", [0], [255, 255]),  # pixels 0 1
        (1, 0, b"\x40", [1], [0, 255]),
        (2, 0, b"\x60", [1], [255, 170]),  # pixels 1 2
        (4, 0, b"\x3a", [3], [255, 170]),  # pixels 3 10
        (8, 0, b"\x03\x0a", [3], [255, 10]),
        (16, 0, b"\x03\x03\x0a\x0a", [0x0303], [255, 10]),
        (8, 2, b"\x03\x03\x03\x0a\x0a\x0a", [3, 3, 3], [255, 10]),
        (16, 2, b"\x03\x00" * 3 + b"\x0a\x00" * 3, [0x300] * 3, [255, 10]),
    ],
)
def test_a_transparent_colour_is_compared_in_the_numbers_of_the_file(
    bits, colour, row, clear, expected
):
    key = chunk(b"tRNS", struct.pack(f">{len(clear)}H", *clear))
    pixels, conversions = decode(png(2, 1, bits, colour, b"\0" + row, key), "key")
    np.testing.assert_array_equal(pixels[0, :, 0], expected)
    assert "alpha_on_white" in conversions


@pytest.mark.parametrize("interlaced", [False, True])
def test_a_transparent_colour_of_16_bits_does_not_take_its_neighbours_along(interlaced):
    """A dark gradient with black as the transparent colour: all of it turned white."""
    levels = np.repeat(np.maximum(np.arange(-7, 57), 0)[:, None] * 3, 3, axis=1).astype(">u2")
    key = chunk(b"tRNS", bytes(6))
    if interlaced:  # one row: passes 1, 2, 4 and 6 of Adam7
        passes = (levels[start::step] for start, step in ((0, 8), (4, 8), (2, 4), (1, 2)))
        rows = b"".join(b"\0" + row.tobytes() for row in passes)
        header = struct.pack(">IIBBBBB", 64, 1, 16, 2, 0, 0, 1)
        data = png(64, 1, 16, 2, rows, key)
        data = data[:8] + chunk(b"IHDR", header) + data[33:]
    else:
        data = png(64, 1, 16, 2, b"\0" + levels.tobytes(), key)
    pixels, conversions = decode(data, "dark")
    white = (pixels == 255).all(axis=2)[0]
    assert white.tolist() == [True] * 8 + [False] * 56
    np.testing.assert_array_equal(pixels[0, 8:], 0)
    assert conversions == ("16bit", "alpha_on_white")
    absent = chunk(b"tRNS", struct.pack(">3H", 1, 2, 3))
    pixels, conversions = decode(png(64, 1, 16, 2, b"\0" + levels.tobytes(), absent), "dark")
    assert not pixels.any()
    assert conversions == ("16bit",)


def test_numbers_with_a_sign_are_not_taken_for_high_bits():
    data = encode(picture("L"), "TIFF", tiffinfo={339: 2})
    with pytest.raises(InputError, match="holds signed 8-bit numbers"):
        decode(data, "signed")


def test_opaque_alpha_is_no_conversion():
    pixels, conversions = decode(encode(Image.new("RGBA", (2, 2), (1, 2, 3, 255)), "PNG"), "x")
    np.testing.assert_array_equal(pixels[0, 0], (1, 2, 3))
    assert conversions == ()


# -- phone pictures entered sideways ---------------------------------------------------------------


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("fmt", ["PNG", "TIFF", "JPEG", "WEBP"])
def test_exif_orientations_are_undone(value, fmt):
    lossless = {"lossless": True} if fmt == "WEBP" else {}
    data = encode(picture(), fmt, exif=with_orientation(value), **lossless)
    plain = Image.open(io.BytesIO(data))
    expected = np.asarray(ImageOps.exif_transpose(plain).convert("RGB"))
    pixels, conversions = decode(data, "phone")
    np.testing.assert_array_equal(pixels, expected)
    assert conversions == (() if value == 1 else ("exif_rotated",))
    assert image_size(data) == (expected.shape[1], expected.shape[0])


def test_orientation_written_behind_the_pixels_counts():
    exif = with_orientation(6).tobytes().removeprefix(b"Exif\0\0")
    data = sound()["png-RGB"]
    end = data.index(b"IEND") - 4
    data = data[:end] + chunk(b"eXIf", exif) + data[end:]
    assert decode(data, "late").pixels.shape == (W, H, 3)
    assert image_size(data) == (H, W)


@pytest.mark.parametrize(
    "exif",
    [b"", b"II*\0", b"II*\0\xff\xff\xff\xff", b"nonsense", b"MM\0*\0\0\0\x08\0\x03\x01\x12\0\3\0"],
)
def test_damaged_exif_means_upright(exif):
    data = encode(picture(), "JPEG", exif=b"Exif\0\0" + exif)
    pixels, conversions = decode(data, "odd")
    assert pixels.shape == (H, W, 3)
    assert conversions == ()


@pytest.mark.parametrize("name", ["gif-animated", "webp-animated", "apng", "tiff-pages"])
def test_of_animations_and_pages_the_first_counts(name):
    pixels, conversions = decode(sound()[name], name)
    np.testing.assert_array_equal(pixels, np.full((H, W, 3), (255, 0, 0)))
    assert "first_frame" in conversions


def test_a_photo_with_a_second_picture_inside_is_the_first_picture():
    frames = [Image.new("RGB", (W, H), colour) for colour in ("red", "blue")]
    data = encode(frames[0], "MPO", save_all=True, append_images=frames[1:], quality=95)
    pixels, conversions = decode(data, "phone.jpg")
    assert pixels[..., 0].min() > 250
    assert conversions == ()


# -- the file loader -------------------------------------------------------------------------------


def test_load_image_gives_red_first_and_channels_first(tmp_path):
    path = tmp_path / "red.png"
    Image.new("RGB", (5, 3), (255, 0, 0)).save(path)
    for given in (path, str(path)):
        image = load_image(given)
        assert image.shape == (3, 3, 5)
        assert image.dtype == torch.uint8
        assert image.is_contiguous()
        assert image[0].min() == 255
        assert image[1:].max() == 0


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1)])
def test_tiny_images_own_their_memory(tmp_path, size):
    path = tmp_path / "tiny.png"
    Image.new("RGB", size, (9, 9, 9)).save(path)
    image = load_image(path)
    image += 1  # raises, or touches Pillow's memory, if the tensor is only a view
    assert image.unique().tolist() == [10]


def test_the_content_decides_and_not_the_suffix(tmp_path):
    path = tmp_path / "photo.JPG"
    path.write_bytes(sound()["png-RGB"])
    np.testing.assert_array_equal(load_image(path).permute(1, 2, 0), RGB)


def test_damaged_images_are_not_scored_because_the_program_tolerates_them(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(InputError, match="LOAD_TRUNCATED_IMAGES"):
        decode(sound()["jpeg-RGB"], "x")


def test_pillows_size_guard_holds_and_is_silent_below_its_error(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", W * H - 1)  # a warning for Image.open
    for name in ("png-RGB", "jpeg-RGB", "webp", "bmp-RGB", "gif"):
        assert decode(sound()[name], name).pixels.shape == (H, W, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", W * H // 2 - 1)
    with pytest.raises(InputError, match=rf"^big\.png claims {W}×{H} pixels"):
        decode(sound()["png-RGB"], "big.png")
    with pytest.raises(InputError, match="guard"):
        image_size(sound()["jpeg-RGB"])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert decode(sound()["png-RGB"], "big.png").pixels.shape == (H, W, 3)


def test_nothing_is_printed_and_no_state_of_pillow_changes(tmp_path):
    paths = []
    for name in ("png with acTL of no frames", "tiff-RGB", "phone"):
        from tests.samples.make import absurd

        data = {**absurd(), **sound(), "phone": encode(picture(), "MPO")}[name]
        paths.append(tmp_path / f"{len(paths)}.png")
        paths[-1].write_bytes(data)
    code = (
        "import sys\nfrom PIL import Image, ImageFile\n"
        "before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)\n"
        f"Image.MAX_IMAGE_PIXELS = {W * H - 1}\n"
        "from genmetrics.samples.image import load_image\n"
        "for path in sys.argv[1:]: load_image(path)\n"
        f"assert Image.MAX_IMAGE_PIXELS == {W * H - 1}\n"
        "assert ImageFile.LOAD_TRUNCATED_IMAGES == before[1]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
