"""Fréchet distance on EfficientNet-Lite0 features (offline)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from genmetrics.core.registry import register
from genmetrics.extractors.backbones import backbone
from genmetrics.metrics.fid import FrechetMetric


@register
class FDLite(FrechetMetric):
    """Fréchet distance on the pooled features of EfficientNet-Lite0 (1280).

    The backbone comes with the installation, so this runs without any download. It is a real metric
    on a real backbone, and not FID: its values compare with nothing but other ``fd-lite`` values.
    """

    id = "fd-lite"
    summary = "Fréchet distance on EfficientNet-Lite0 features (offline)"

    def __init__(
        self,
        *,
        infinity_points: int = 15,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        super().__init__(
            self.id,
            backbone("lite", weights=weights),
            infinity_points=infinity_points,
            device=device,
            reference=reference,
        )
