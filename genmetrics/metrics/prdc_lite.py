"""Precision, recall, density and coverage on EfficientNet-Lite0 features (offline)."""

from __future__ import annotations

from genmetrics.core.registry import register
from genmetrics.metrics.prdc import PrdcMetric


@register
class PRDCLite(PrdcMetric):
    """Precision, recall, density and coverage on the pooled features of EfficientNet-Lite0 (1280).

    Runs without any download; its values compare with other ``prdc-lite`` values only.
    """

    id = "prdc-lite"
    summary = "Precision, recall, density, coverage on EfficientNet-Lite0 features (offline)"
    backbone = "lite"
