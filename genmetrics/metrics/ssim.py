"""SSIM: structural similarity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.registry import register
from genmetrics.metrics.pair import PairMetric


@dataclass(frozen=True, kw_only=True)
class SSIMProtocol(MetricProtocol):
    """Every choice that moves an SSIM; they are those of the extractor."""

    pair: ExtractorSpec


@register
class SSIM(PairMetric):
    """Structural similarity of each pair as Wang et al. (2004) define it, then the mean over pairs.

    Gaussian window of sigma 1.5 and 11 taps, population covariance, windows wholly inside the
    image (with a mask: that touch no masked pixel), each channel of RGB, then the mean. Negative
    values are kept. Tools that pad the border, use uniform windows or luma give other numbers.

    Args:
        protocol: ``"wang"``.
        device: Accepted as by every metric; the work is done on the CPU.

    Equals scikit-image 0.26 with ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False,
    data_range=255`` to 1e-12.
    """

    id = "ssim"
    summary = "Structural similarity (Wang et al., 2004) to the counterpart, outside the mask"
    higher_is_better = True
    bounds = (-1.0, 1.0)
    variants = ("wang",)
    default_variant = "wang"
    output = "ssim"

    def __init__(
        self,
        protocol: Literal["wang"] = "wang",
        *,
        device: str = "auto",
        weights: None = None,
    ) -> None:
        from genmetrics.extractors.pairs import StructuralSimilaritySpec

        name = self.variant_id(protocol)
        super().__init__(SSIMProtocol(metric=name, pair=StructuralSimilaritySpec()), device=device)
