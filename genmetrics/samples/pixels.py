"""From any mode Pillow decodes to uint8 RGB, with the name of every conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageFile

_NAMES: dict[str, tuple[str, ...]] = {
    "1": ("1bit", "grayscale"),
    "L": ("grayscale",),
    "LA": ("grayscale",),
    "La": ("grayscale",),
    "P": ("palette",),
    "PA": ("palette",),
    "CMYK": ("cmyk",),
    "YCbCr": ("ycbcr",),
    "LAB": ("lab",),
}
_PHOTOMETRIC, _BITS, _SAMPLE_FORMAT = 262, 258, 339  # TIFF tags
_SIGNED = 2
_WHITE_IS_ZERO = 0


class Facts(NamedTuple):
    """What has to be asked before the pixels are loaded."""

    rawmode: str
    """How the file stores a pixel, such as ``"RGB;16B"``."""
    deep: bool
    """More than 8 bits a channel are stored."""
    maximum: int = 65535
    """White, in numbers of the file."""
    inverted: bool = False
    """16-bit TIFF in which white is zero; Pillow inverts only 8-bit ones."""
    animated: bool = False
    """More frames than one follow."""
    signed: bool = False
    """8-bit TIFF with a sign, which Pillow takes for a high bit."""


def facts_of(image: ImageFile.ImageFile) -> Facts:
    """Collect what is known before loading."""
    args: Any = image.tile[0][3] if image.tile else ""
    values = args if isinstance(args, tuple) else (args,)
    rawmode = str(values[0]) if values else ""
    deep = image.mode.startswith("I;16") or ";16" in rawmode or ";12" in rawmode
    if image.format == "PPM":  # the maximum stands in the header; Pillow scales it to 255 or 65535
        deep = deep or (len(values) == 2 and int(values[1]) > 255)
    maximum, inverted, signed = 65535, False, False
    if image.format == "TIFF":
        kinds = image.tag_v2.get(_SAMPLE_FORMAT)  # type: ignore[attr-defined]
        signed = image.mode == "L" and kinds == (_SIGNED,)
    if deep and image.format == "TIFF":
        tags = image.tag_v2  # type: ignore[attr-defined]
        inverted = tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO
        maximum = 4095 if tags.get(_BITS) == (12,) else 65535
    return Facts(
        rawmode, deep, maximum, inverted, bool(getattr(image, "is_animated", False)), signed
    )


def to_rgb(
    image: Image.Image, facts: Facts, low_bytes: Callable[[], np.ndarray]
) -> tuple[np.ndarray, list[str]]:
    """Convert a loaded image.

    Args:
        image: The image.
        facts: What :func:`facts_of` said before loading.
        low_bytes: Decodes the low bytes of a 16-bit RGB image, ``(H, W, 3)``, where it matters.

    Returns:
        uint8 ``(H, W, 3)``, read-only where it can be had without a copy, and what was done.

    Raises:
        ValueError: Numbers whose white is not known (see :func:`_levels`); says so in one line.
    """
    if facts.signed:
        raise ValueError("it holds signed 8-bit numbers; save it with unsigned ones")
    mode, clear = image.mode, image.info.get("transparency")
    if mode == "RGB" and clear is None:
        return np.asarray(image), ["16bit"] if facts.deep else []
    if mode in ("I", "F") or mode.startswith("I;16"):
        return _from_numbers(image, facts, clear)
    if mode == "RGB" and facts.rawmode.startswith("RGB;16"):
        return _clear_on_white(np.asarray(image), low_bytes(), clear)
    names = ["16bit"] if facts.deep else []
    names += _NAMES.get("LA" if facts.rawmode == "LA;16B" else mode, ())
    if clear is not None:
        image.info["transparency"] = _clear_level(clear, facts.rawmode)
    if image.has_transparency_data:
        image, blended = _on_white(image)
        names += ["alpha_on_white"] if blended else []
    return np.asarray(image.convert("RGB")), names


def _on_white(image: Image.Image) -> tuple[Image.Image, bool]:
    """Composite on white; the colour under full transparency vanishes."""
    image = image.convert("RGBA")
    alpha = image.getchannel("A")
    if alpha.getextrema()[0] == 255:
        return image, False
    white = Image.new("RGB", image.size, (255, 255, 255))
    white.paste(image.convert("RGB"), mask=alpha)  # rounds (c·a + 255·(255 - a)) / 255 exactly
    return white, True


def _clear_level(clear: Any, rawmode: str) -> Any:
    """Bring the transparent colour, given in numbers of the file, to 8 bits as the pixels."""
    if rawmode in ("L;2", "L;4"):
        return clear * (85 if rawmode == "L;2" else 17)
    return clear


def _clear_on_white(high: np.ndarray, low: np.ndarray, clear: Any) -> tuple[np.ndarray, list[str]]:
    """Turn one colour of 16 bits white; its high byte alone would take its neighbours along."""
    values = high.astype(np.uint16) << 8 | low
    hit = (values == np.array(clear, np.uint16)).all(axis=2)
    if not hit.any():
        return high, ["16bit"]
    return np.where(hit[:, :, None], np.uint8(255), high), ["16bit", "alpha_on_white"]


def _from_numbers(image: Image.Image, facts: Facts, clear: Any) -> tuple[np.ndarray, list[str]]:
    values = np.asarray(image)
    levels = _levels(values, facts)
    names = ["16bit" if facts.deep else "float" if image.mode == "F" else "32bit", "grayscale"]
    if isinstance(clear, int) and (values == clear).any():
        levels = np.where(values == clear, np.uint8(255), levels)
        names.append("alpha_on_white")
    return np.repeat(levels[:, :, None], 3, axis=2), names


def _levels(values: np.ndarray, facts: Facts) -> np.ndarray:
    """Scale grey numbers to the nearest of 256 levels.

    16 bits (and 12): ``round(255 v / maximum)``. Wider files do not say what white is, so only what
    cannot be misread is taken: floats must lie in 0..1, and integers are 16-bit numbers in 32 bits.
    """
    if values.dtype.kind == "f":
        low, high = float(values.min()), float(values.max())
        if not (low >= 0.0 and high <= 1.0):
            raise ValueError(
                f"it holds floats from {low:g} to {high:g}, expected 0 to 1; save it with 8 bits"
            )
        return np.rint(values * 255.0).astype(np.uint8)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > facts.maximum:
        raise ValueError(
            f"it holds integers from {low} to {high}, expected 0 to {facts.maximum}; save it with 8"
            " or 16 bits"
        )
    if not facts.deep and 0 < high <= 255:
        raise ValueError(
            f"it holds 32-bit integers up to {high}, which could be 8-bit or 16-bit levels; save it"
            " with 8 bits"
        )
    numbers = values.astype(np.uint32)
    if facts.inverted:
        numbers = facts.maximum - numbers
    return ((numbers * 255 + facts.maximum // 2) // facts.maximum).astype(np.uint8)
