"""CMMD: squared MMD of unit vectors with a Gaussian kernel, by moments instead of pairs.

On unit vectors |x - y|^2 = 2 - 2 x.y, so with s = 1 / sigma^2 the kernel is exp(-s) exp(s x.y). Its
power series turns the squared MMD into exp(-s) sum_j s^j / j! |m_j(X) - m_j(Y)|^2 with the j-th
moment tensors m_j, and for sigma = 10 it converges at once. Orders 1 and 2 come exactly from mean
and second moment; orders 3 and above are tiny and are estimated together, in closed form, on a
seeded subsample. Where that is not good enough for 1e-4 relative, all pairs are summed in tiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from genmetrics.core.errors import require_choice, require_real
from genmetrics.stats.arrays import (
    Array,
    Rows,
    UnitRows,
    as_pair,
    as_rows,
    as_unit_rows,
    gram_tiles,
    slices,
    standard_error,
)
from genmetrics.stats.moments import Moments

Estimator = Literal["biased", "unbiased"]

_STRIP = 128
"""Rows of a kernel matrix at a time: a strip on the subsample is 2 MiB and stays in the cache."""

SUBSAMPLE = 2000
"""Rows a side from which orders above the second are estimated; four times as many where these are
not enough, as for two samples of one distribution, and all pairs would be more than twice that."""

TOLERANCE = 1e-4
"""Relative accuracy that the series must reach, or all pairs are summed."""


@dataclass(frozen=True, slots=True)
class CmmdEstimate:
    """A CMMD, how it was computed and how sure it is, with the reference held fixed.

    Attributes:
        value: The distance, in units of ``scale``.
        third_order: What orders 3 and above contribute to it, as estimated on the subsample; 0 when
            all pairs were summed.
        remainder_bound: Four standard errors of ``third_order``, which is all that is not exact.
        influence: Shape ``(m,)``: influence of each generated sample, in units of the value times
            m.
        standard_error: sd(influence) / sqrt(m).
        exact: True when all pairs were summed.
    """

    value: float
    third_order: float
    remainder_bound: float
    influence: np.ndarray
    standard_error: float
    exact: bool


class UnitMoments:
    """Streaming mean and second moment of unit vectors; all that orders 1 and 2 need.

    Args:
        dim: Dimension of the vectors.
        device: Where to accumulate.
    """

    def __init__(self, dim: int, *, device: str | torch.device = "cpu") -> None:
        self.moments = Moments(dim, device=device)

    def update(self, x: Array) -> UnitMoments:
        """Add unit vectors, shape ``(n, dim)``; each is scaled to exactly length 1.

        Raises:
            InputError: A row whose length is not 1 to 1e-3, or another dimension.
        """
        rows = as_unit_rows(as_rows(x, "new", minimum=0, device=self.moments.device))
        for _, block in rows.blocks():
            self.moments.update(block)
        return self

    def merge(self, other: UnitMoments) -> UnitMoments:
        """Add everything that ``other`` has seen."""
        self.moments.merge(other.moments)
        return self

    @property
    def n(self) -> int:
        """Rows seen."""
        return self.moments.n

    @property
    def mean(self) -> np.ndarray:
        """Mean, shape ``(dim,)``."""
        return self.moments.mean

    @property
    def second(self) -> np.ndarray:
        """Mean of x x', shape ``(dim, dim)``."""
        return _orders(self.moments)[1].cpu().numpy()

    def state_dict(self) -> dict[str, Any]:
        """Everything seen, as plain numbers and arrays."""
        return self.moments.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace everything seen by a :meth:`state_dict`."""
        self.moments.load_state_dict(state)


def cmmd(
    real: Array,
    fake: Array,
    *,
    sigma: float = 10.0,
    scale: float = 1000.0,
    estimator: Estimator = "biased",
) -> float:
    """CMMD between two sets of unit vectors.

    ``scale`` (mean k(x, x') + mean k(y, y') - 2 mean k(x, y)), k = exp(-|x - y|^2 / (2 sigma^2))
    (Jayasumana et al., 2024). The public code is biased: the means run over all pairs, a row with
    itself included; ``"unbiased"`` leaves those out, as the paper writes it.

    Args:
        real: Reference vectors of length 1, shape ``(n, d)``.
        fake: Generated vectors of length 1, shape ``(m, d)``.
        sigma: Width of the kernel, above 0.
        scale: Factor of the result, above 0.
        estimator: Whether the means include the diagonal.

    Raises:
        TooFewSamplesError: No row, or fewer than 2 for the unbiased estimator.
        InputError: A row that is not of length 1 (to 1e-3), shapes that do not fit, an option out
            of range.

    Matches exact float64 arithmetic to 1e-4 relative, in practice to 1e-6; cmmd-pytorch's float32
    is itself off by about 1e-4 absolute.
    """
    a, b = _unit_pair(real, fake, sigma, scale, estimator)
    series = _series(a, b, sigma, scale, estimator)
    return _exact(a, b, sigma, scale, estimator)[0] if series is None else series.value


def cmmd_exact(
    real: Array,
    fake: Array,
    *,
    sigma: float = 10.0,
    scale: float = 1000.0,
    estimator: Estimator = "biased",
) -> float:
    """CMMD as :func:`cmmd` defines it, always by summing all pairs in tiles."""
    a, b = _unit_pair(real, fake, sigma, scale, estimator)
    return _exact(a, b, sigma, scale, estimator)[0]


def cmmd_estimate(
    real: Array,
    fake: Array,
    *,
    sigma: float = 10.0,
    scale: float = 1000.0,
    estimator: Estimator = "biased",
    normalise: bool = False,
) -> CmmdEstimate:
    """CMMD with the influence of each generated vector and the standard error.

    IF(y) = 2 scale (h(y) - mean h) with the witness h(y) = mean k(y, fake) - mean k(y, real). By
    moments it leaves out orders above the second (below 1 % of it for sigma = 10). The standard
    error is of first order, so only a rough guide when both sides have the same distribution.

    Args and errors are those of :func:`cmmd`; with ``normalise`` rows may have any length but 0 and
    are scaled to 1 block by block.
    """
    a, b = _unit_pair(real, fake, sigma, scale, estimator, normalise=normalise)
    series = _series(a, b, sigma, scale, estimator)
    if series is None:
        (value, witness), third, bound = _exact(a, b, sigma, scale, estimator), 0.0, 0.0
    else:
        value, third, bound = series.value, series.third_order, series.bound
        witness = series.witness(b)
    influence = (2 * scale * (witness - witness.mean())).cpu().numpy()
    return CmmdEstimate(
        value, third, bound, influence, standard_error(influence), exact=series is None
    )


@dataclass(frozen=True, slots=True)
class _Series:
    value: float
    third_order: float
    bound: float
    s: float
    mean_step: Tensor
    second_step: Tensor

    def witness(self, rows: Rows) -> Tensor:
        """Orders 1 and 2 of mean k(y, fake) - mean k(y, real) for every row y."""
        found = rows.empty_column()
        for where, block in rows.blocks():
            quadratic = ((block @ self.second_step) * block).sum(dim=1)
            found[where] = block @ self.mean_step + self.s / 2 * quadratic
        return found.mul_(self.s * math.exp(-self.s))


def _unit_pair(
    real: Array,
    fake: Array,
    sigma: float,
    scale: float,
    estimator: Estimator,
    *,
    normalise: bool = False,
) -> tuple[UnitRows, UnitRows]:
    require_real("cmmd", "sigma", sigma, above=0)
    require_real("cmmd", "scale", scale, above=0)
    require_choice("cmmd", "estimator", estimator, get_args(Estimator))
    minimum = 2 if estimator == "unbiased" else 1
    a, b = as_pair(real, fake, minimum=minimum, why=f"CMMD ({estimator})")
    return as_unit_rows(a, any_length=normalise), as_unit_rows(b, any_length=normalise)


def _series(
    real: UnitRows, fake: UnitRows, sigma: float, scale: float, estimator: Estimator
) -> _Series | None:
    """CMMD by moments; None where all pairs are as cheap, or the series is not good enough."""
    n, m, s = len(real), len(fake), sigma**-2
    if max(n, m) <= SUBSAMPLE:
        return None
    (mean_x, second_x), (mean_y, second_y) = (
        _orders(Moments.from_rows(rows)) for rows in (real, fake)
    )
    mean_step, second_step = mean_y - mean_x, second_y - second_x
    low = _low_orders(mean_step, second_step, s)
    low_xx, low_yy = _low_orders(mean_x, second_x, s), _low_orders(mean_y, second_y, s)
    factor = scale * math.exp(-s)
    for size in (SUBSAMPLE, 4 * SUBSAMPLE):
        if size > SUBSAMPLE and max(n, m) <= 2 * size:
            break
        tail = _tail(real, fake, s, size)
        third = factor * (tail.xx + tail.yy - 2 * tail.xy)
        biased = value = factor * low + third
        if estimator == "unbiased":
            # Dropping the n diagonal ones turns a mean V of n^2 pairs into V + (V - 1) / (n - 1).
            mean_xx = math.exp(-s) * (1 + low_xx + tail.xx)
            mean_yy = math.exp(-s) * (1 + low_yy + tail.yy)
            value += scale * ((mean_xx - 1) / (n - 1) + (mean_yy - 1) / (m - 1))
        bound = 4 * factor * tail.error
        # An unbiased value may be as near to zero as it likes; below a hundredth of the biased one
        # its standard error is far larger than what all pairs would add.
        if bound <= TOLERANCE * max(abs(value), abs(biased) / 100):
            return _Series(value, third, bound, s, mean_step, second_step)
    return None


def _orders(moments: Moments) -> tuple[Tensor, Tensor]:
    """Mean and second moment."""
    n, mean, scatter = moments.total()
    return mean, scatter.div_(n).addr_(mean, mean)


def _low_orders(mean: Tensor, second: Tensor, s: float) -> float:
    """Orders 1 and 2 of the series for the squared norms of these moments."""
    return float(s * mean.square().sum() + s**2 / 2 * second.square().sum())


@dataclass(frozen=True, slots=True)
class _Tail:
    """Means over all pairs of the kernel's orders 3 and above, without the factor exp(-s)."""

    xx: float
    yy: float
    xy: float
    error: float
    """Standard error of xx + yy - 2 xy from subsampling; 0 when no row was left out."""


