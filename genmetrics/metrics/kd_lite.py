"""Kernel distance on EfficientNet-Lite0 features (offline)."""

from __future__ import annotations

from genmetrics.core.registry import register
from genmetrics.metrics.kid import KernelMetric


@register
class KDLite(KernelMetric):
    """Unbiased cubic-kernel MMD on the pooled features of EfficientNet-Lite0 (1280).

    Runs without any download. It is not KID: its values compare with other ``kd-lite`` values only.
    """

    id = "kd-lite"
    summary = "Cubic-kernel MMD on EfficientNet-Lite0 features (offline)"
    backbone = "lite"
