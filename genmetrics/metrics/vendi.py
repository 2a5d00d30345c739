"""Vendi score: the effective number of different images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.registry import register
from genmetrics.core.result import Result
from genmetrics.extractors.backbones import NAMES, backbone
from genmetrics.metrics.base import SetMetric


@dataclass(frozen=True, kw_only=True)
class VendiProtocol(MetricProtocol):
    """Every choice that moves the Vendi score."""

    extractor: ExtractorSpec
    output: str
    kernel: str = "cosine"
    order: float = 1.0


@register
class Vendi(SetMetric):
    """Vendi score (Friedman and Dieng, 2023), cosine kernel, order 1.

    ``exp`` of the entropy of the eigenvalues of ``X X' / n`` with unit rows: 1 when all images are
    alike, n when all are orthogonal. Equal to dgm-eval on the same features (one class).
    """

    id = "vendi"
    summary = "Effective number of different images"
    inputs = ("image",)
    higher_is_better = True
    bounds = (1.0 - 1e-9, None)
    variants = NAMES
    default_variant = "dinov2"

    def __init__(
        self,
        backbone_name: str = "dinov2",
        *,
        model: str | None = None,
        device: str = "auto",
        weights: Any = None,
    ) -> None:
        name = self.variant_id(backbone_name)
        chosen = backbone(backbone_name, model=model, weights=weights)
        super().__init__(
            VendiProtocol(metric=name, extractor=chosen.spec, output=chosen.output),
            output=chosen.output,
            device=device,
        )

    def _compare(self, fake: np.ndarray, ids: Sequence[str]) -> Result:
        from genmetrics.stats import vendi_estimate

        estimate = vendi_estimate(fake)
        return self._set_result(estimate.value, estimate.influence, ids)
