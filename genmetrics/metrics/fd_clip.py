"""Fréchet distance on CLIP ViT-B/32 image embeddings."""

from __future__ import annotations

from genmetrics.core.registry import register
from genmetrics.metrics.fid import FrechetModelMetric


@register
class FDCLIP(FrechetModelMetric):
    """CLIP-FID: Fréchet distance on CLIP ViT-B/32 image embeddings, not normalised (512).

    The recipe of clean-fid's CLIP features: short side to 224 by PIL bicubic, centre crop, the
    model's own normalisation (Kynkäänniemi et al., 2023).

    Args of the constructor: ``model`` is a hub id, ``id@revision`` or a local directory.
    """

    id = "fd-clip"
    summary = "Fréchet distance on CLIP ViT-B/32 image embeddings"
    backbone = "clip"
