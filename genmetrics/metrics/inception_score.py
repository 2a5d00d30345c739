"""Inception Score: how confident and how varied the class predictions are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genmetrics.core.errors import UsageError, require_number
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.registry import register
from genmetrics.core.result import Result
from genmetrics.extractors.backbones import INCEPTION, backbone
from genmetrics.metrics.base import SetMetric


@dataclass(frozen=True, kw_only=True)
class InceptionScoreProtocol(MetricProtocol):
    """Every choice that moves the Inception Score."""

    extractor: ExtractorSpec
    output: str = "logits_unbiased"
    splits: int = 10
    seed: int = 2020


@register
class InceptionScore(SetMetric):
    """Inception Score (Salimans et al., 2016): ``exp(mean KL(p(y|x) || p(y)))`` over seeded splits.

    Probabilities are the softmax of the 1008 logits without bias. ``tf1`` reproduces
    torch-fidelity: rows in natural order of sample id are shuffled by RandomState(2020), split at
    ``i * n // splits``, and the mean over splits is the value, ``parts["spread"]`` their standard
    deviation (ddof 0).
    """

    id = "is"
    summary = "Inception Score on the logits of Inception 2015-12-05"
    inputs = ("image",)
    higher_is_better = True
    bounds = (1.0 - 1e-9, None)
    variants = INCEPTION
    default_variant = "clean"

    def __init__(
        self,
        protocol: str = "clean",
        *,
        splits: int = 10,
        seed: int = 2020,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        name = self.variant_id(protocol)
        if reference is not None:
            raise UsageError(f"is has no reference side; drop reference={reference}")
        require_number("is", "splits", splits, 1)
        require_number("is", "seed", seed, 0)
        super().__init__(
            InceptionScoreProtocol(
                metric=name,
                extractor=backbone(protocol, weights=weights).spec,
                splits=splits,
                seed=seed,
            ),
            output="logits_unbiased",
            device=device,
        )
        self.minimum = splits

    def _compare(self, fake: np.ndarray, ids: Sequence[str]) -> Result:
        from genmetrics.stats import inception_influence, inception_score

        protocol = self.protocol
        assert isinstance(protocol, InceptionScoreProtocol)
        probabilities = softmax(fake)
        score = inception_score(probabilities, splits=protocol.splits, seed=protocol.seed)
        return self._set_result(
            score.mean,
            inception_influence(probabilities, splits=protocol.splits, seed=protocol.seed),
            ids,
            parts={"spread": score.spread},
        )


def softmax(logits: np.ndarray) -> np.ndarray:
    """Row-wise softmax in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=1, keepdims=True)
    return shifted
