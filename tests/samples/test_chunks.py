"""What stands beside the pixels: texts and profiles, which never decide about them."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms

from genmetrics.samples.image import decode, image_size
from genmetrics.samples.profile import profile_is_srgb
from tests.samples.make import H, W, chunk, encode, picture, sound, with_orientation

RGB = np.asarray(picture())
SIGNATURE = 8
FIRST = SIGNATURE + 25  # behind IHDR


def before(data: bytes, extra: bytes) -> bytes:
    return data[:FIRST] + extra + data[FIRST:]


def behind(data: bytes, extra: bytes) -> bytes:
    return data[:-12] + extra + data[-12:]


def packed(size: int) -> bytes:
    """A stream that unpacks to so many bytes."""
    made = zlib.compressobj(9)
    return b"".join([*(made.compress(bytes(1 << 20)) for _ in range(size >> 20)), made.flush()])


# -- good pictures with the workflow of an image generator in a text were refused ------------------

ANCILLARY = {
    "zTXt": chunk(b"zTXt", b"workflow\0\0" + packed(3 << 20)),
    "iTXt": chunk(b"iTXt", b"workflow\0\1\0\0\0" + packed(3 << 20)),
    "iCCP": chunk(b"iCCP", b"profile\0\0" + packed(3 << 20)),
    "64 MB of text": chunk(b"zTXt", b"t\0\0" + packed(1 << 20)) * 66,
    "damaged text": chunk(b"zTXt", b"t\0\0 no stream"),
    "text of a method that does not exist": chunk(b"zTXt", b"t\0\x09" + packed(0)),
    "damaged profile": chunk(b"iCCP", b"p\0\0 no stream"),
    "a wrong checksum": chunk(b"tEXt", b"a\0b")[:-1] + b"?",
    "short": b"".join(chunk(kind, b"\0") for kind in (b"gAMA", b"cHRM", b"sRGB", b"pHYs", b"tIME")),
    "private": chunk(b"caBX", bytes(2 << 20)),
}


@pytest.mark.parametrize("kind", ANCILLARY)
@pytest.mark.parametrize("place", [before, behind])
@pytest.mark.parametrize("name", ["png-RGB", "png-P-tRNS", "png-exif", "apng"])
def test_chunks_beside_the_picture_do_not_decide_about_it(kind, place, name):
    data = sound()[name]
    full = place(data, ANCILLARY[kind])
    expected, found = decode(data, name), decode(full, name)
    np.testing.assert_array_equal(found.pixels, expected.pixels)
    assert found.conversions == expected.conversions
    assert image_size(full) == image_size(data)


def test_nothing_is_unpacked_to_no_end(tmp_path):
    bomb = chunk(b"zTXt", b"t\0\0" + packed(64 << 20)) + chunk(b"iCCP", b"p\0\0" + packed(64 << 20))
    path = tmp_path / "a.png"
    path.write_bytes(before(sound()["png-RGB"], bomb))
    decode(sound()["png-RGB"], "warm")
    tracemalloc.start()
    try:
        decode(path.read_bytes(), "bomb")
        image_size(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_orientation_counts_wherever_it_stands():
    block = with_orientation(6).tobytes().removeprefix(b"Exif\0\0")
    chunks = ANCILLARY["zTXt"] + chunk(b"eXIf", block)
    for place in (before, behind):
        data = place(sound()["png-RGB"], chunks)
        assert decode(data, "turned").pixels.shape == (W, H, 3)
        assert image_size(data) == (H, W)


def test_damage_of_the_picture_still_counts():
    from genmetrics.core.errors import InputError

    data = before(sound()["png-RGB"], ANCILLARY["zTXt"])
    at = data.index(b"IDAT")
    for broken in (data[: at + 30], data[: at + 20] + b"?" + data[at + 21 :]):
        with pytest.raises(InputError, match="cannot be decoded"):
            decode(broken, "broken")


# -- profiles other than sRGB were ignored without a word ------------------------------------------

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
PRIMARIES = {
    "srgb": ((0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141)),
    "p3": ((0.5151, 0.2412, -0.0011), (0.2920, 0.6922, 0.0419), (0.1571, 0.0666, 0.7841)),
    "adobe": ((0.6097, 0.3111, 0.0195), (0.2053, 0.6257, 0.0609), (0.1492, 0.0632, 0.7446)),
}


def fixed(*numbers: float) -> bytes:
    return b"".join(struct.pack(">i", round(number * 65536)) for number in numbers)


def power(gamma: float) -> bytes:
    return b"curv" + bytes(4) + struct.pack(">IH", 1, round(gamma * 256))


def formula(form: int, *numbers: float) -> bytes:
    return b"para" + bytes(4) + struct.pack(">HH", form, 0) + fixed(*numbers)


def table(count: int) -> bytes:
    x = np.linspace(0, 1, count)
    y = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    return b"curv" + bytes(4) + struct.pack(f">I{count}H", count, *np.rint(y * 65535).astype(int))


USUAL = formula(3, 2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)


def profile(space: bytes, **tags: bytes) -> bytes:
    """A profile of these tags."""
    body, entries = b"", b""
    start = 132 + 12 * len(tags)
    for name, data in tags.items():
        entries += name.encode() + struct.pack(">II", start + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    head = bytearray(128)
    head[16:20], head[36:40] = space, b"acsp"
    return bytes(head) + struct.pack(">I", len(tags)) + entries + body


def colours(primaries: str, curve: bytes) -> bytes:
    points = (b"XYZ " + bytes(4) + fixed(*point) for point in PRIMARIES[primaries])
    tags = dict(zip(("rXYZ", "gXYZ", "bXYZ"), points, strict=True))
    return profile(b"RGB ", **tags, rTRC=curve, gTRC=curve, bTRC=curve)


PROFILES = {
    "as lcms writes it": (SRGB, True),
    "formula": (colours("srgb", USUAL), True),
    "formula with offsets": (
        colours("srgb", formula(4, 2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045, 0, 0)),
        True,
    ),
    "table": (colours("srgb", table(1024)), True),
    "small table": (colours("srgb", table(26)), True),
    "grey": (profile(b"GRAY", kTRC=USUAL), True),
    "tables that say so": (profile(b"RGB ", desc="sRGB v4".encode("utf-16-be")), True),
    "no profile": (b"x" * 3000, True),
    "nothing": (b"", True),
    "L*a*b*": (profile(b"Lab "), True),
    "Display P3": (colours("p3", USUAL), False),
    "Adobe RGB": (colours("adobe", power(2.2)), False),
    "gamma 2.2": (colours("srgb", power(2.2)), False),
    "linear": (colours("srgb", power(1.0)), False),
    "linear without a table": (colours("srgb", b"curv" + bytes(8)), False),
    "power with an offset": (colours("srgb", formula(1, 1.8, 1.1, -0.1)), False),
    "power with two": (colours("srgb", formula(2, 1.8, 1.0, -0.1, 0.1)), False),
    "plain power": (colours("srgb", formula(0, 1.8)), False),
    "linear grey": (profile(b"GRAY", kTRC=power(1.0)), False),
    "tables that say nothing": (profile(b"RGB ", desc=b"printer"), False),
    "ink": (profile(b"CMYK"), False),
    "cut": (colours("srgb", USUAL)[:250], False),
    "grey without a curve": (profile(b"GRAY"), False),
    "a formula that does not exist": (colours("srgb", formula(9, 1.0)), False),
    "a curve that does not exist": (colours("srgb", b"wave" + bytes(20)), False),
    "a division by zero": (colours("srgb", formula(1, 2.4, 0.0, 0.1)), False),
    "a table beyond the end": (colours("srgb", b"curv" + bytes(4) + b"\xff" * 4), False),
}


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_judged_by_its_numbers(name):
    data, expected = PROFILES[name]
    assert profile_is_srgb(data) is expected


@pytest.mark.parametrize("fmt", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_pixels_stay_as_stored_and_other_profiles_are_counted(fmt):
    options = {"lossless": True} if fmt == "WEBP" else {}
    plain = decode(encode(picture(), fmt, **options), fmt)
    for name, counted in (("as lcms writes it", ()), ("Display P3", ("profile_not_srgb",))):
        found = decode(encode(picture(), fmt, icc_profile=PROFILES[name][0], **options), fmt)
        np.testing.assert_array_equal(found.pixels, plain.pixels)
        assert found.conversions == plain.conversions + counted
    grey = encode(Image.new("L", (4, 4), 9), fmt, icc_profile=PROFILES["linear grey"][0], **options)
    assert "profile_not_srgb" in decode(grey, fmt).conversions


def points(*red_and_green: int) -> bytes:
    return struct.pack(">8I", 31270, 32900, *red_and_green, 15000, 6000)


@pytest.mark.parametrize(
    ("chunks", "other"),
    [
        ({"sRGB": b"\0"}, False),
        ({"gAMA": struct.pack(">I", 45455)}, False),
        ({"gAMA": struct.pack(">I", 100_000)}, True),
        ({"sRGB": b"\0", "gAMA": struct.pack(">I", 100_000)}, False),
        ({"cICP": b"\x01\x0d\0\1"}, False),
        ({"cICP": b"\x0c\x0d\0\1", "sRGB": b"\0"}, True),
        ({"cHRM": points(64000, 33000, 30000, 60000)}, False),
        ({"cHRM": points(68000, 32000, 26500, 69000)}, True),
    ],
)
def test_chunks_of_a_png_say_what_its_colours_are(chunks, other):
    extra = b"".join(chunk(kind.encode(), data) for kind, data in chunks.items())
    pixels, conversions = decode(before(sound()["png-RGB"], extra), "x")
    np.testing.assert_array_equal(pixels, RGB)
    assert conversions == (("profile_not_srgb",) if other else ())
