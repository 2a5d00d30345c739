"""Precision, recall, density and coverage on EfficientNet-Lite0 features (offline)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from genmetrics.core.registry import register
from genmetrics.extractors.backbones import backbone
from genmetrics.metrics.prdc import PrdcMetric


@register
class PRDCLite(PrdcMetric):
    """Precision, recall, density and coverage on the pooled features of EfficientNet-Lite0 (1280).

    Runs without any download; its values compare with other ``prdc-lite`` values only.
    """

    id = "prdc-lite"
    summary = "Precision, recall, density, coverage on EfficientNet-Lite0 features (offline)"

    def __init__(
        self,
        *,
        k: int = 5,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        super().__init__(
            self.id, backbone("lite", weights=weights), k=k, device=device, reference=reference
        )
