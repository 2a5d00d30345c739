"""Kernel distance on EfficientNet-Lite0 features (offline)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from genmetrics.core.registry import register
from genmetrics.extractors.backbones import backbone
from genmetrics.metrics.kid import KernelMetric


@register
class KDLite(KernelMetric):
    """Unbiased cubic-kernel MMD on the pooled features of EfficientNet-Lite0 (1280).

    Runs without any download. It is not KID: its values compare with other ``kd-lite`` values only.
    """

    id = "kd-lite"
    summary = "Cubic-kernel MMD on EfficientNet-Lite0 features (offline)"

    def __init__(
        self,
        *,
        subsets: int = 100,
        subset_size: int = 1000,
        seed: int = 2020,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        super().__init__(
            self.id,
            backbone("lite", weights=weights),
            subsets=subsets,
            subset_size=subset_size,
            seed=seed,
            device=device,
            reference=reference,
        )
