"""Whether the colours of a file are sRGB, as pixels without a profile are taken to be."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

_MOST = 1 << 18  # bytes read of a profile; those of sRGB have a few thousand, some have tables
_D50 = {  # red, green and blue of sRGB as profiles give them, adapted to D50
    b"rXYZ": (0.4361, 0.2225, 0.0139),
    b"gXYZ": (0.3851, 0.7169, 0.0971),
    b"bXYZ": (0.1431, 0.0606, 0.7141),
}
_CHROMATICITIES = (0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06)
_CURVES = (b"rTRC", b"gTRC", b"bTRC")
_AT = np.linspace(0, 1, 9)
_LINEAR = np.where(_AT <= 0.04045, _AT / 12.92, ((_AT + 0.055) / 1.055) ** 2.4)


def png_is_srgb(colour: Mapping[bytes, bytes]) -> bool:
    """Judge by the chunks of a PNG; what outranks the others counts, as the standard says."""
    if b"cICP" in colour:
        return colour[b"cICP"][:2] == b"\x01\x0d"  # primaries of BT.709, curve of sRGB
    if b"iCCP" in colour:
        return profile_is_srgb(_inflated(colour[b"iCCP"]))
    if b"sRGB" in colour:
        return True
    gamma = _numbers(colour.get(b"gAMA", b""), 1)
    points = _numbers(colour.get(b"cHRM", b""), 8)
    return all(
        not found or np.allclose(found, right, rtol=0, atol=0.005)
        for found, right in ((gamma, (1 / 2.2,)), (points, _CHROMATICITIES))
    )


def _numbers(chunk: bytes, count: int) -> list[float]:
    if len(chunk) != 4 * count:
        return []
    return [number / 100_000 for number in struct.unpack(f">{count}I", chunk)]


def _inflated(chunk: bytes) -> bytes:
    """Unpack the profile of an iCCP chunk, as far as it is needed; empty where it is damaged."""
    packed = chunk.partition(b"\0")[2][1:]
    try:
        return zlib.decompressobj().decompress(packed, _MOST)
    except zlib.error:
        return b""


@lru_cache(maxsize=16)
def profile_is_srgb(profile: bytes) -> bool:
    """Judge an ICC profile by its numbers: primaries to 0.003 and curve to 0.004 of white.

    What is no profile says nothing about the colours, so they are sRGB; one of L*a*b* only repeats
    what those numbers mean. A profile for grey is sRGB if its curve is. One that has tables instead
    of numbers is, if it says so in its description.
    """
    if profile[36:40] != b"acsp" or profile[16:20] == b"Lab ":
        return True
    tags = _tags(profile[:_MOST])
    try:
        if profile[16:20] == b"GRAY":
            return _is_srgb_curve(tags[b"kTRC"])
        if profile[16:20] != b"RGB ":
            return False
        if not tags.keys() >= {*_D50, *_CURVES}:
            text = tags.get(b"desc", b"")
            return b"sRGB" in text or "sRGB".encode("utf-16-be") in text
        return all(
            np.allclose(_fixed(tags[name], 8, 3), right, rtol=0, atol=0.003)
            for name, right in _D50.items()
        ) and all(_is_srgb_curve(tags[name]) for name in _CURVES)
    except (struct.error, LookupError, ArithmeticError, ValueError):
        return False  # damaged, or not read to its end: not known to be sRGB


def _tags(profile: bytes) -> dict[bytes, bytes]:
    found = {}
    for entry in range(132, min(len(profile) - 11, 132 + 12 * 100), 12):
        name, start, length = struct.unpack_from(">4sII", profile, entry)
        if entry >= 132 + 12 * int.from_bytes(profile[128:132], "big"):
            break
        found[name] = profile[start : start + length]
    return found


def _fixed(data: bytes, offset: int, count: int) -> list[float]:
    return [number / 65536 for number in struct.unpack_from(f">{count}i", data, offset)]


def _is_srgb_curve(tag: bytes) -> bool:
    return bool(np.allclose(_curve(tag), _LINEAR, rtol=0, atol=0.004))


def _curve(tag: bytes) -> np.ndarray:
    """Evaluate a tone curve, given by a table, a power or a formula, at nine levels."""
    if tag[:4] == b"curv":
        (count,) = struct.unpack_from(">I", tag, 8)
        table = np.array(struct.unpack_from(f">{count}H", tag, 12), np.float64)
        if count < 2:
            return np.power(_AT, table[0] / 256 if count else 1.0, dtype=np.float64)
        return np.interp(_AT, np.linspace(0, 1, count), table / 65535)
    if tag[:4] != b"para":
        raise ValueError(f"a curve of kind {tag[:4]!r}")
    (form,) = struct.unpack_from(">H", tag, 8)
    # y = (a x + b)^g + e from d on, else c x + f
    g, a, b, c, d, e, f = 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
    numbers = _fixed(tag, 12, (1, 3, 4, 5, 7)[form])
    if form == 0:
        (g,) = numbers
    elif form == 1:
        g, a, b = numbers
        d = -b / a
    elif form == 2:
        g, a, b, e = numbers
        d, f = -b / a, e
    elif form == 3:
        g, a, b, c, d = numbers
    else:
        g, a, b, c, d, e, f = numbers
    return np.where(d > _AT, c * _AT + f, np.maximum(a * _AT + b, 0.0) ** g + e)
