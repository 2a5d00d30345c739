"""Which samples the page shows of a metric: those at both ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from genmetrics.core.result import PerSample, Result
from genmetrics.report.columns import Labels, Samples
from genmetrics.report.text import brief


class Strip(NamedTuple):
    """Samples in a row."""

    title: str
    places: tuple[int, ...]


def shown_samples(samples: Samples) -> np.ndarray:
    """Which samples have something to show, bool ``(n,)``."""
    there = (path is not None for path in samples.paths)
    return np.fromiter(there, dtype=bool, count=len(samples))


def strips(result: Result, has_picture: np.ndarray, most: int, *, of_sets: bool) -> list[Strip]:
    """Pick the samples at both ends of a metric, worst first, in one pass over the numbers.

    Args:
        result: With numbers by sample.
        has_picture: From :func:`shown_samples`.
        most: Samples at each end.
        of_sets: Whether the numbers are influences on the value.

    Returns:
        None where there is nothing to tell apart, else both ends. Of equal numbers the first
        samples are shown among the worst and the last ones among the best.
    """
    if not isinstance(result.per_sample, PerSample):
        return []
    numbers = result.per_sample.numbers
    where = np.flatnonzero(has_picture & ~np.isnan(numbers))
    goodness = numbers[where] * (1 if result.higher_is_better else -1)
    if len(where) == 0 or goodness.min() == goodness.max():
        return []
    count = min(most, max(1, len(where) // 2))
    worst = where[_lowest(goodness, count)]
    best = where[len(where) - 1 - _lowest(-goodness[::-1], count)]
    names = (
        ("Images that cost the most (influence on the value)", "Images that helped the most")
        if of_sets
        else ("Worst", "Best")
    )
    return [
        Strip(_title(name, numbers, places), tuple(places.tolist()))
        for name, places in zip(names, (worst, best), strict=True)
    ]


def _lowest(values: np.ndarray, count: int) -> np.ndarray:
    """Positions of the lowest values, lowest first; of equal ones the first."""
    bound = np.partition(values, count - 1)[count - 1]
    below = np.flatnonzero(values < bound)
    at = np.flatnonzero(values == bound)[: count - len(below)]
    found = np.concatenate([below, at])
    return found[np.lexsort((found, values[found]))]


def _title(name: str, numbers: np.ndarray, places: np.ndarray) -> str:
    """The strip's title; where all that is shown is equal, it is a choice among equals."""
    value = numbers[places[0]]
    if len(places) < 2 or (numbers[places] != value).any():
        return name
    equal = int((numbers == value).sum())
    return f"{name}: {len(places)} of the {equal:,} samples at {brief(float(value))}"


def group_means(result: Result) -> dict[str, tuple[float, int]]:
    """Mean of the finite numbers of each group and how many there are, in order of its name."""
    assert isinstance(result.per_sample, PerSample) and isinstance(result.groups, Labels)
    codes: dict[str, int] = {}
    code = [-1 if g is None else codes.setdefault(g, len(codes)) for g in result.groups.labels]
    kept = np.isfinite(result.per_sample.numbers) & (np.array(code, dtype=np.int64) >= 0)
    positions = np.array(code, dtype=np.int64)[kept]
    counts = np.bincount(positions, minlength=len(codes))
    sums = np.bincount(positions, result.per_sample.numbers[kept], minlength=len(codes))
    means = sums / np.where(counts, counts, np.nan)
    return {name: (float(means[i]), int(counts[i])) for name, i in sorted(codes.items())}
