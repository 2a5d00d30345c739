"""Fréchet distance on DINOv2 ViT-L/14 features."""

from __future__ import annotations

from genmetrics.core.registry import register
from genmetrics.metrics.fid import FrechetModelMetric


@register
class FDDINOv2(FrechetModelMetric):
    """FD-DINOv2: Fréchet distance on the CLS vector of DINOv2 ViT-L/14 (1024).

    The recipe of dgm-eval (Stein et al., 2023): squash to 224 by PIL bicubic, ImageNet
    normalisation.

    Args of the constructor: ``model`` is a hub id, ``id@revision`` or a local directory.
    """

    id = "fd-dinov2"
    summary = "Fréchet distance on DINOv2 ViT-L/14 features"
    backbone = "dinov2"
