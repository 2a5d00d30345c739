"""AuthPct: the share of generated images that are no copies of the training set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.registry import register
from genmetrics.core.result import Interval, Result
from genmetrics.extractors.backbones import NAMES, backbone
from genmetrics.metrics.base import LEVEL, SetMetric


@dataclass(frozen=True, kw_only=True)
class AuthPctProtocol(MetricProtocol):
    """Every choice that moves AuthPct."""

    extractor: ExtractorSpec
    output: str
    distance: str = "euclidean"


@register
class AuthPct(SetMetric):
    """Authenticity (Alaa et al., 2022) in percent: the reference set must be the training set.

    A generated image is authentic when its nearest training image is nearer to another training
    image than to it. Equal to dgm-eval on the same features. ``per_sample`` is positive for
    authentic images, negative for those closer to a training image than its own neighbours are.
    """

    id = "authpct"
    summary = "Percent of generated images that are no near copies of the training set"
    inputs = ("image", "reference_set")
    higher_is_better = True
    bounds = (0.0, 100.0)
    unit = "%"
    minimum = 2
    variants = NAMES
    default_variant = "dinov2"

    def __init__(
        self,
        backbone_name: str = "dinov2",
        *,
        model: str | None = None,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        name = self.variant_id(backbone_name)
        chosen = backbone(backbone_name, model=model, weights=weights)
        super().__init__(
            AuthPctProtocol(metric=name, extractor=chosen.spec, output=chosen.output),
            output=chosen.output,
            device=device,
            reference=reference,
        )

    def _compare(self, fake: np.ndarray, ids: Sequence[str]) -> Result:
        from genmetrics.stats import authpct_estimate, wilson_interval
        from genmetrics.stats.effort import warn_if_long

        real = self._real()
        pairs = len(real) * (len(real) / 2 + len(fake))
        warn_if_long(self.protocol.metric, pairs, fake.shape[1])
        estimate = authpct_estimate(real, fake)
        lo, hi, level = wilson_interval(estimate.value / 100, len(fake), LEVEL)
        return self._set_result(
            estimate.value,
            estimate.influence,
            ids,
            n_reference=len(real),
            interval=Interval(100 * lo, 100 * hi, level),
        )
