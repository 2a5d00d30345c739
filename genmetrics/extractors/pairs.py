"""Scores of an image against its counterpart, as features: no model, computed while preparing.

Comparing two pictures needs no device, so each pair is scored on the worker thread that decoded it
and only the scores travel on. A further measure is one more :class:`PairSpec` here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from genmetrics.core.errors import InputError, PairingError
from genmetrics.core.extractor import Extractor, ExtractorSpec, Features, OutputKind
from genmetrics.core.sample import Item

if TYPE_CHECKING:
    from torch import Tensor

    from genmetrics.stats.pairs import Channel, Outside


@dataclass(frozen=True, kw_only=True)
class PairSpec(ExtractorSpec):
    """A measure between an image and its counterpart, on uint8 levels.

    It gives two scores a pair: the measure, under the name of its first output, and ``outside``,
    the share of the picture that lies outside the mask. Where that is 0 the measure is 0 and means
    nothing.
    """

    inputs = ("image", "reference", "mask")
    same_size = ("reference", "mask")

    def check(self) -> None:
        """Do nothing: no weights, no extra packages."""

    def build(self, device: str) -> PairExtractor:
        """Return the extractor; it works on the CPU whatever the device."""
        return PairExtractor(self, device)

    @abstractmethod
    def compare(self, image: np.ndarray, reference: np.ndarray, mask: np.ndarray | None) -> Outside:
        """Measure one pair of ``(3, H, W)``; ``mask`` is bool ``(H, W)``, True = may change."""


@dataclass(frozen=True, kw_only=True)
class SquaredErrorSpec(PairSpec):
    """Mean squared error in squared levels, from which PSNR follows."""

    outputs: ClassVar[Mapping[str, OutputKind]] = {"squared_error": "score", "outside": "score"}

    extractor: str = "squared-error"
    channel: Channel = "rgb"

    def compare(self, image: np.ndarray, reference: np.ndarray, mask: np.ndarray | None) -> Outside:
        """See :func:`genmetrics.stats.pairs.mean_squared_error`."""
        from genmetrics.stats.pairs import mean_squared_error

        return mean_squared_error(image, reference, mask=mask, channel=self.channel)


@dataclass(frozen=True, kw_only=True)
class StructuralSimilaritySpec(PairSpec):
    """SSIM as Wang et al. (2004) define it."""

    outputs: ClassVar[Mapping[str, OutputKind]] = {"ssim": "score", "outside": "score"}

    extractor: str = "ssim"
    window: str = "gaussian 11x11, sigma 1.5"
    k1: float = 0.01
    k2: float = 0.03
    covariance: str = "population"
    border: str = "valid"
    channels: str = "mean of rgb"
    data_range: float = 255.0

    def compare(self, image: np.ndarray, reference: np.ndarray, mask: np.ndarray | None) -> Outside:
        """See :func:`genmetrics.stats.pairs.ssim`."""
        from genmetrics.stats.pairs import structural_similarity

        return structural_similarity(image, reference, mask=mask)


class PairExtractor(Extractor):
    """Scores each pair in :meth:`prepare`; :meth:`forward` only stacks the scores."""

    fill = 1

    spec: PairSpec

    def prepare(self, item: Item) -> Outside:
        """Score one pair.

        Raises:
            PairingError: Image and reference differ in size; the message gives both.
            InputError: The mask has another size, or the image is too small for the measure.
        """
        from genmetrics.stats.pairs import Outside

        image, reference = _pixels(item, "image"), _pixels(item, "reference")
        mask = None if item.mask is None else _array(item.mask)
        who = item.names.get("image", f"image {item.id!r}")
        if reference.shape != image.shape:
            other = " ".join(["reference", *_named(item, "reference")])
            raise PairingError(
                f"{who} is {_size(image)} but its {other} is {_size(reference)}; give both the same"
                " size"
            )
        try:
            value, share = self.spec.compare(image, reference, mask)
        except InputError as error:
            named = "".join(f", mask {name}" for name in _named(item, "mask"))
            raise InputError(f"{who}{named}: {error}") from error
        return Outside(value if share > 0 else 0.0, share)

    def forward(self, prepared: Sequence[Outside]) -> Features:
        """Stack the scores, float64."""
        table = np.asarray(prepared, dtype=np.float64).reshape(-1, 2)
        return {name: table[:, i] for i, name in enumerate(self.spec.outputs)}


def _pixels(item: Item, field: str) -> np.ndarray:
    picture: Tensor | None = getattr(item, field)
    if picture is None:
        raise PairingError(f"sample {item.id!r} has no {field}; give one for each image")
    return _array(picture)


def _array(tensor: Tensor) -> np.ndarray:
    found: Any = tensor.cpu().numpy()
    return np.asarray(found)


def _size(picture: np.ndarray) -> str:
    return f"{picture.shape[-1]}x{picture.shape[-2]}"


def _named(item: Item, field: str) -> list[str]:
    return [item.names[field]] if field in item.names else []
