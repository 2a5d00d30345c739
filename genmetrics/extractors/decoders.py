"""Whose pixels of image files a model reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from genmetrics.core.errors import UsageError, require_choice
from genmetrics.core.extractor import ExtractorSpec

Decode = Literal["pil", "nvjpeg"]
"""What makes pixels of image files: Pillow, or a CUDA device's decoder for plain JPEGs."""

DECODES: tuple[Decode, ...] = ("pil", "nvjpeg")


def require_decode(device: str, decode: str) -> None:
    """Raise :class:`UsageError` unless a run on ``device`` can decode this way."""
    require_choice("run", "decode", decode, DECODES)
    if decode == "nvjpeg" and not device.startswith("cuda"):
        raise UsageError(
            f"decode 'nvjpeg' needs a CUDA device and this run is on {device}; use decode 'pil' or"
            " another device"
        )


def decodes_of(specs: Iterable[ExtractorSpec]) -> frozenset[str]:
    """Which decoders' pixels these extractors want; Pillow's, unless they say otherwise."""
    return frozenset(getattr(spec, "decode", "pil") for spec in specs)