def _tail(real: UnitRows, fake: UnitRows, s: float, size: int) -> _Tail:
    rng = np.random.RandomState(0)
    x, y = (
        rows[np.sort(rng.choice(len(rows), min(len(rows), size), replace=False))]
        for rows in (real, fake)
    )
    n, m = len(real), len(fake)
    xx, yy, xy = _tail_means(x, x, s), _tail_means(y, y, s), _tail_means(x, y, s)
    left_x, left_y = 1 - len(x) / n, 1 - len(y) / m  # shares that the subsample leaves out
    first_order = 4 * (
        left_x * (xx.rows - xy.rows).var() / len(x) + left_y * (yy.rows - xy.columns).var() / len(y)
    )
    second_order = (
        2 * left_x * xx.variance / len(x) ** 2
        + 2 * left_y * yy.variance / len(y) ** 2
        + 4 * max(left_x, left_y) * xy.variance / (len(x) * len(y))
    )
    # Distinct pairs are estimated, the diagonal is known.
    diagonal = float(_beyond_second(s, torch.ones(1, dtype=torch.float64)))
    return _Tail(
        diagonal / n + (1 - 1 / n) * float(xx.rows.mean()),
        diagonal / m + (1 - 1 / m) * float(yy.rows.mean()),
        float(xy.rows.mean()),
        float(first_order + second_order) ** 0.5,
    )


