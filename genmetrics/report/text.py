"""Numbers and names as text, the same in the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from genmetrics.core.result import Interval, Result

DIGITS = 5
"""Significant digits of a value, unless more are needed to tell two values apart."""


def number(value: float, digits: int = DIGITS) -> str:
    """Format with so many significant digits, without an exponent where that stays short.

    Examples:
        >>> number(441.18812), number(0.0123456789), number(2.5e-9)
        ('441.19', '0.012346', '2.5000e-09')
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -5 <= exponent < 7:
        return f"{value:.{max(digits - 1 - exponent, 0)}f}"
    return f"{value:.{digits - 1}e}"


def numbers(values: Sequence[float]) -> list[str]:
    """Format values that stand in one column: unlike ones never look alike.

    Examples:
        >>> numbers([1.0, 0.9999999])
        ['1.0000', '0.9999999']
    """
    texts = []
    for value in values:
        others = [other for other in values if other != value]
        digits = DIGITS
        while digits < 17 and any(_alike(value, other, digits) for other in others):
            digits += 1
        # the shortest text that keeps the digits which tell it apart
        texts.append(number(value) if float(number(value)) == value else number(value, digits))
    return texts


def _alike(a: float, b: float, digits: int) -> bool:
    return float(number(a, digits)) == float(number(b, digits))


def part(value: float) -> str:
    """Format a further number of a metric: counts as counts."""
    if math.isfinite(value) and value == int(value) and abs(value) < 10**DIGITS:
        return str(int(value))
    return number(value)


def brief(value: float) -> str:
    """Format the number of one sample: four digits, or none behind the point if it is whole."""
    whole = math.isfinite(value) and value == int(value) and abs(value) < 10**DIGITS
    return str(int(value)) if whole else number(value, 4)


def interval(result: Result, value: str, plus_minus: str = "±") -> str:
    """Format the interval of a result's value, which is shown as ``value``."""
    if result.interval is None or result.value is None:
        return ""
    return spread(result.interval, result.value, value, plus_minus)


def spread(interval_: Interval, number_: float, shown: str, plus_minus: str = "±") -> str:
    """Format an interval to the decimals of its number: ``± h``, or ``[lo, hi]`` if skewed."""
    lo, hi, _ = interval_
    half = (hi - lo) / 2
    if not math.isfinite(half):
        return f"[{number(lo)}, {number(hi)}]"
    if abs((lo + hi) / 2 - number_) <= 0.01 * half:
        return f"{plus_minus} {_decimals(half, shown, half)}"
    return f"[{_decimals(lo, shown, half)}, {_decimals(hi, shown, half)}]"


def _decimals(number_: float, like: str, half: float) -> str:
    """Format with as many decimals as ``like``, at least two significant digits of ``half``."""
    if "e" in like or "." not in like:
        return number(number_, 3)
    needed = 0 if half <= 0 else 1 - math.floor(math.log10(half))
    return f"{number_:.{max(len(like.split('.')[1]), min(needed, 12))}f}"


def short(fingerprint: str) -> str:
    """Return the first eight digits of a fingerprint."""
    return fingerprint.removeprefix("sha256:")[:8]


def printable(text: str) -> str:
    """Escape what cannot be shown in one line: control characters and undecodable bytes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def counted(count: int, noun: str) -> str:
    """Join a count and its noun: ``"1 image"``, ``"2 images"``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shortened(text: str, most: int) -> str:
    """Cut a text that is longer, and show that it was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
