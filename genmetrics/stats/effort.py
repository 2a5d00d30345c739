"""How long comparisons of all pairs take, so that a user hears of it before and not after."""

from __future__ import annotations

import warnings

from genmetrics.core.device import cores

_PAIR_NANOSECONDS = 10.0
_NUMBER_NANOSECONDS = 0.03
"""CPU time of a pair and of each of its d numbers, measured on one core of an AMD EPYC: kernels in
float64 took 3 + 0.030 d, nearest neighbours 10 + 0.027 d nanoseconds for d of 64, 512 and 2048."""

LONG = 600.0
"""Seconds from which a user is told."""


def pair_seconds(pairs: float, dim: int, *, threads: int | None = None) -> float:
    """Estimate how long it takes to compare pairs of rows on a CPU, within a factor of about two.

    Args:
        pairs: Pairs that are compared.
        dim: Numbers in a row.
        threads: CPU cores at work; all that this process may use unless given.

    Examples:
        >>> round(pair_seconds(50_000 * 100_000, 2048, threads=2))
        179
    """
    nanoseconds = _PAIR_NANOSECONDS + _NUMBER_NANOSECONDS * dim
    return pairs * nanoseconds * 1e-9 / (threads or cores())


def joined_pairs(n: int, m: int) -> float:
    """Pairs within two sets, each once, and between them."""
    return n * n / 2 + m * m / 2 + n * m


def warn_if_long(what: str, pairs: float, dim: int) -> None:
    """Warn before pairs are compared for more than ten minutes, with the estimate.

    Args:
        what: Metric that compares them.
        pairs: Pairs that are compared.
        dim: Numbers in a row.
    """
    seconds = pair_seconds(pairs, dim)
    if seconds > LONG:
        length = f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
        warnings.warn(
            f"{what} compares {pairs:.2g} pairs of {dim} numbers, which takes about {length} on"
            f" {cores()} CPU cores; give it fewer images or more cores",
            stacklevel=2,
        )
