"""Fréchet distance of two Gaussians fitted to features: value, standard error, FD-infinity.

With means m, covariances S (divisor n - 1), FD = |m_r - m|^2 + tr S_r + tr S - 2 tr (S_r S)^(1/2)
(Dowson and Landau, 1982; Heusel et al., 2017). No matrix square root is taken. With factors F'F = S
and F_r'F_r = S_r the trace term is the nuclear norm of the small matrix C = F F_r', which is real
for every rank: with fewer samples than dimensions F is the centred features themselves, otherwise
a Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genmetrics.core.errors import InputError, TooFewSamplesError, require_number
from genmetrics.stats.arrays import (
    Array,
    Rows,
    as_pair,
    gram,
    require_same_dim,
    standard_error,
)
from genmetrics.stats.blocks import RowSource, StreamedRows, as_blocks
from genmetrics.stats.moments import Moments

_EPS = float(np.finfo(np.float64).eps)
_WHY = "a Fréchet distance"


@dataclass(frozen=True, slots=True)
class FrechetEstimate:
    """A Fréchet distance and how sure it is, with the reference held fixed.

    Attributes:
        value: The distance.
        influence: Shape ``(n,)``: how much each generated sample pushes the value up (positive) or
            down, in units of the value times n. The largest cost the most.
        standard_error: sd(influence) / sqrt(n).
    """

    value: float
    influence: np.ndarray
    standard_error: float


def frechet_distance(real: Array, fake: Array) -> float:
    """Fréchet distance between two feature sets.

    Args:
        real: Reference features, shape ``(n, d)``, at least 2 rows.
        fake: Generated features, shape ``(m, d)``, at least 2 rows.

    Returns:
        The distance, never negative and never ``-0.0``.

    Raises:
        TooFewSamplesError: A side has fewer than 2 rows.
        InputError: Shapes that do not fit, or a row that is not finite.

    Agrees with pytorch-fid, clean-fid, torch-fidelity and torchmetrics to the accuracy of their
    matrix roots (1e-6 relative where the covariances are well conditioned).

    Examples:
        >>> round(frechet_distance(np.array([[0.0], [2.0]]), np.array([[1.0], [3.0]])), 9)
        1.0
    """
    a, b = as_pair(real, fake, minimum=2, why=_WHY)
    return _distance(_gaussian(a), _gaussian(b))


def frechet_distance_moments(real: Moments, fake: Moments) -> float:
    """Fréchet distance between two sets of which only the moments are kept.

    Args:
        real: Reference moments.
        fake: Generated moments of the same dimension.

    Raises:
        TooFewSamplesError: A side has fewer than 2 samples.
        InputError: Dimensions that differ, or a covariance with negative eigenvalues.
    """
    require_same_dim(real.dim, fake.dim)
    return _distance(_gaussian_of_moments(real, "real"), _gaussian_of_moments(fake, "fake"))


def frechet_influence(reference_moments: Moments, fake: Array | RowSource) -> np.ndarray:
    """Influence of each generated sample on the Fréchet distance to a fixed reference.

    With T = F_r' (F_r S F_r')^(-1/2) F_r and z = x - m,
    IF(x) = 2 (m - m_r).z + z'(I - T)z - tr((I - T)S), the derivative of the distance when the
    generated distribution moves a little weight onto x. Its sd / sqrt(n) is the standard error of
    the distance; its largest values are the images that cost the most. Where S has no full rank,
    the inverse root is the pseudo-inverse.

    Args:
        reference_moments: The reference side.
        fake: Generated features, shape ``(n, d)``, or their source.

    Returns:
        Shape ``(n,)``, in units of the distance times n.

    Checked by simulation: predicted and observed standard errors agree to a few per cent where n is
    several times d or the spectrum decays like that of image features (at any n); with isotropic
    features and n near d or below, the prediction is up to 45 % too large.
    """
    return frechet_estimate(reference_moments, fake).influence


def frechet_estimate(reference: Moments, fake: Array | RowSource) -> FrechetEstimate:
    """Fréchet distance, influences and standard error from one decomposition.

    The generated rows are read twice: for their moments, and for their influences.

    Args:
        reference: Moments of the reference side.
        fake: Generated features, shape ``(n, d)``, or their source: the same bits, in memory that
            holds a few ``(d, d)`` matrices, a block, and 8 bytes a row for the influences.

    Raises:
        TooFewSamplesError: A side has fewer than 2 samples.
        InputError: Shapes that do not fit, or a row that is not finite.
    """
    real, rows = _reference_and_rows(reference, fake)
    gaussian = _gaussian(rows)
    cross = gaussian.factor @ real.factor.T
    spectrum = _spectrum(cross, min(real.rank, gaussian.rank), vectors=True)
    nuclear = float(spectrum.values.sum())
    # T = W'W with W = values^(-1/2) V' F_r, so that the quadratic form is a squared length.
    assert spectrum.right is not None
    w = (spectrum.right / spectrum.values.sqrt()).T @ real.factor
    shift = gaussian.mean - real.mean
    influence = rows.empty_column()
    for where, block in rows.blocks():
        z = block - gaussian.mean
        length = z.square().sum(dim=1) - (z @ w.T).square().sum(dim=1)
        influence[where] = 2 * (z @ shift) + length - (gaussian.trace - nuclear)
    numbers = influence.cpu().numpy()
    value = _value(real, gaussian.mean, gaussian.trace, nuclear)
    return FrechetEstimate(value, numbers, standard_error(numbers))


def frechet_infinity(
    reference: Moments, fake: Array | RowSource, *, points: int = 15, seed: int = 0
) -> float:
    """Extrapolate the Fréchet distance to infinitely many generated samples.

    ``points`` sizes, evenly spaced from min(5000, max(N // 10, 2)) to N; for each that many
    generated rows without replacement; least squares of the distance on 1 / size; the intercept
    (Chong and Forsyth, 2020, as dgm-eval computes it, but with seeded draws). The intercept may
    be negative.

    Args:
        reference: Moments of the reference side, always used whole.
        fake: Generated features, shape ``(N, d)``, at least 3 rows, or their source, which is read
            once for each size.
        points: Number of sizes, at least 2.
        seed: Of ``numpy.random.RandomState``.

    Raises:
        TooFewSamplesError: Fewer than 3 generated samples.
        InputError: Shapes that do not fit, a row that is not finite, an option out of range.
    """
    require_number("frechet_infinity", "points", points, 2)  # as a line does
    require_number("frechet_infinity", "seed", seed, 0)
    real, rows = _reference_and_rows(reference, fake, minimum=3, why="FD-infinity")
    n = len(rows)
    sizes = np.linspace(min(5000, max(n // 10, 2)), n, points).astype(np.int32)
    rng = np.random.RandomState(seed)
    draws = (rng.choice(n, size, replace=False) for size in sizes)
    if n <= rows.dim:
        values = _distances_of_few(real, rows.whole(), draws)
    else:
        values = [_distance(real, _gaussian(rows.subset(np.sort(draw)))) for draw in draws]
    x = 1.0 / sizes - np.mean(1.0 / sizes)
    slope = float(x @ values / (x @ x))
    return float(np.mean(values) - slope * np.mean(1.0 / sizes))


def _distances_of_few(real: _Gaussian, rows: Tensor, draws: Iterable[np.ndarray]) -> list[float]:
    """Distance of the reference to each draw, where all rows are at most d.

    The products of all rows with the reference's factor hold those of every draw: only its own mean
    is to be taken off.
    """
    middle = rows.mean(dim=0)
    centred = rows - middle
    products = centred @ real.factor.T

    def distance(draw: np.ndarray) -> float:
        chosen = torch.from_numpy(np.sort(draw)).to(rows.device)
        drawn, cross, free = centred[chosen], products[chosen], len(draw) - 1
        step = drawn.mean(dim=0)
        trace = float((drawn - step).square().sum()) / free
        cross = (cross - cross.mean(dim=0)) / free**0.5
        return _value(real, middle + step, trace, _nuclear(cross, min(real.rank, free)))

    return [distance(draw) for draw in draws]


class _Gaussian(NamedTuple):
    mean: Tensor
    trace: float
    factor: Tensor
    """``(k, d)`` with factor'factor = covariance."""
    rank: int
    """Upper bound on the rank, known from the number of samples."""


class _Spectrum(NamedTuple):
    values: Tensor
    """Singular values; with ``right``, only those that are not zero to rounding."""
    right: Tensor | None
    """Right singular vectors ``(columns, r)``."""


def _reference_and_rows(
    reference: Moments, fake: Array | RowSource, *, minimum: int = 2, why: str = _WHY
) -> tuple[_Gaussian, Rows | StreamedRows]:
    rows = as_blocks(fake, "fake", minimum=minimum, why=why, device=reference.device)
    require_same_dim(reference.dim, rows.dim)
    return _gaussian_of_moments(reference, "real"), rows


def _gaussian(rows: Rows | StreamedRows) -> _Gaussian:
    """Fit a Gaussian; with at most d rows the factor is the rows themselves."""
    n = len(rows)
    if n > rows.dim:
        return _gaussian_of_moments(Moments.from_rows(rows), rows.side)
    return _gaussian_of_few(rows.whole())


def _gaussian_of_few(rows: Tensor) -> _Gaussian:
    """Fit a Gaussian to at most d rows: centred, they are the factor."""
    mean = rows.mean(dim=0)
    factor = (rows - mean) / (len(rows) - 1) ** 0.5
    return _Gaussian(mean, float(factor.square().sum()), factor, len(rows) - 1)


def _gaussian_of_moments(moments: Moments, side: str) -> _Gaussian:
    if moments.n < 2:
        raise TooFewSamplesError(
            f"the {side} side has {moments.n} samples, {_WHY} needs at least 2; add samples"
        )
    few = moments.few_rows()
    if few is not None:
        return _gaussian_of_few(few)
    n, mean, scatter = moments.total()
    cov = scatter.div_(n - 1)
    rank = min(n - 1, moments.dim)
    return _Gaussian(mean, float(cov.trace()), _factor(cov, rank, side), rank)


def _factor(cov: Tensor, rank: int, side: str) -> Tensor:
    """Return F with F'F = cov, of at most ``rank`` rows where cov is singular."""
    noise = len(cov) * _EPS
    if rank == len(cov):
        lower, info = torch.linalg.cholesky_ex(cov)
        pivots = lower.diagonal().square()
        if int(info) == 0 and pivots.min() > noise * pivots.max():
            upper: Tensor = lower.T
            return upper
    # Singular: keep the eigenvalues that are more than rounding. The root of a zero that came out
    # as 1e-16 would be 1e-8, times hundreds of dimensions.
    values, vectors = torch.linalg.eigh(cov)
    if values[0] < -1e-6 * values.abs().sum():
        raise InputError(
            f"the covariance of the {side} side has the eigenvalue {float(values[0]):.3g};"
            " it is no covariance: make the statistics again"
        )
    keep = torch.arange(len(values), device=values.device) >= len(values) - rank
    keep &= values > noise * values[-1]
    factor: Tensor = (vectors[:, keep] * values[keep].sqrt()).T
    return factor


def _spectrum(cross: Tensor, rank: int, *, vectors: bool = False) -> _Spectrum:
    """Singular values of ``cross``, by its smaller Gram matrix if that is accurate enough.

    Eigenvalues of the Gram matrix cost half to a quarter of singular values, but an error e in an
    eigenvalue becomes e / (2 s) in the singular value s, and sqrt(e) where s is zero. Where a value
    is near that floor, or the errors could add up to more than 1e-6 of the sum, the singular values
    are computed as such. (Errors differ in sign: on spectra that decay like those of image features
    the sum was off by 1e-4 of this bound.)
    """
    tall = cross.shape[0] > cross.shape[1]
    rank = min(rank, *cross.shape)
    if rank == 0:  # a side without any variation
        return _Spectrum(cross.new_zeros(0), cross.new_zeros(cross.shape[1], 0))
    squared = gram(cross if tall else cross.T)
    if vectors:
        squares, basis = torch.linalg.eigh(squared)
        basis = basis[:, len(squared) - rank :]
    else:
        squares = _eigenvalues(squared)
    values = squares[len(squared) - rank :].clamp_min(0).sqrt()
    if not _accurate(values):
        if not vectors:
            return _Spectrum(torch.linalg.svdvals(cross)[:rank], None)
        _, values, basis = torch.linalg.svd(cross, full_matrices=False)
        values, basis, tall = values[:rank], basis[:rank].T, True
    if not vectors:
        return _Spectrum(values, None)
    keep = values > len(squared) * _EPS * values.max()
    values, basis = values[keep], basis[:, keep]
    return _Spectrum(values, basis if tall else cross.T @ basis / values)


_SMALL = 512
"""Symmetric matrices up to this size are torch's on the CPU too."""


def _eigenvalues(symmetric: Tensor) -> Tensor:
    """Eigenvalues in ascending order.

    Large matrices on the CPU by NumPy: torch's MKL spends 0.4 to 0.8 s on its first large problem
    in a process, more than the 0.3 s that 2048 dimensions take. Small ones by torch: NumPy's BLAS
    has threads of its own, which wait on the cores after each call and slow torch's.
    """
    if symmetric.device.type != "cpu" or len(symmetric) <= _SMALL:
        values: Tensor = torch.linalg.eigvalsh(symmetric)
        return values
    return torch.from_numpy(np.linalg.eigvalsh(symmetric.numpy()))


def _accurate(values: Tensor) -> bool:
    """Tell whether the roots of computed eigenvalues are good for their sum (see above)."""
    error = _EPS * len(values) ** 0.5 * values.max().square()
    above_floor = values.min().square() > 100 * error
    return bool(above_floor and (error / (2 * values)).sum() <= 1e-6 * values.sum())


def _distance(real: _Gaussian, fake: _Gaussian) -> float:
    nuclear = _nuclear(fake.factor @ real.factor.T, min(real.rank, fake.rank))
    return _value(real, fake.mean, fake.trace, nuclear)


def _nuclear(cross: Tensor, rank: int) -> float:
    return float(_spectrum(cross, rank).values.sum())


def _value(real: _Gaussian, mean: Tensor, trace: float, nuclear: float) -> float:
    mean_term = float((real.mean - mean).square().sum())
    return _settle(mean_term + real.trace + trace - 2 * nuclear, real.trace + trace)


def _settle(value: float, scale: float) -> float:
    """Report a distance that is negative by rounding only as 0.0; refuse any other negative."""
    if value < -1e-6 * scale:
        raise InputError(
            f"Fréchet distance {value:.6g} is negative beyond rounding (traces {scale:.6g});"
            " the covariances are not valid: make the statistics again"
        )
    return max(value, 0.0)
