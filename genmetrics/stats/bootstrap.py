"""Confidence intervals: percentile bootstrap by clusters, and the normal interval."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from genmetrics.core.errors import InputError, require_number, require_real
from genmetrics.stats.arrays import slices

_NUMBERS = 1 << 22
"""Numbers at a time, 32 MiB."""

_CACHED = 1 << 16
"""Numbers drawn at a time: 512 KiB, which stay in the cache until they are summed up."""


MANY = 50_000
"""Clusters above which the sums of draws are drawn from the normal distribution that they have."""


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

    Above :data:`MANY` clusters that feed the same groups, sums of draws are drawn as what they are
    by the central limit theorem: normal, with the mean and covariance of the draws. That takes a
    time that no longer grows with draws times clusters.

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
    _require_level("mean_interval", level)
    require_number("mean_interval", "draws", draws, 1)
    require_number("mean_interval", "seed", seed, 0, 2**63)
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
    if not len(cluster):
        return math.nan, math.nan, level
    centre, cells = _cells(numbers, group, cluster)
    if np.bincount(cells.group).min() < 2:
        return math.nan, math.nan, level
    offsets = _draw(cells, len(centre), draws, np.random.default_rng(seed))
    lo, hi = np.quantile(offsets, [(1 - level) / 2, (1 + level) / 2])
    return float(centre.mean() + lo), float(centre.mean() + hi), float(level)


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

    Raises:
        InputError: ``level`` out of range.

    Examples:
        >>> lo, hi, _ = normal_interval(10.0, 1.0)
        >>> round(lo, 2), round(hi, 2)
        (8.04, 11.96)
    """
    _require_level("normal_interval", level)
    level = float(level)
    half = NormalDist().inv_cdf((1 + level) / 2) * standard_error
    return value - half, value + half, level


def mean_of_groups(values: np.ndarray, groups: Sequence[str]) -> float:
    """Unweighted mean of the means of groups, whatever the number of values in each.

    Args:
        values: One a sample.
        groups: Label of each value's group.

    Raises:
        InputError: Labels that do not match the values in number.

    Examples:
        >>> mean_of_groups(np.array([1.0, 2.0, 3.0, 10.0]), ["a", "a", "a", "b"])
        6.0
    """
    group = _codes(groups, values, "groups")
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    return float(np.mean([part.mean() for part in np.split(values[order], cuts)]))


def _require_level(what: str, level: float) -> None:
    require_real(what, "level", level, above=0, below=1)


def wilson_interval(share: float, n: int, level: float = 0.95) -> tuple[float, float, float]:
    """Wilson's score interval of a proportion (Wilson, 1927): sound also at 0 and 1.

    Args:
        share: Observed proportion, 0 to 1.
        n: Observations, at least 1.
        level: Coverage, between 0 and 1.

    Raises:
        InputError: An argument out of range.

    Examples:
        >>> lo, hi, _ = wilson_interval(9 / 85, 85)
        >>> round(100 * lo, 2), round(100 * hi, 2)
        (5.67, 18.91)
    """
    require_real("wilson_interval", "share", share, least=0, most=1)
    require_number("wilson_interval", "n", n, 1, 2**63)
    _require_level("wilson_interval", level)
    level = float(level)
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


class _Cells(NamedTuple):
    """What clusters add to groups, one entry for each pair that has values, in order of both."""

    cluster: np.ndarray
    group: np.ndarray
    sums: np.ndarray
    """Of the values, relative to the group's mean."""
    counts: np.ndarray


