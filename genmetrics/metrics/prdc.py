"""PRDC: precision, recall, density and coverage by k-nearest-neighbour balls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from genmetrics.core.errors import require_number
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.registry import register
from genmetrics.core.result import Interval, Result
from genmetrics.extractors.backbones import INCEPTION, Backbone, backbone
from genmetrics.metrics.base import LEVEL, SetMetric


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

    A metric on one backbone names it, and inherits this constructor.
    """

    backbone: ClassVar[str]

    inputs = ("image", "reference_set")
    higher_is_better = True
    bounds = (0.0, 1.0)
    minimum = 2

    def __init__(
        self,
        *,
        k: int = 5,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        chosen = backbone(self.backbone, weights=weights)
        self._start(self.id, chosen, k, device, reference)

    def _start(
        self, name: str, chosen: Backbone, k: int, device: str, reference: str | Path | None
    ) -> None:
        """Do what every constructor of the family does, once it knows its backbone."""
        require_number(name, "k", k, 1)
        protocol = PrdcProtocol(metric=name, extractor=chosen.spec, output=chosen.output, k=k)
        SetMetric.__init__(self, protocol, output=chosen.output, device=device, reference=reference)
        self.minimum = k + 1

    def _compare(self, fake: np.ndarray, ids: Sequence[str]) -> Result:
        from genmetrics.stats import prdc, wilson_interval
        from genmetrics.stats.effort import joined_pairs, warn_if_long

        protocol = self.protocol
        assert isinstance(protocol, PrdcProtocol)
        real = self._real()
        warn_if_long(protocol.metric, joined_pairs(len(real), len(fake)), fake.shape[1])
        found = prdc(real, fake, k=protocol.k)
        precision, recall = found.precision, found.recall
        total = max(1e-5, precision + recall)
        slope_p, slope_r = 2 * recall**2 / total**2, 2 * precision**2 / total**2
        influence = slope_p * (np.asarray(found.inside, dtype=np.float64) - precision)
        error = np.hypot(
            slope_p * np.sqrt(precision * (1 - precision) / len(fake)),
            slope_r * np.sqrt(recall * (1 - recall) / len(real)),
        )
        interval = None
        if {precision, recall} & {0.0, 1.0}:
            # the normal interval has no width at an edge; Wilson's has, and covers both at once
            sides = (
                wilson_interval(precision, len(fake), LEVEL),
                wilson_interval(recall, len(real), LEVEL),
            )
            lo, hi = (_f_score(sides[0][i], sides[1][i]) for i in (0, 1))
            interval = Interval(lo, hi, LEVEL)
        return self._set_result(
            _f_score(precision, recall),
            influence,
            ids,
            n_reference=len(real),
            standard_error=float(error),
            interval=interval,
            parts={
                "precision": precision,
                "recall": recall,
                "density": found.density,
                "coverage": found.coverage,
            },
        )


def _f_score(precision: float, recall: float) -> float:
    return 2 * precision * recall / max(1e-5, precision + recall)


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
        name = self.variant_id(protocol)
        self._start(name, backbone(protocol, weights=weights), k, device, reference)
