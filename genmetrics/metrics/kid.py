"""KID: squared maximum mean discrepancy with a cubic polynomial kernel, and its kin."""

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
from genmetrics.core.result import Result
from genmetrics.extractors.backbones import INCEPTION, Backbone, backbone
from genmetrics.metrics.base import SetMetric


@dataclass(frozen=True, kw_only=True)
class KernelProtocol(MetricProtocol):
    """Every choice that moves a kernel distance. ``subset_size`` is cut to the smaller set."""

    extractor: ExtractorSpec
    output: str
    kernel: str = "polynomial"
    degree: int = 3
    gamma: float | None = None
    coef0: float = 1.0
    estimator: str = "unbiased"
    subsets: int = 100
    subset_size: int = 1000
    seed: int = 2020


class KernelMetric(SetMetric):
    """Unbiased squared MMD with ``(gamma <x, y> + coef0) ** degree``, a mean over seeded subsets.

    ``gamma`` is 1/d. The estimator is unbiased, so it is negative about half of the time when the
    two sets come from one distribution; it is never clamped. ``per_sample`` is the influence of
    each generated image by the witness function; ``parts["spread"]`` is the spread over subsets.

    A metric on one backbone names it, and inherits this constructor.
    """

    backbone: ClassVar[str]

    inputs = ("image", "reference_set")
    higher_is_better = False
    minimum = 2

    def __init__(
        self,
        *,
        subsets: int = 100,
        subset_size: int = 1000,
        seed: int = 2020,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        chosen = backbone(self.backbone, weights=weights)
        self._start(self.id, chosen, subsets, subset_size, seed, device, reference)

    def _start(
        self,
        name: str,
        chosen: Backbone,
        subsets: int,
        subset_size: int,
        seed: int,
        device: str,
        reference: str | Path | None,
    ) -> None:
        """Do what every constructor of the family does, once it knows its backbone."""
        require_number(name, "subsets", subsets, 1)
        require_number(name, "subset_size", subset_size, 2)
        require_number(name, "seed", seed, 0)
        protocol = KernelProtocol(
            metric=name,
            extractor=chosen.spec,
            output=chosen.output,
            subsets=subsets,
            subset_size=subset_size,
            seed=seed,
        )
        SetMetric.__init__(self, protocol, output=chosen.output, device=device, reference=reference)

    def _compare(self, fake: np.ndarray, ids: Sequence[str]) -> Result:
        from genmetrics.stats import kernel_distance, kernel_estimate
        from genmetrics.stats.effort import joined_pairs, warn_if_long
        from genmetrics.stats.kernel import witness_size

        protocol = self.protocol
        assert isinstance(protocol, KernelProtocol)
        real = self._real()
        n, m = len(real), len(fake)
        drawn = protocol.subsets * 2.0 * min(protocol.subset_size, n, m) ** 2
        pairs = m * float(witness_size(m) + witness_size(n)) + min(drawn, joined_pairs(n, m))
        warn_if_long(protocol.metric, pairs, fake.shape[1])
        # The distance is symmetric and only the draws are not: torch-fidelity draws its first input
        # first, and that is where its users put the generated images.
        distance = kernel_distance(
            fake,
            real,
            degree=protocol.degree,
            gamma=protocol.gamma,
            coef0=protocol.coef0,
            subsets=protocol.subsets,
            subset_size=protocol.subset_size,
            seed=protocol.seed,
        )
        estimate = kernel_estimate(
            real,
            fake,
            degree=protocol.degree,
            gamma=protocol.gamma,
            coef0=protocol.coef0,
            seed=protocol.seed,
        )
        used = distance.subset_size or 0
        warnings = []
        if used < protocol.subset_size:
            warnings.append(
                f"subset_size {protocol.subset_size} was cut to {used}: n={m}, n_reference={n}"
            )
        if (estimate.fake_used, estimate.real_used) != (m, n):
            warnings.append(
                "interval and per-sample values compare with a seeded subsample:"
                f" {estimate.fake_used} of {m} generated, {estimate.real_used} of {n} reference"
                " images"
            )
        if distance.value < 0:
            warnings.append("below zero: normal for an unbiased estimate near zero")
        return self._set_result(
            distance.value,
            estimate.influence,
            ids,
            n_reference=n,
            parts={"spread": distance.spread, "subset_size": float(used)},
            warnings=warnings,
        )


@register
class KID(KernelMetric):
    """Kernel Inception distance (Bińkowski et al., 2018) under four published preprocessings.

    With ``tf1`` it reproduces torch-fidelity, draws of subsets included, to 1e-6 relative on the
    same features. Values are printed raw; many papers print them times 1000.
    """

    id = "kid"
    summary = "Cubic-kernel MMD on Inception 2015-12-05 features, unbiased"
    variants = INCEPTION
    default_variant = "clean"

    def __init__(
        self,
        protocol: str = "clean",
        *,
        subsets: int = 100,
        subset_size: int = 1000,
        seed: int = 2020,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        name = self.variant_id(protocol)
        chosen = backbone(protocol, weights=weights)
        self._start(name, chosen, subsets, subset_size, seed, device, reference)
