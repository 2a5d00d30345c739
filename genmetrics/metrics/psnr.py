"""PSNR: peak signal-to-noise ratio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from genmetrics.core.errors import require_choice
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.registry import register
from genmetrics.metrics.pair import PairMetric

PEAK = 255.0


@dataclass(frozen=True, kw_only=True)
class PSNRProtocol(MetricProtocol):
    """Every choice that moves a PSNR."""

    pair: ExtractorSpec
    peak: float = PEAK


@register
class PSNR(PairMetric):
    """Peak signal-to-noise ratio ``10 log10(255^2 / MSE)`` of each pair in dB, then the mean.

    The mean is over pairs, not over pooled errors. Identical pairs are infinite; they stay out of
    the mean and are counted in ``parts["n_infinite"]``. Float images are rounded to levels first.

    Args:
        channel: ``"rgb"``, or luma of BT.601 in studio swing (``"y-studio"``, as video tools and
            super-resolution papers quote it) or full swing (``"y-full"``). White against black is
            0 dB, 1.322 dB and 0 dB.
        device: Accepted as by every metric; the work is done on the CPU.

    Equals ``peak_signal_noise_ratio`` of scikit-image 0.26 for each pair to 1e-12.
    """

    id = "psnr"
    summary = "Peak signal-to-noise ratio against the counterpart, outside the mask"
    higher_is_better = True
    bounds = (0.0, None)
    unit = "dB"
    output = "squared_error"

    def __init__(
        self,
        *,
        channel: Literal["rgb", "y-studio", "y-full"] = "rgb",
        device: str = "auto",
        weights: None = None,
    ) -> None:
        from genmetrics.extractors.pairs import SquaredErrorSpec

        require_choice("psnr", "channel", channel, ("rgb", "y-studio", "y-full"))
        spec = SquaredErrorSpec(channel=channel)
        super().__init__(PSNRProtocol(metric="psnr", pair=spec), device=device)

    def measure(self, values: np.ndarray) -> np.ndarray:
        """Turn mean squared errors into decibels."""
        from genmetrics.stats.pairs import decibels

        return decibels(values, PEAK)
