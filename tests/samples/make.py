"""Image files of every kind, and broken ones, made in memory."""

from __future__ import annotations

import io
import struct
import zlib
from functools import cache

import numpy as np
from PIL import Image

from genmetrics.core.fields import FIELDS
from genmetrics.samples.attach import attach

W, H = 23, 14


def encode(image: Image.Image, fmt: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, fmt, **options)
    return buffer.getvalue()


def picture(mode: str = "RGB") -> Image.Image:
    """A picture without symmetry, so that any flip shows."""
    y, x = np.mgrid[0:H, 0:W]
    rgb = np.stack([x * 11, y * 18, (x + y) * 7], axis=2).astype(np.uint8)
    image = Image.fromarray(rgb)
    if mode in ("RGBA", "LA"):
        image = image.convert(mode)
        image.putalpha(Image.fromarray((x * 11).astype(np.uint8)))
        return image
    if mode == "I;16":
        return Image.fromarray((x * 2849 + y).astype(np.uint16))
    if mode == "I":
        return Image.fromarray((x * 2849 + y).astype(np.int32))
    if mode == "F":
        return Image.fromarray((x / (W - 1)).astype(np.float32))
    return image.convert(mode)


def with_orientation(value: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, bits: int, colour: int, rows: bytes, *extra: bytes) -> bytes:
    """A PNG from raw scanlines, to write what Pillow cannot."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            *extra,
            chunk(b"IDAT", zlib.compress(rows)),
            chunk(b"IEND", b""),
        ]
    )


def animation(fmt: str, **options) -> bytes:
    frames = [Image.new("RGB", (W, H), color) for color in ("red", "lime", "blue")]
    return encode(frames[0], fmt, save_all=True, append_images=frames[1:], **options)


@cache
def sound() -> dict[str, bytes]:
    """A valid file of every format and mode Pillow writes."""
    files: dict[str, bytes] = {}
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        files[f"png-{mode}"] = encode(picture(mode), "PNG")
    files["png-P-tRNS"] = encode(picture("P"), "PNG", transparency=3)
    files["png-P-alphas"] = encode(picture("P"), "PNG", transparency=bytes(range(0, 200)))
    files["png-L-tRNS"] = encode(picture("L"), "PNG", transparency=40)
    files["png-RGB-tRNS"] = encode(picture(), "PNG", transparency=(0, 0, 0))
    files["png-exif"] = encode(picture(), "PNG", exif=with_orientation(6))
    files["apng"] = animation("PNG")
    for mode in ("L", "RGB", "CMYK"):
        files[f"jpeg-{mode}"] = encode(picture(mode), "JPEG", quality=90)
    files["jpeg-YCCK"] = encode(picture("CMYK"), "JPEG", quality=90, subsampling=2)
    files["jpeg-progressive"] = encode(picture(), "JPEG", progressive=True)
    for value in range(1, 9):
        files[f"jpeg-exif-{value}"] = encode(picture(), "JPEG", exif=with_orientation(value))
    files["webp"] = encode(picture(), "WEBP")
    files["webp-lossless"] = encode(picture(), "WEBP", lossless=True)
    files["webp-alpha"] = encode(picture("RGBA"), "WEBP", lossless=True)
    files["webp-exif"] = encode(picture(), "WEBP", exif=with_orientation(8))
    files["webp-animated"] = animation("WEBP", lossless=True)
    files["gif"] = encode(picture("P"), "GIF")
    files["gif-transparent"] = encode(picture("P"), "GIF", transparency=3)
    files["gif-animated"] = animation("GIF")
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        files[f"bmp-{mode}"] = encode(picture(mode), "BMP")
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "LAB", "I;16", "I", "F"):
        files[f"tiff-{mode}"] = encode(picture(mode), "TIFF")
    # compressed, because Pillow 12 cannot read the plain one that it writes
    files["tiff-YCbCr"] = encode(picture("YCbCr"), "TIFF", compression="tiff_lzw")
    for how in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        files[f"tiff-{how}"] = encode(picture(), "TIFF", compression=how)
    files["tiff-I;16-lzw"] = encode(picture("I;16"), "TIFF", compression="tiff_lzw")
    files["tiff-exif"] = encode(picture(), "TIFF", exif=with_orientation(6))
    files["tiff-pages"] = animation("TIFF")
    for mode in ("1", "L", "RGB", "I;16"):
        files[f"ppm-{mode}"] = encode(picture(mode), "PPM")
    files["pfm"] = encode(picture("F"), "PPM")
    files["jp2"] = encode(picture(), "JPEG2000", irreversible=False)
    files["avif"] = encode(picture(), "AVIF", quality=90)
    return files


def absurd() -> dict[str, bytes]:
    """Headers that claim what cannot be."""
    rows = b"\0" + bytes(3)
    huge = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    bmp = bytearray(sound()["bmp-RGB"])

    def bmp_with(offset: int, form: str, value: int) -> bytes:
        copy = bytearray(bmp)
        struct.pack_into(form, copy, offset, value)
        return bytes(copy)

    signature = b"\x89PNG\r\n\x1a\n"
    gif = b"GIF89a" + struct.pack("<HH", W, H) + b"\0\0\0"
    tiff = b"II*\0" + struct.pack("<I", 8)
    return {
        "png 100000x100000": png(100_000, 100_000, 8, 2, rows),
        "png 0x0": png(0, 0, 8, 2, rows),
        "png 1x0": png(1, 0, 8, 2, rows),
        "png of 7 bits": png(1, 1, 7, 2, rows),
        "png of colour 9": png(1, 1, 8, 9, rows),
        "png wide": png(2**31, 1, 8, 2, rows),
        "png header only": signature + chunk(b"IHDR", huge[:0]),
        "png signature only": signature,
        "png without header": signature + chunk(b"IDAT", zlib.compress(rows)),
        "png without pixels": signature
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
        + chunk(b"IEND", b""),
        "png with junk pixels": png(4, 4, 8, 2, b"\0"),
        "png palette without palette": png(1, 1, 8, 3, b"\0\0"),
        "png with short tRNS": png(1, 1, 8, 2, rows, chunk(b"tRNS", b"\0")),
        "png with short acTL": png(1, 1, 8, 2, rows, chunk(b"acTL", b"\0")),
        "png with acTL of no frames": png(1, 1, 8, 2, rows, chunk(b"acTL", bytes(8))),
        "png chunk of 4 GB": signature + b"\xff\xff\xff\xffIHDR",
        "bmp negative width": bmp_with(18, "<i", -W),
        "bmp huge height": bmp_with(22, "<i", 2**31 - 1),
        "bmp huge negative height": bmp_with(22, "<i", -(2**31)),
        "bmp 0 width": bmp_with(18, "<i", 0),
        "bmp of 5 bits": bmp_with(28, "<H", 5),
        "bmp of compression 77": bmp_with(30, "<I", 77),
        "bmp pixels beyond the end": bmp_with(10, "<I", 10**6),
        "bmp header of 7 bytes": bmp_with(14, "<I", 7),
        "gif without frames": gif + b";",
        "gif without end": gif,
        "gif 0x0": b"GIF89a" + bytes(7) + b";",
        "gif with empty frame": gif + b"," + bytes(9) + b"\x02\0;",
        "gif frame of 65535": gif + b"," + struct.pack("<HHHH", 0, 0, 65535, 65535) + b"\0\2\0;",
        "tiff without directory": tiff,
        "tiff directory beyond the end": b"II*\0" + struct.pack("<I", 10**9),
        "tiff empty directory": tiff + bytes(6),
        "tiff directory of itself": b"II*\0" + struct.pack("<I", 0) + bytes(30),
        "bigtiff nonsense": b"II+\0" + bytes(20),
        "jpeg start only": b"\xff\xd8\xff",
        "jpeg without picture": b"\xff\xd8\xff\xd9",
        "jpeg 0x0": b"\xff\xd8\xff\xc0\x00\x11\x08\0\0\0\0\x03\x01\x11\0\x02\x11\0\x03\x11\0"
        b"\xff\xda",
        "jpeg segment of no length": b"\xff\xd8\xff\xe1\x00\x00",
        "webp nothing inside": b"RIFF\x04\0\0\0WEBP",
        "webp huge": b"RIFF\xff\xff\xff\xffWEBPVP8 " + bytes(30),
        "ppm words": b"P6 wide high 255\n",
        "ppm negative": b"P6 -3 3 255\n" + bytes(27),
        "ppm huge": b"P6 100000 100000 255\n" + bytes(9),
        "ppm maximum 0": b"P6 1 1 0\n" + bytes(3),
        "ppm maximum 70000": b"P5 1 1 70000\n" + bytes(3),
        "ppm plain junk": b"P3 1 1 255\n1 x 2",
        "pfm scale 0": b"Pf 1 1 0\n" + bytes(4),
        "pfm scale nan": b"Pf 1 1 nan\n" + bytes(4),
        "jp2 box only": b"\0\0\0\x0cjP  \r\n\x87\n",
        "j2k start only": b"\xff\x4f\xff\x51",
        "avif box only": b"\0\0\0\x1cftypavif" + bytes(16),
    }


def broken() -> dict[str, bytes]:
    """Files that are cut, empty, absurd or something else altogether."""
    files: dict[str, bytes] = {}
    for name, data in sound().items():
        for tenth in range(10):
            files[f"{name} cut at {tenth}/10"] = data[: len(data) * tenth // 10]
    random = np.random.default_rng(5)
    for length in (1, 7, 16, 100, 5000):
        files[f"{length} random bytes"] = random.bytes(length)
        files[f"{length} zeros"] = bytes(length)
    starts = (
        b"\xff\xd8\xff\xe0",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"BM",
        b"II*\0",
        b"MM\0*",
        b"P6 ",
    )
    for start in (*starts, b"RIFF\0\1\0\0WEBPVP8L", b"\0\0\0\x20ftypavif", b"\xff\x4f\xff\x51"):
        for length in (20, 3000):
            files[f"{start!r} and {length} random bytes"] = start + random.bytes(length)
    files["text"] = b"a picture of a cat\n"
    files["html"] = b"<!DOCTYPE html><html><body>404</body></html>"
    files["pointer"] = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    files["pdf"] = b"%PDF-1.7\n"
    files["postscript"] = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n"
    return files | absurd()


def attach_prompts(samples, source, **how):
    return attach(samples, FIELDS["prompt"], source, **how)


def attach_pairs(samples, source, **how):
    return attach(samples, FIELDS["reference"], source, **how)


def attach_masks(samples, source, **how):
    return attach(samples, FIELDS["mask"], source, **how)
