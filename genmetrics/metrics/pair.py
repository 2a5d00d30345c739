"""Metrics of an image against its counterpart: what PSNR, SSIM and their kin share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from genmetrics.core.extractor import Features
from genmetrics.core.sample import Sample
from genmetrics.metrics.base import SampleMetric

ROLE = "pair"
"""The field of the protocol that holds the :class:`~genmetrics.extractors.pairs.PairSpec`."""


class PairMetric(SampleMetric):
    """A score of each image against its reference; with a mask, of what lies outside the mask.

    A mask is white (True) where the image was allowed to change, so the score says how well the
    rest was preserved. A pair whose mask covers everything has no score.
    """

    inputs = ("image", "reference")

    output: ClassVar[str]
    """Name of the extractor's output that holds the measure."""

    def scores(self, samples: Sequence[Sample], features: Mapping[str, Features]) -> np.ndarray:
        """Score each pair; NaN where nothing lies outside the mask."""
        measured = self.measure(np.asarray(features[ROLE][self.output], dtype=np.float64))
        return np.where(_share(features) > 0, measured, np.nan)

    def measure(self, values: np.ndarray) -> np.ndarray:
        """Turn the extractor's output into scores; as it is by default."""
        return values

    def parts(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> dict[str, float]:
        """Mean share of the pictures outside the masks, if there is any mask."""
        share = _share(features)
        return {} if (share == 1).all() else {"outside": float(share.mean())}

    def details(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> list[dict[str, str]]:
        """Say of a pair without a score why."""
        covered = {"reason": "nothing lies outside the mask"}
        return [covered if share == 0 else {} for share in _share(features)]

    def notes(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> list[str]:
        """Say which pairs have no score."""
        covered = [s.id for s, share in zip(samples, _share(features), strict=True) if share == 0]
        if not covered:
            return []
        return [
            f"{len(covered)} of {len(samples)} pairs have no score: nothing lies outside the mask"
            f" (first: {covered[0]!r})"
        ]


def _share(features: Mapping[str, Features]) -> np.ndarray:
    return np.asarray(features[ROLE]["outside"], dtype=np.float64)
