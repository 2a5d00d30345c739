"""DINOv2 features: the CLS vector that FD-DINOv2 is defined on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

from genmetrics.core.errors import MissingExtraError
from genmetrics.core.extractor import Extractor, OutputKind
from genmetrics.core.protocol import LOCAL
from genmetrics.extractors._model import (
    ImageExtractor,
    ImageSpec,
    Weights,
    locate_source,
    require_source,
)

MODEL = "facebook/dinov2-large"

Positions = Literal["dinov2", "transformers"]

_NEEDS = ("config.json", "*.safetensors|*.bin")


@dataclass(frozen=True, kw_only=True)
class DINOv2Spec(ImageSpec):
    """DINOv2 (Oquab et al., 2023), the CLS vector after the final layer norm.

    The convention of dgm-eval (Stein et al., 2023): squash to 224 x 224 by Pillow bicubic on bytes,
    ImageNet mean and deviation. Equals transformers called directly where its positions need no
    interpolation, to the last bit.
    """

    outputs: ClassVar[Mapping[str, OutputKind]] = {"cls": "vector"}

    positions: Positions = "dinov2"
    """How position embeddings, stored for 518 pixels, are brought to 224: bicubic with the scale
    factor (16 + 0.1) / 37 of the original code, or with the plain size, as transformers does."""

    source: str = field(metadata=LOCAL)

    @classmethod
    def create(
        cls,
        *,
        model: str | None = None,
        weights: Weights = None,
    ) -> Self:
        """Describe the extractor; loads nothing.

        Args:
            model: A hub id, ``id@revision`` or local directory in the layout of transformers, or a
                file (or manifest id) in the original layout (``dinov2_vitl14_pretrain.pth``);
                ViT-L/14 from the hub by default.
            weights: A path, or a mapping from ``model`` to a path, to load in its place.

        Raises:
            WeightsError: A path that does not exist.
        """
        found = locate_source(model or MODEL, weights)
        return cls(
            extractor="dinov2",
            weights=found.name,
            sha256=found.sha256,
            source=found.load,
            resize="squash",
            size=224,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
        )

    def check(self) -> None:
        """Raise if transformers or the weights are missing."""
        from importlib.util import find_spec

        if find_spec("transformers") is None:
            raise MissingExtraError("DINOv2", "transformers")
        require_source(self.source, _NEEDS)

    def _build(self, device: str) -> Extractor:
        from genmetrics.extractors._dinov2_network import ClsVector, load_dinov2

        model = load_dinov2(require_source(self.source, _NEEDS))
        assert self.size is not None
        return ImageExtractor(self, device, ClsVector(model, self.size, self.positions))
