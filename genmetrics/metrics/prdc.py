"""PRDC: precision, recall, density and coverage by k-nearest-neighbour balls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genmetrics.core.errors import TooFewSamplesError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.registry import register
from genmetrics.core.result import Result
from genmetrics.extractors.backbones import INCEPTION, Backbone, backbone
from genmetrics.metrics.base import SetMetric


@dataclass(frozen=True, kw_only=True)
class PrdcProtocol(MetricProtocol):
    """Every choice that moves precision, recall, density and coverage."""

    extractor: ExtractorSpec
    output: str
    k: int = 5
    comparison: str = "<"
    value: str = "f_score"


class PrdcMetric(SetMetric):
    """Precision and recall (Kynkäänniemi et al., 2019), density and coverage (Naeem et al., 2020).

    Balls reach to the k-th neighbour in the own set, self left out; a point on the edge is outside.
    The value is the harmonic mean of precision and recall, ``2PR / max(1e-5, P + R)``; all four are
    in ``parts``. The interval moves the samples and keeps the balls: precision varies over
    generated images, recall over reference images. ``per_sample`` is the influence of each
    generated image on the value, largest for images inside the real balls.
    """

    inputs = ("image", "reference_set")
    higher_is_better = True
    bounds = (0.0, 1.0)
    minimum = 2

    def __init__(
        self,
        name: str,
        chosen: Backbone,
        *,
        k: int,
        device: str,
        reference: str | Path | None,
    ) -> None:
        protocol = PrdcProtocol(metric=name, extractor=chosen.spec, output=chosen.output, k=k)
        super().__init__(protocol, output=chosen.output, device=device, reference=reference)

    def _compare(self, fake: np.ndarray, ids: Sequence[str]) -> Result:
        from genmetrics.stats import prdc

        protocol = self.protocol
        assert isinstance(protocol, PrdcProtocol)
        real = self._real()
        for side, rows in (("reference", real), ("generated", fake)):
            if len(rows) <= protocol.k:
                raise TooFewSamplesError(
                    f"{protocol.metric} has {len(rows)} {side} images, needs more than"
                    f" k={protocol.k}; add images or pass a smaller k"
                )
        found = prdc(real, fake, k=protocol.k)
        precision, recall = found.precision, found.recall
        total = max(1e-5, precision + recall)
        slope_p, slope_r = 2 * recall**2 / total**2, 2 * precision**2 / total**2
        influence = slope_p * (np.asarray(found.inside, dtype=np.float64) - precision)
        error = np.hypot(
            slope_p * np.sqrt(precision * (1 - precision) / len(fake)),
            slope_r * np.sqrt(recall * (1 - recall) / len(real)),
        )
        return self._set_result(
            2 * precision * recall / total,
            influence,
            ids,
            n_reference=len(real),
            standard_error=float(error),
            parts={
                "precision": precision,
                "recall": recall,
                "density": found.density,
                "coverage": found.coverage,
            },
        )


@register
class PRDC(PrdcMetric):
    """Precision, recall, density and coverage on Inception features, k = 5, strict comparison.

    Equal to clovaai's ``prdc`` and to dgm-eval on the same features.
    """

    id = "prdc"
    summary = "Precision, recall, density, coverage on Inception 2015-12-05 features"
    variants = INCEPTION
    default_variant = "clean"

    def __init__(
        self,
        protocol: str = "clean",
        *,
        k: int = 5,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        super().__init__(
            f"prdc@{protocol}",
            backbone(protocol, weights=weights),
            k=k,
            device=device,
            reference=reference,
        )
