"""Confidence intervals: percentile bootstrap by clusters, and the normal interval."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist

import numpy as np

from genmetrics.core.errors import InputError

_NUMBERS = 1 << 22
"""Numbers drawn at a time, 32 MiB."""


def mean_interval(
    values: Sequence[float] | np.ndarray,
    *,
    clusters: Sequence[Hashable] | None = None,
    groups: Sequence[Hashable] | None = None,
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Percentile bootstrap interval of a mean (Efron and Tibshirani, 1993).

    Whole clusters are drawn with replacement, so images of one prompt stay together. Clusters are
    exchanged only with those that feed the same groups: a task keeps its number of prompts. The
    interval does not depend on the order of the values.

    Args:
        values: One a sample; NaN (a failed sample) is left out.
        clusters: Label of each value's cluster, such as its prompt; each value on its own if None.
        groups: Label of each value's group, such as its task; then the interval is that of the
            unweighted mean of group means.
        level: Probability, between 0 and 1.
        draws: Bootstrap draws.
        seed: Of ``numpy.random.default_rng``.

    Returns:
        ``(lo, hi, level)``. lo equals hi exactly when no group varies. Both are NaN when a group
        has fewer than two clusters: one cluster tells nothing about the next.

    Raises:
        InputError: An infinite value, labels that do not match the values in number, or an option
            out of range.

    Examples:
        >>> mean_interval([1.0, 1.0, 1.0])
        (1.0, 1.0, 0.95)
    """
    _require_level(level)
    if draws < 1:
        raise InputError(f"draws={draws}; pass at least 1")
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1:
        raise InputError(f"values have shape {numbers.shape}; pass one number a sample")
    if np.isinf(numbers).any():
        at = int(np.flatnonzero(np.isinf(numbers))[0])
        raise InputError(f"value {at} is {numbers[at]}, which has no mean; leave it out")
    group = _codes(groups, numbers, "groups") if groups is not None else np.zeros(len(numbers), int)
    cluster = np.arange(len(numbers)) if clusters is None else _codes(clusters, numbers, "clusters")
    # Sorted by value, so that sums come out the same in whatever order the samples were given.
    known = np.argsort(numbers, kind="stable")[: len(numbers) - int(np.isnan(numbers).sum())]
    numbers, group, cluster = numbers[known], group[known], cluster[known]
    if not len(cluster) or min(len(set(cluster[group == g])) for g in set(group)) < 2:
        return math.nan, math.nan, level
    centre, table = _cluster_table(numbers, group, cluster)
    offsets = _draw(table, len(centre), draws, np.random.default_rng(seed))
    lo, hi = np.quantile(offsets, [(1 - level) / 2, (1 + level) / 2])
    return float(centre.mean() + lo), float(centre.mean() + hi), level


def normal_interval(
    value: float, standard_error: float, level: float = 0.95
) -> tuple[float, float, float]:
    """Interval ``value`` -/+ z ``standard_error``.

    Args:
        value: Estimate.
        standard_error: Its standard error; NaN gives NaN bounds.
        level: Probability, between 0 and 1.

    Returns:
        ``(lo, hi, level)``.

    Examples:
        >>> lo, hi, _ = normal_interval(10.0, 1.0)
        >>> round(lo, 2), round(hi, 2)
        (8.04, 11.96)
    """
    _require_level(level)
    half = NormalDist().inv_cdf((1 + level) / 2) * standard_error
    return value - half, value + half, level


def _require_level(level: float) -> None:
    if not 0 < level < 1:
        raise InputError(f"level={level}; pass a probability between 0 and 1, such as 0.95")


def wilson_interval(share: float, n: int, level: float = 0.95) -> tuple[float, float, float]:
    """Wilson's score interval of a proportion (Wilson, 1927): sound also at 0 and 1.

    Args:
        share: Observed proportion, 0 to 1.
        n: Observations, at least 1.
        level: Coverage, between 0 and 1.

    Examples:
        >>> lo, hi, _ = wilson_interval(9 / 85, 85)
        >>> round(100 * lo, 2), round(100 * hi, 2)
        (5.67, 18.91)
    """
    if n < 1:
        raise InputError("a share of 0 observations has no interval; at least 1 is needed")
    z = NormalDist().inv_cdf((1 + level) / 2)
    scale = 1 + z**2 / n
    centre = (share + z**2 / (2 * n)) / scale
    width = z * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5 / scale
    return max(0.0, centre - width), min(1.0, centre + width), level


def _codes(labels: Sequence[Hashable], values: np.ndarray, name: str) -> np.ndarray:
    """Number the labels, the same way in whatever order they come."""
    if len(labels) != len(values):
        raise InputError(f"{len(labels)} {name} for {len(values)} values; pass one a value")
    known = {label: code for code, label in enumerate(sorted(set(labels), key=repr))}
    return np.array([known[label] for label in labels], dtype=np.intp)


def _cluster_table(
    values: np.ndarray, group: np.ndarray, cluster: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sum up clusters.

    Returns:
        Mean of each group, and one row a cluster: the sums of its values by group, relative to the
        group's mean, then their counts by group.
    """
    groups, group = np.unique(group, return_inverse=True)
    clusters, cluster = np.unique(cluster, return_inverse=True)
    # Relative to a value of the group, a group without variation is exactly zero in every draw.
    anchor = np.array([values[group == g][0] for g in range(len(groups))])
    off = values - anchor[group]
    means = np.bincount(group, off) / np.bincount(group)
    cell = cluster * len(groups) + group
    size = len(clusters) * len(groups)
    sums = np.bincount(cell, off - means[group], minlength=size)
    counts = np.bincount(cell, minlength=size)
    shape = len(clusters), len(groups)
    return anchor + means, np.hstack([sums.reshape(shape), counts.reshape(shape)])


def _draw(table: np.ndarray, groups: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Mean over groups of the drawn group means (relative to the groups' means), for each draw."""
    rows, times = np.unique(table, axis=0, return_counts=True)
    feeds = rows[:, groups:] > 0
    totals = np.zeros((draws, 2 * groups))
    for pattern in np.unique(feeds, axis=0):
        alike = (feeds == pattern).all(axis=1)
        totals += _resample(rows[alike], times[alike], draws, rng)
    relative: np.ndarray = (totals[:, :groups] / totals[:, groups:]).mean(axis=1)
    return relative


def _resample(
    rows: np.ndarray, times: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Sums of ``times.sum()`` rows drawn with replacement, each in proportion to ``times``."""
    n, few = int(times.sum()), len(rows) * 8 <= int(times.sum())
    if not few:
        rows = np.repeat(rows, times, axis=0)
    sums = np.empty((draws, rows.shape[1]))
    step = max(1, _NUMBERS // (n * rows.shape[1]))
    for start in range(0, draws, step):
        count = min(step, draws - start)
        part = sums[start : start + count]
        if few:  # scores of right or wrong: drawing how often each value comes is far cheaper
            part[:] = rng.multinomial(n, times / n, size=count) @ rows
        else:
            chosen = rng.integers(0, n, size=(count, n))
            for column in range(rows.shape[1]):
                part[:, column] = rows[chosen, column].sum(axis=1)
    return sums