class _TailMeans(NamedTuple):
    rows: Tensor
    columns: Tensor
    variance: float


def _tail_means(x: Tensor, y: Tensor, s: float) -> _TailMeans:
    """Means by row and column, and variance, of orders 3 and above; not of rows with themselves."""
    own = x is y
    rows, columns = x.new_zeros(len(x)), x.new_zeros(len(y))
    squares = 0.0
    for i in slices(len(x), _STRIP):
        first = i.start if own else 0
        strip = _beyond_second(s, x[i] @ y[first:].T)
        if own:
            strip.triu_(1)  # a pair once, no row with itself
        rows[i] += strip.sum(dim=1)
        columns[first:] += strip.sum(dim=0)
        squares += float(strip.square_().sum())
    if own:
        rows = columns = rows + columns
        squares *= 2
    pairs = len(x) * (len(y) - own)
    variance = squares / pairs - (float(rows.sum()) / pairs) ** 2
    return _TailMeans(rows / (len(y) - own), columns / (len(x) - own), max(variance, 0.0))


def _beyond_second(s: float, products: Tensor) -> Tensor:
    """exp(u) - 1 - u - u^2/2 of u = s * products in [-s, s]; overwrites ``products``."""
    u = products.mul_(s)
    if s > 0.5:
        return u.exp() - 1 - u - u.square() / 2
    # Nested, because for small u the difference above would cancel.
    last = next(j for j in range(4, 20) if 6 * s ** (j - 3) / math.factorial(j) < 1e-17)
    one = torch.ones((), dtype=u.dtype, device=u.device)
    nested = one + u / last
    for j in range(last - 1, 3, -1):
        nested = torch.addcmul(one, nested, u, value=1 / j)
    return nested.mul_(u.pow(3)).div_(6.0)


def _exact(
    real: UnitRows, fake: UnitRows, sigma: float, scale: float, estimator: Estimator
) -> tuple[float, Tensor]:
    """CMMD over all pairs, and the witness of each generated row.

    Works on k - 1, which is zero on the diagonal and keeps the digits that k loses next to 1.
    """
    n, m, s = len(real), len(fake), sigma**-2
    less = 1 if estimator == "unbiased" else 0
    within_real = _row_sums(real, s).sum() / (n * (n - less))
    rows_fake = _row_sums(fake, s) / (m - less)
    across = torch.zeros_like(rows_fake)
    for _, j, tile in gram_tiles(real, fake):
        across[j] += torch.expm1(tile.sub_(1).mul_(s)).sum(dim=0) / n
    value = within_real + rows_fake.mean() - 2 * across.mean()
    return float(scale * value), rows_fake - across


def _row_sums(rows: UnitRows, s: float) -> Tensor:
    """Sum of k - 1 over each row of the symmetric kernel matrix, from its upper half."""
    sums = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for i, j, tile in gram_tiles(rows, rows, upper=True):
        torch.expm1(tile.sub_(1).mul_(s), out=tile)
        if i == j:
            tile.fill_diagonal_(0.0)
        else:
            sums[j] += tile.sum(dim=0)
        sums[i] += tile.sum(dim=1)
    return sums
