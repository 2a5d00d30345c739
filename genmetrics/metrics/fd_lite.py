"""Fréchet distance on EfficientNet-Lite0 features (offline)."""

from __future__ import annotations

from genmetrics.core.registry import register
from genmetrics.metrics.fid import FrechetMetric


@register
class FDLite(FrechetMetric):
    """Fréchet distance on the pooled features of EfficientNet-Lite0 (1280).

    The backbone comes with the installation, so this runs without any download. It is a real metric
    on a real backbone, and not FID: its values compare with nothing but other ``fd-lite`` values.
    """

    id = "fd-lite"
    summary = "Fréchet distance on EfficientNet-Lite0 features (offline)"
    backbone = "lite"
