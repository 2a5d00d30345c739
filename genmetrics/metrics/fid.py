"""FID: Fréchet distance between Gaussian fits of features, on Inception and other backbones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from genmetrics.core.errors import InputError, UsageError, require_number
from genmetrics.core.extractor import ExtractorSpec, Features
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.registry import register
from genmetrics.core.result import Result
from genmetrics.core.rows import StoredRows, matrix
from genmetrics.core.sample import Sample
from genmetrics.extractors.backbones import INCEPTION, Backbone, backbone
from genmetrics.metrics.base import SetMetric

if TYPE_CHECKING:
    from genmetrics.samples.statistics import StatisticsEntry
    from genmetrics.stats import Moments


@dataclass(frozen=True, kw_only=True)
class FrechetProtocol(MetricProtocol):
    """Every choice that moves a Fréchet distance."""

    extractor: ExtractorSpec
    output: str
    ddof: int = 1
    infinity_points: int = 15
    seed: int = 0


class FrechetMetric(SetMetric):
    """Fréchet distance between Gaussians fitted to two sets of features.

    ``|m - m_r|^2 + tr S + tr S_r - 2 tr((S_r S)^(1/2))`` with covariances of n - 1, in float64, the
    trace term as a nuclear norm (no matrix square root). The interval comes from the influence
    function with the reference fixed; ``per_sample`` holds the influence of each image: positive
    where it pushes the distance up. ``parts["infinity"]`` extrapolates to infinitely many generated
    images (Chong and Forsyth, 2020), which shows the small-sample bias.

    A metric on one backbone names it, and inherits this constructor.
    """

    backbone: ClassVar[str]

    inputs = ("image", "reference_set")
    higher_is_better = False
    bounds = (0.0, None)
    minimum = 2
    streams = True

    def __init__(
        self,
        *,
        infinity_points: int = 15,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        chosen = backbone(self.backbone, weights=weights)
        self._start(self.id, chosen, infinity_points, device, reference)

    def _start(
        self,
        name: str,
        chosen: Backbone,
        infinity_points: int,
        device: str,
        reference: str | Path | None,
    ) -> None:
        """Do what every constructor of the family does, once it knows its backbone."""
        require_number(name, "infinity_points", infinity_points, 0)
        if infinity_points == 1:
            raise UsageError(f"{name}: infinity_points=1; a line needs 2, and 0 leaves it out")
        protocol = FrechetProtocol(
            metric=name,
            extractor=chosen.spec,
            output=chosen.output,
            infinity_points=infinity_points,
        )
        SetMetric.__init__(self, protocol, output=chosen.output, device=device, reference=reference)

    def _reset_reference(self) -> None:
        super()._reset_reference()
        # The reference side needs no rows: its mean and covariance are all the distance reads.
        self._moments: Moments | None = None
        self._loaded_n = 0
        self._unverified: str | None = None

    def update_features(
        self,
        samples: Sequence[Sample],
        features: Mapping[str, Features],
        *,
        real: bool = False,
    ) -> None:
        """Keep generated rows; fold reference rows into moments."""
        if not real:
            super().update_features(samples, features)
            return
        self._accept_reference()
        from genmetrics.stats import Moments

        rows = matrix(features[self.role], self.output)
        self._reference.append(samples, {})  # ids only: no image may count twice
        for block in rows if isinstance(rows, StoredRows) else [rows]:
            if self._moments is None:
                self._moments = Moments(block.shape[1])
            self._moments.update(block)

    @property
    def _reference_n(self) -> int:
        return self._loaded_n or len(self._reference)

    def _merge(self, other: Self) -> None:
        super()._merge(other)
        if other._moments is None or self._loaded is not None:
            return
        if self._moments is None:
            from genmetrics.stats import Moments

            self._moments = Moments(other._moments.dim)
        self._moments.merge(other._moments)

    def _state(self) -> dict[str, Any]:
        own = self._moments if self._loaded is None else None
        moments = None if own is None else own.state_dict()
        return {**super()._state(), "moments": moments}

    def _load_state(self, state: Mapping[str, Any]) -> None:
        from genmetrics.stats import Moments

        super()._load_state(state)
        if self._loaded is not None:
            return
        self._moments = None
        if state["moments"] is not None:
            self._moments = Moments(len(state["moments"]["mean"]))
            self._moments.load_state_dict(state["moments"])

    def mark(self, *, reference: bool) -> Callable[[], None]:
        """See :meth:`Metric.mark`; moments are copied only where they may change."""
        undo = super().mark(reference=reference)
        if not reference or self._loaded is not None:
            return undo
        moments = copy.deepcopy(self._moments)

        def back() -> None:
            undo()
            self._moments = moments

        return back

    def reference_arrays(self) -> tuple[int, dict[str, np.ndarray]]:
        """Size, mean and covariance of the reference side."""
        self._require("reference", self._reference_n)
        assert self._moments is not None
        return self._reference_n, {
            f"{self.output}.mean": np.asarray(self._moments.mean),
            f"{self.output}.cov": np.asarray(self._moments.cov),
        }

    def _use_reference(self, entry: StatisticsEntry) -> None:
        """Take moments, or the features they come from."""
        from genmetrics.stats import Moments

        if f"{self.output}.features" in entry.arrays:
            rows = np.asarray(entry.arrays[f"{self.output}.features"])
            self._moments = Moments(rows.shape[1])
            self._moments.update(rows)
        else:
            name = self.output if entry.verified else "*"
            if f"{name}.mean" not in entry.arrays:
                raise InputError(
                    f"{entry.source} holds {', '.join(entry.arrays)}, not {name}.mean; build it"
                    f" with `genmetrics stats build -m {self.protocol.metric}`"
                )
            mean, cov = entry.arrays[f"{name}.mean"], entry.arrays[f"{name}.cov"]
            # a bare npz does not say its n: take a covariance of full rank
            self._moments = Moments.from_statistics(entry.n or len(mean) + 1, mean, cov)
        self._loaded_n = entry.n
        self._unverified = None if entry.verified else entry.source

    def _compute(self) -> Result:
        self._require("generated", len(self._rows))
        if self._unverified is None:
            self._require("reference", self._reference_n)
        samples, features = self._rows.ordered()
        fake = matrix(features[self.role], self.output)
        return self._compare(fake, [sample.id for sample in samples])

    def _compare(self, fake: np.ndarray | StoredRows, ids: Sequence[str]) -> Result:
        from genmetrics.stats import frechet_estimate, frechet_infinity

        assert self._moments is not None
        protocol = self.protocol
        assert isinstance(protocol, FrechetProtocol)
        n = len(fake)
        dim = fake.dim if isinstance(fake, StoredRows) else fake.shape[1]
        if self._moments.dim != dim:
            raise InputError(
                f"the reference has {self._moments.dim} features, the images {dim};"
                " both must come from the same extractor"
            )
        estimate = frechet_estimate(self._moments, fake)
        parts = {}
        if protocol.infinity_points and n >= 2 * protocol.infinity_points:
            parts["infinity"] = frechet_infinity(
                self._moments, fake, points=protocol.infinity_points, seed=protocol.seed
            )
        warnings = [
            f"{name}={count} is below the feature dimension {dim}"
            for name, count in (("n", n), ("n_reference", self._reference_n))
            if count < dim and not (name == "n_reference" and self._unverified)
        ]
        if self._unverified is not None:
            warnings.append(
                f"unverified: {self._unverified} does not say which protocol made the reference"
            )
        return self._set_result(
            estimate.value,
            estimate.influence,
            ids,
            n_reference=self._reference_n,
            standard_error=estimate.standard_error,
            parts=parts,
            warnings=warnings,
        )


class FrechetModelMetric(FrechetMetric):
    """A Fréchet distance on a backbone whose model can be replaced."""

    def __init__(
        self,
        *,
        model: str | None = None,
        infinity_points: int = 15,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        chosen = backbone(self.backbone, model=model, weights=weights)
        self._start(self.id, chosen, infinity_points, device, reference)


@register
class FID(FrechetMetric):
    """Fréchet Inception distance (Heusel et al., 2017) under four published preprocessings.

    ``clean`` reproduces clean-fid, ``tf1`` torch-fidelity (and the TensorFlow original), the other
    two their namesakes, each to 1e-3 relative on the same weights and opaque, upright, 8-bit files;
    what is left are their float32 sums and matrix roots.

    Examples:
        >>> import genmetrics as gm
        >>> gm.FID(protocol="tf1").protocol.metric
        'fid@tf1'
    """

    id = "fid"
    summary = "Fréchet distance on Inception 2015-12-05 features"
    variants = INCEPTION
    default_variant = "clean"

    def __init__(
        self,
        protocol: str = "clean",
        *,
        layer: Literal["64", "192", "768", "2048"] = "2048",
        infinity_points: int = 15,
        device: str = "auto",
        weights: Any = None,
        reference: str | Path | None = None,
    ) -> None:
        name = self.variant_id(protocol)
        chosen = backbone(protocol, layer=layer, weights=weights)
        self._start(name, chosen, infinity_points, device, reference)
