"""Vendi score: the effective number of different samples in a set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from genmetrics.core.errors import InputError
from genmetrics.stats.arrays import Array, Rows, UnitRows, gram_tiles, standard_error
from genmetrics.stats.blocks import RowSource, StreamedRows, UnitStreamedRows, as_blocks


@dataclass(frozen=True, slots=True)
class VendiEstimate:
    """A Vendi score and how sure it is.

    Attributes:
        value: Between 1 and min(n, d).
        influence: Shape ``(n,)``: positive for samples that add variety, in units of the value
            times n.
        standard_error: sd(influence) / sqrt(n).
    """

    value: float
    influence: np.ndarray
    standard_error: float


def vendi(features: Array | RowSource) -> float:
    """Vendi score of order 1 with the cosine kernel (Friedman and Dieng, 2023).

    Rows are divided by their length; with the eigenvalues l of rho = X'X / n (those of the kernel
    matrix over n), the score is exp(-sum l log l).

    Args:
        features: Shape ``(n, d)``, at least one row, or their source: the same bits.

    Returns:
        The score, from 1 (all rows parallel) to min(n, d).

    Raises:
        TooFewSamplesError: No row.
        InputError: Not a matrix, a row that is not finite or all zero.

    Equals dgm-eval and vendi-score with the cosine kernel to 1e-9 relative.

    Examples:
        >>> round(vendi(np.eye(3)), 9)
        3.0
    """
    rows = _directions(features)
    return float(_entropy(torch.linalg.eigvalsh(_small_gram(rows))).exp())


def vendi_estimate(features: Array | RowSource) -> VendiEstimate:
    """Vendi score with the influence of each sample and the standard error.

    With the entropy H, IF(x) = V (-x' log(rho) x - H): how much more surprising the direction of
    x is than the average one. Arguments and errors as :func:`vendi`.
    """
    rows = _directions(features)
    values, vectors = torch.linalg.eigh(_small_gram(rows))
    keep = values > len(values) * torch.finfo(torch.float64).eps * values[-1]
    values, vectors = values[keep], vectors[:, keep]
    entropy = _entropy(values)
    if len(rows) >= rows.dim:
        surprise = rows.empty_column()
        for where, block in rows.blocks():
            surprise[where] = (block @ vectors).square() @ -values.log()
    else:
        # Eigenvectors v of rho from those u of the kernel matrix: (v.x_i)^2 = n l u_i^2.
        surprise = len(rows) * (vectors.square() @ -(values * values.log()))
    influence = (entropy.exp() * (surprise - entropy)).cpu().numpy()
    return VendiEstimate(float(entropy.exp()), influence, standard_error(influence))


def _directions(features: Array | RowSource) -> UnitRows | UnitStreamedRows:
    rows = as_blocks(features, "given", why="the Vendi score")
    for where, block in rows.blocks():
        zero = torch.nonzero(~block.any(dim=1))
        if len(zero):
            raise InputError(
                f"row {where.start + int(zero[0])} of the features is all zero, so it has no"
                " direction; check the model and this sample"
            )
    return UnitStreamedRows.of(rows) if isinstance(rows, StreamedRows) else UnitRows.of(rows)


def _small_gram(rows: Rows | StreamedRows) -> Tensor:
    """X'X / n or XX' / n, whichever is smaller: eigenvalues that are not zero agree."""
    n, d = len(rows), rows.dim
    gram = torch.zeros(min(n, d), min(n, d), dtype=torch.float64, device=rows.device)
    if isinstance(rows, StreamedRows) or n >= d:  # a source of fewer rows was read whole
        for _, block in rows.blocks():
            gram.addmm_(block.T, block, alpha=1 / n)
    else:
        for i, j, tile in gram_tiles(rows, rows):
            gram[i, j] = tile / n
    return gram


def _entropy(values: Tensor) -> Tensor:
    values = values.clamp_min(0)
    return -torch.xlogy(values, values).sum()
