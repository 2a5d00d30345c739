"""A value and its interval as a small drawing."""

from __future__ import annotations

import math

from genmetrics.core.result import Result

WIDTH, HEIGHT = 190, 18
_PAD = 4.0


def whisker(result: Result, bounds: tuple[float | None, float | None]) -> str:
    """Draw a bar from zero to the value, with its interval as a whisker, on the metric's own scale.

    Metrics that are bounded on both sides fill the drawing at their bound, so bars of shares can be
    compared; for others it ends a little beyond the interval.

    Returns:
        An inline SVG, or an empty string where there is no finite value.
    """
    value = result.value
    if value is None or not math.isfinite(value):
        return ""
    lo, hi = (value, value) if result.interval is None else result.interval[:2]
    if not math.isfinite(lo) or not math.isfinite(hi):
        lo = hi = value
    left, right = _scale(min(lo, value), max(hi, value), bounds)

    def x(position: float) -> float:
        share = (position - left) / (right - left)
        return _PAD + share * (WIDTH - 2 * _PAD)

    start, end = sorted((x(max(left, min(right, 0.0))), x(value)))
    middle = HEIGHT / 2
    shapes = [
        _line("axis", _PAD, HEIGHT - 1.5, WIDTH - _PAD, HEIGHT - 1.5),
        f'<rect class="bar" x="{start:.1f}" y="4" width="{end - start:.1f}" height="10"/>',
    ]
    if hi > lo:
        shapes += [
            _line("whisker", x(lo), middle, x(hi), middle),
            _line("whisker", x(lo), middle - 4, x(lo), middle + 4),
            _line("whisker", x(hi), middle - 4, x(hi), middle + 4),
        ]
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{value:g}, from {lo:g} to {hi:g}"><title>scale {left:g} to'
        f" {right:g}</title>{''.join(shapes)}</svg>"
    )


def _scale(lo: float, hi: float, bounds: tuple[float | None, float | None]) -> tuple[float, float]:
    lower, upper = bounds
    if lower is not None and upper is not None:
        return min(lower, lo), max(upper, hi)
    left, right = min(0.0, lo), max(0.0, hi)
    if left == right:
        return 0.0, 1.0
    room = 0.05 * (right - left)
    return left - room * (left < 0), right + room * (right > 0)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
