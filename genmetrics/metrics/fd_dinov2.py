"""Fréchet distance on DINOv2 ViT-L/14 features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from genmetrics.core.registry import register
from genmetrics.extractors.backbones import backbone
from genmetrics.metrics.fid import FrechetMetric


@register
class FDDINOv2(FrechetMetric):
    """FD-DINOv2: Fréchet distance on the CLS vector of DINOv2 ViT-L/14 (1024).

    The recipe of dgm-eval (Stein et al., 2023): squash to 224 by PIL bicubic, ImageNet
    normalisation.

    Args of the constructor: ``model`` is a hub id, ``id@revision`` or a local directory.
    """

    id = "fd-dinov2"
    summary = "Fréchet distance on DINOv2 ViT-L/14 features"

    def __init__(
        self,
        *,
        model: str | None = None,
        infinity_points: int = 15,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        super().__init__(
            self.id,
            backbone("dinov2", model=model, weights=weights),
            infinity_points=infinity_points,
            device=device,
            reference=reference,
        )
