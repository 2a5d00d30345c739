"""Backbones of set metrics by name: which extractor, and which of its outputs is compared."""

from __future__ import annotations

from typing import Any, NamedTuple

from genmetrics.core.errors import UsageError, did_you_mean
from genmetrics.core.extractor import ExtractorSpec

INCEPTION = ("clean", "tf1", "pytorch-fid", "torchmetrics")
"""Published preprocessings before the Inception network of 2015-12-05."""

NAMES = (*INCEPTION, "lite", "dinov2", "clip")


class Backbone(NamedTuple):
    """An extractor and the output that stands for an image."""

    spec: ExtractorSpec
    output: str


def backbone(
    name: str, *, layer: str = "2048", model: str | None = None, weights: Any = None
) -> Backbone:
    """Return a backbone by name.

    Args:
        name: One of the four preprocessings of Inception, ``"lite"`` (EfficientNet-Lite0),
            ``"dinov2"`` (ViT-L/14, CLS) or ``"clip"`` (ViT-B/32 image embedding, not normalised).
        layer: Inception layer: 64, 192, 768 or 2048.
        model: Replaces the model of ``dinov2`` or ``clip``: a hub id, ``id@revision`` or directory.
        weights: A path, or a mapping from weight id to path.

    Raises:
        UsageError: Unknown name.
    """
    if model is not None and name not in ("dinov2", "clip"):
        raise UsageError(f"backbone {name!r} has one model; model={model!r} fits dinov2 and clip")
    if name in INCEPTION:
        from genmetrics.extractors.inception import InceptionSpec

        return Backbone(InceptionSpec.create(name, layer=layer, weights=weights), layer)
    if name == "lite":
        from genmetrics.extractors.efficientnet_lite0 import EfficientNetLite0Spec

        return Backbone(EfficientNetLite0Spec.create(weights=weights), "pooled")
    if name == "dinov2":
        from genmetrics.extractors.dinov2 import DINOv2Spec

        return Backbone(DINOv2Spec.create(model=model, weights=weights), "cls")
    if name == "clip":
        from genmetrics.extractors.clip import ClipImageSpec

        model = model or "openai/clip-vit-base-patch32"
        # clean-fid's CLIP-FID crops as torchvision does, whatever the model's own directory says
        spec = ClipImageSpec.create(model=model, resize="short_side_crop", weights=weights)
        return Backbone(spec, "embedding")
    raise UsageError(f"unknown backbone {name!r}{did_you_mean(name, NAMES)}")