def _cells(values: np.ndarray, group: np.ndarray, cluster: np.ndarray) -> tuple[np.ndarray, _Cells]:
    """Sum up clusters; return the mean of each group too."""
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    # Relative to a value of the group, a group without variation is exactly zero in every draw.
    anchor = values[first]
    off = values - anchor[group]
    means = np.bincount(group, off) / np.bincount(group)
    pairs, pair = np.unique(cluster * len(first) + group, return_inverse=True)
    sums, counts = np.bincount(pair, off - means[group]), np.bincount(pair)
    return anchor + means, _Cells(pairs // len(first), pairs % len(first), sums, counts)


def _draw(cells: _Cells, groups: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Mean over groups of the drawn group means (relative to the groups' means), for each draw."""
    sums, counts = np.zeros((groups, draws)), np.zeros((groups, draws))
    for fed, table in _tables(cells):
        rows, times = _distinct(table)
        drawn = _resample(rows, times, draws, rng).T
        sums[fed] += drawn[: len(fed)]
        counts[fed] += drawn[len(fed) :]
    relative = np.empty(draws)
    for part in slices(draws, max(1, _NUMBERS // groups)):
        # by draws, because the order of the numbers moves the last bits of their mean
        means = np.ascontiguousarray((sums[:, part] / counts[:, part]).T)
        relative[part] = means.mean(axis=1)
    return relative


def _tables(cells: _Cells) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield clusters that feed the same groups together.

    Yields:
        The w groups, and one row ``(2 w,)`` a cluster: its sums and its counts in each. In the
        order of indicators of the groups, which is that of the draws.
    """
    start = np.flatnonzero(np.diff(cells.cluster, prepend=-1))
    width = np.diff(start, append=len(cells.cluster))
    found = []
    for w in np.unique(width):
        place = start[width == w][:, None] + np.arange(w)
        fed = cells.group[place]
        order = np.lexsort(fed.T[::-1])
        cuts = np.flatnonzero((fed[order][1:] != fed[order][:-1]).any(axis=1)) + 1
        found += [(fed[alike[0]].tolist(), place[alike]) for alike in np.split(order, cuts)]
    for groups, place in sorted(found, key=lambda entry: [-g for g in entry[0]]):
        yield groups, np.hstack([cells.sums[place], cells.counts[place]])


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different rows in ascending order, and how often each occurs."""
    rows = rows[np.lexsort(rows.T[::-1])]
    first = np.flatnonzero(np.r_[True, (rows[1:] != rows[:-1]).any(axis=1)])
    return rows[first], np.diff(first, append=len(rows))


def _resample(
    rows: np.ndarray, times: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Sums of ``times.sum()`` rows drawn with replacement, each in proportion to ``times``."""
    n = int(times.sum())
    sums = np.empty((draws, rows.shape[1]))
    if len(rows) * 8 <= n:
        # scores of right or wrong: drawing how often each value comes is far cheaper
        for part in slices(draws, max(1, _NUMBERS // (n * rows.shape[1]))):
            count = part.stop - part.start
            sums[part] = rng.multinomial(n, times / n, size=count) @ rows
        return sums
    columns = np.repeat(rows, times, axis=0).T.copy()
    varied = []
    for column, numbers in enumerate(columns):
        # counts that are all the same have the same sum in every draw, without rounding
        if 2 * column >= len(columns) and numbers.min() == numbers.max():
            sums[:, column] = n * numbers[0]
        else:
            varied.append(column)
    if n > MANY:
        sums[:, varied] = _normal_sums(columns[varied], draws, rng)
        return sums
    step = max(1, _CACHED // n)
    drawn = np.empty((step, n))
    for part in slices(draws, step):
        count = part.stop - part.start
        chosen = rng.integers(0, n, size=(count, n))
        for column in varied:
            # clipping checks nothing, and without a copy: all are in range
            np.take(columns[column], chosen, out=drawn[:count], mode="clip")
            drawn[:count].sum(axis=1, out=sums[part, column])
    return sums


def _normal_sums(columns: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Sums ``(draws, k)`` of n draws from columns ``(k, n)``, by the central limit theorem."""
    n = columns.shape[1]
    centre = columns.mean(axis=1)
    off = columns - centre[:, None]
    variances, axes = np.linalg.eigh(off @ off.T / n)
    spread = axes * np.sqrt(np.maximum(variances, 0.0) * n)
    sums: np.ndarray = n * centre + rng.standard_normal((draws, len(columns))) @ spread.T
    return sums
