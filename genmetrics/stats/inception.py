"""Inception Score from class probabilities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genmetrics.core.errors import InputError, TooFewSamplesError, require_number
from genmetrics.stats.arrays import Array, as_float64, as_rows


class InceptionScore(NamedTuple):
    """Mean and spread (standard deviation, ddof 0) of the score over splits."""

    mean: float
    spread: float


def inception_score(probabilities: Array, *, splits: int = 10, seed: int = 0) -> InceptionScore:
    """Inception Score (Salimans et al., 2016).

    Rows are shuffled by ``numpy.random.RandomState(seed)`` and cut at i * n // splits; the score
    of a split is exp(mean KL(p(y|x) || p(y))) with its own marginal p(y).

    Args:
        probabilities: Class probabilities, shape ``(n, classes)``; rows sum to 1.
        splits: Number of splits, at least 1 and at most n.
        seed: Of the shuffle.

    Returns:
        Mean and spread over splits; each split's score is between 1 and the number of classes.

    Raises:
        TooFewSamplesError: Fewer rows than splits.
        InputError: Entries that are no probabilities, rows that do not sum to 1 (to 1e-3), an
            option out of range.

    Matches torch-fidelity with ``rng_seed=seed`` (its default is 2020) to 1e-9 relative.

    Examples:
        >>> inception_score(np.eye(4), splits=1).mean
        4.0
    """
    scores = [float(score) for _, score, _ in _splits(probabilities, splits, seed)]
    return InceptionScore(float(np.mean(scores)), float(np.std(scores)))


def inception_influence(probabilities: Array, *, splits: int = 10, seed: int = 0) -> np.ndarray:
    """Influence of each sample on the mean Inception Score.

    IF(x) = IS (KL(p(y|x) || p(y)) - mean KL) within the sample's split; arguments and errors as
    :func:`inception_score`.

    Returns:
        Shape ``(n,)`` in the order of the rows given; sd / sqrt(n) is the standard error.
    """
    influence = np.zeros(len(probabilities))
    for index, score, divergence in _splits(probabilities, splits, seed):
        influence[index] = (score * (divergence - divergence.mean())).cpu().numpy()
    return influence


def _splits(
    probabilities: Array, splits: int, seed: int
) -> list[tuple[np.ndarray, Tensor, Tensor]]:
    """Row positions, score and each row's KL divergence, for each split."""
    require_number("inception_score", "splits", splits, 1)
    require_number("inception_score", "seed", seed, 0)
    rows = as_rows(probabilities, "probability")
    n = len(rows)
    if n < splits:
        raise TooFewSamplesError(
            f"{n} samples for splits={splits}; add samples or pass splits={n} or fewer"
        )
    _require_probabilities(as_float64(probabilities))
    order = np.random.RandomState(seed).permutation(n)
    found = []
    for k in range(splits):
        index = order[k * n // splits : (k + 1) * n // splits]
        p = rows[index]
        # xlogy, because 0 log 0 is 0 here.
        divergence = (torch.xlogy(p, p) - torch.xlogy(p, p.mean(dim=0))).sum(dim=1)
        found.append((index, divergence.mean().exp(), divergence))
    return found


def _require_probabilities(p: Tensor) -> None:
    wrong = ((p < 0) | (p > 1 + 1e-3)).any(dim=1) | ((p.sum(dim=1) - 1).abs() > 1e-3)
    if wrong.any():
        row = int(torch.nonzero(wrong)[0])
        raise InputError(
            f"row {row} of the probabilities has minimum {float(p[row].min()):.4g} and sum"
            f" {float(p[row].sum()):.4g}; pass softmax outputs, not logits"
        )
