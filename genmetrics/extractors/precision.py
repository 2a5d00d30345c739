"""How a network computes, and what of that a device can do. Imports no torch."""

from __future__ import annotations

import warnings
from typing import Literal

from genmetrics.core.errors import UsageError

Precision = Literal["fp32", "tf32", "bf16"]
"""How a network computes. Features come back as float32 in every case."""

PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16")


def precision_on(device: str, precision: str) -> Precision:
    """Return the precision a device really computes in.

    A CPU has no TF32, which becomes float32 there, with a warning; bfloat16 works everywhere. Plan
    with the result: fingerprints then say what happened.

    Raises:
        UsageError: No such precision.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"precision {precision!r} is not one of {', '.join(PRECISIONS)}")
    if precision == "tf32" and not device.startswith("cuda"):
        warnings.warn(
            f"precision {precision} is not available on {device}; computing in fp32", stacklevel=2
        )
        return "fp32"
    return precision
