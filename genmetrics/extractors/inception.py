"""Inception features for FID, KID, Inception Score and PRDC, in four published preprocessings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from genmetrics.core.errors import UsageError, did_you_mean
from genmetrics.core.extractor import Extractor, OutputKind
from genmetrics.core.protocol import LOCAL
from genmetrics.extractors._model import (
    ImageExtractor,
    ImageSpec,
    Weights,
    override_for,
)

WEIGHTS = "inception-2015-12-05"
LAYERS = ("64", "192", "768", "2048")


class Preprocessing(NamedTuple):
    """Network input = ``(levels / scale - mean) / std``."""

    scale: float
    mean: float
    std: float


PREPROCESSINGS: Mapping[str, Preprocessing] = {
    "clean": Preprocessing(1.0, 128.0, 128.0),
    "tf1": Preprocessing(1.0, 128.0, 128.0),
    "pytorch-fid": Preprocessing(255.0, 0.5, 0.5),
    "torchmetrics": Preprocessing(1.0, 128.0, 128.0),
}
"""Each resizes to 299 x 299 by the function of the same name in ``extractors/resize.py``."""


@dataclass(frozen=True, kw_only=True)
class InceptionSpec(ImageSpec):
    """The Inception network of 2015-12-05 and one way to feed it.

    On the same weights and opaque, upright, 8-bit files, features equal those of clean-fid
    (``clean``), torch-fidelity (``tf1``), pytorch-fid and torchmetrics (since 1.8) to 1e-5
    relative. The tools drop alpha, leave pictures as they lie, and cut 16-bit grey at 255.
    """

    layer: str = "2048"
    path: str | None = field(default=None, metadata=LOCAL)

    @classmethod
    def create(
        cls,
        preprocessing: str = "clean",
        *,
        layer: str = "2048",
        weights: Weights = None,
    ) -> Self:
        """Describe the extractor; loads nothing.

        Args:
            preprocessing: One of :data:`PREPROCESSINGS`.
            layer: ``"2048"`` (with ``logits_unbiased``), ``"768"``, ``"192"`` or ``"64"``.
            weights: A path, or a mapping from weight id to path, in place of the manifest's file.

        Raises:
            UsageError: Unknown preprocessing or layer.
        """
        from genmetrics.weights import locate

        if preprocessing not in PREPROCESSINGS:
            raise UsageError(
                f"unknown preprocessing {preprocessing!r}"
                f"{did_you_mean(preprocessing, PREPROCESSINGS)}; there is"
                f" {', '.join(PREPROCESSINGS)}"
            )
        if layer not in LAYERS:
            raise UsageError(f"Inception has no layer {layer!r}; there is {', '.join(LAYERS)}")
        scale, mean, std = PREPROCESSINGS[preprocessing]
        return cls(
            extractor="inception",
            weights=WEIGHTS,
            sha256=locate(WEIGHTS, weights).sha256,
            resize=preprocessing,
            size=299,
            scale=scale,
            mean=(mean,) * 3,
            std=(std,) * 3,
            layer=layer,
            path=override_for(weights, WEIGHTS),
        )

    @property
    def outputs(self) -> Mapping[str, OutputKind]:  # type: ignore[override]
        """The layer, and beside ``"2048"`` the class scores ``"logits_unbiased"``."""
        if self.layer == "2048":
            return {"2048": "vector", "logits_unbiased": "vector"}
        return {self.layer: "vector"}

    def check(self) -> None:
        """Raise :class:`WeightsError` if the weights are missing or damaged."""
        from genmetrics.weights import require

        require(self.weights, self.path)

    def _build(self, device: str) -> Extractor:
        from genmetrics.extractors._inception_network import InceptionNetwork
        from genmetrics.weights import load_state_dict, require

        path = require(self.weights, self.path)
        network = InceptionNetwork(load_state_dict(path), str(path), self.layer)
        return ImageExtractor(self, device, network)
