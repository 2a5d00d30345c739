"""Fréchet distance on CLIP ViT-B/32 image embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from genmetrics.core.registry import register
from genmetrics.extractors.backbones import backbone
from genmetrics.metrics.fid import FrechetMetric


@register
class FDCLIP(FrechetMetric):
    """CLIP-FID: Fréchet distance on CLIP ViT-B/32 image embeddings, not normalised (512).

    The recipe of clean-fid's CLIP features: short side to 224 by PIL bicubic, centre crop, the
    model's own normalisation (Kynkäänniemi et al., 2023).

    Args of the constructor: ``model`` is a hub id, ``id@revision`` or a local directory.
    """

    id = "fd-clip"
    summary = "Fréchet distance on CLIP ViT-B/32 image embeddings"

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
            backbone("clip", model=model, weights=weights),
            infinity_points=infinity_points,
            device=device,
            reference=reference,
        )
