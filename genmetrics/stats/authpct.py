"""AuthPct: the share of generated samples that are not copies of training samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genmetrics.stats.arrays import Array, as_rows, require_same_dim, standard_error
from genmetrics.stats.neighbours import nearest


@dataclass(frozen=True, slots=True)
class AuthPctEstimate:
    """A percentage of authentic samples.

    Attributes:
        value: Per cent, 0 to 100.
        influence: Shape ``(m,)``: 100 or 0 for each generated sample, less the value.
        authentic: Whether each generated sample is authentic, bool ``(m,)``.
        nearest_train: Position of the training sample nearest to each, int ``(m,)``.
        standard_error: Of the value, in per cent, with the training set held fixed.
    """

    value: float
    influence: np.ndarray
    authentic: np.ndarray
    nearest_train: np.ndarray
    standard_error: float


def authpct(train: Array, fake: Array) -> float:
    """Percentage of generated samples that are authentic.

    A generated sample f with nearest training sample t is authentic when t is nearer to another
    training sample than to f: d(t, nearest other) < d(t, f) (Alaa et al., 2022).

    Args:
        train: Features of the training set, shape ``(n, d)``, at least 2 rows.
        fake: Generated features, shape ``(m, d)``.

    Returns:
        Per cent, 0 to 100; low values mean copying.

    Raises:
        TooFewSamplesError: Fewer than 2 training samples, or no generated one.
        InputError: Shapes that do not fit, or a row that is not finite.

    Equals dgm-eval up to its float32 rounding of the percentage (1e-7 relative).

    Examples:
        >>> authpct(np.array([[0.0], [1.0], [3.0]]), np.array([[0.1], [6.0]]))
        50.0
    """
    return authpct_estimate(train, fake).value


def authpct_estimate(train: Array, fake: Array) -> AuthPctEstimate:
    """AuthPct with the verdict on each sample. Arguments and errors as :func:`authpct`."""
    a = as_rows(train, "train", minimum=2, why="AuthPct")
    b = as_rows(fake, "fake", why="AuthPct", device=a.device)
    require_same_dim(a.dim, b.dim)
    spacing = nearest(a, None, 1).squared[:, 0]
    index, squared = (found[:, 0] for found in nearest(b, a, 1))
    authentic = spacing[index] < squared
    percent = 100.0 * authentic
    value = float(percent.mean())
    influence = percent - value
    return AuthPctEstimate(value, influence, authentic, index, standard_error(influence))
