"""Precision, recall, density and coverage from nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genmetrics.core.errors import require_number
from genmetrics.stats.arrays import Array, as_pair
from genmetrics.stats.neighbours import nearest, within


@dataclass(frozen=True, slots=True)
class Prdc:
    """The four values and what they are means of.

    Attributes:
        precision: Share of generated samples inside some real neighbourhood, 0 to 1.
        recall: Share of real samples inside some generated neighbourhood, 0 to 1.
        density: Mean number of real neighbourhoods around a generated sample, over k; may exceed 1.
        coverage: Share of real samples whose neighbourhood holds a generated sample, 0 to 1.
        inside: Whether each generated sample is inside, bool ``(m,)``.
        density_counts: Real neighbourhoods around each generated sample, int ``(m,)``.
        recalled: Whether each real sample is recalled, bool ``(n,)``.
        covered: Whether each real sample is covered, bool ``(n,)``.
    """

    precision: float
    recall: float
    density: float
    coverage: float
    inside: np.ndarray
    density_counts: np.ndarray
    recalled: np.ndarray
    covered: np.ndarray


def prdc(real: Array, fake: Array, *, k: int = 5) -> Prdc:
    """Precision and recall (Kynkäänniemi et al., 2019), density and coverage (Naeem et al., 2020).

    A sample's neighbourhood is the open ball up to its k-th nearest neighbour in its own set,
    itself not counted. Comparisons are strict and exact (see :mod:`genmetrics.stats.neighbours`),
    so equal sets give 1.0 four times. Where all samples of a set are equal, its balls are empty.

    Args:
        real: Reference features, shape ``(n, d)``, at least k + 1 rows.
        fake: Generated features, shape ``(m, d)``, at least k + 1 rows.
        k: Which neighbour bounds a neighbourhood, at least 1.

    Raises:
        TooFewSamplesError: A side has fewer than k + 1 rows.
        InputError: Shapes that do not fit, a row that is not finite, k below 1.

    Equals clovaai/prdc and dgm-eval with the same k, except where float32 rounding decides a tie
    there.

    Examples:
        >>> got = prdc(np.array([[0.0], [1.0], [3.0]]), np.array([[0.5], [10.0]]), k=1)
        >>> got.precision, got.recall, got.density, round(got.coverage, 4)
        (0.5, 1.0, 1.0, 0.6667)
    """
    require_number("prdc", "k", k, 1)
    a, b = as_pair(real, fake, minimum=k + 1, why=f"the {k}-th neighbour")
    radius_a = nearest(a, None, k).squared[:, -1]
    radius_b = nearest(b, None, k).squared[:, -1]
    counts = np.zeros(len(b), dtype=np.int64)
    recalled, covered = np.zeros(len(a), dtype=bool), np.zeros(len(a), dtype=bool)
    for i, j, in_real, in_fake in within(a, b, radius_a, radius_b):
        counts[j] += in_real.sum(axis=0)
        covered[i] |= in_real.any(axis=1)
        recalled[i] |= in_fake.any(axis=1)
    inside = counts > 0
    return Prdc(
        precision=float(inside.mean()),
        recall=float(recalled.mean()),
        density=float(counts.mean() / k),
        coverage=float(covered.mean()),
        inside=inside,
        density_counts=counts,
        recalled=recalled,
        covered=covered,
    )
