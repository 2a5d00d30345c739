"""The two shapes every metric has: sets compared with sets, and samples scored one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from genmetrics.core.errors import (
    FeatureError,
    InputError,
    ProtocolMismatchError,
    TooFewSamplesError,
)
from genmetrics.core.extractor import ExtractorSpec, Features, in_bounds
from genmetrics.core.metric import Metric, MetricProtocol, as_items, as_samples
from genmetrics.core.result import Interval, Result
from genmetrics.core.sample import Item, Sample
from genmetrics.core.state import FeatureRows, require_own_ids, vectors

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from genmetrics.samples.statistics import StatisticsEntry

LEVEL = 0.95
"""Confidence level of every interval."""


class RowsMetric(Metric):
    """A metric whose state is the generated samples' feature rows."""

    def reset(self) -> None:
        """Forget every sample."""
        self._rows = FeatureRows()

    def update_features(
        self,
        samples: Sequence[Sample],
        features: Mapping[str, Features],
        *,
        real: bool = False,
    ) -> None:
        """Keep the rows; see :meth:`Metric.update_features`."""
        if real:
            raise InputError(f"{self.protocol.metric} has no reference side; drop real=True")
        self._rows.append(samples, features)

    def _merge(self, other: Self) -> None:
        self._rows.merge(other._rows)

    def _state(self) -> dict[str, Any]:
        return {"rows": self._rows.state_dict()}

    def _load_state(self, state: Mapping[str, Any]) -> None:
        self._rows.load_state_dict(state["rows"])

    def _update(self, items: Sequence[Item], *, real: bool = False) -> None:
        if items:
            self.update_features(as_samples(items), self._extract(items), real=real)

    def _require(self, side: str, n: int) -> None:
        if n < self.minimum:
            raise TooFewSamplesError(
                f"{self.protocol.metric} has {n} {side} images, needs at least {self.minimum}; add"
                " images"
            )


class SetMetric(RowsMetric):
    """A metric of one set of images, or of a generated set against a reference set.

    Subclasses turn two feature matrices into a result in :meth:`_compare`. The reference side keeps
    feature rows unless a subclass needs less.
    """

    output: str
    """Name of the extractor's output that is compared, such as ``"2048"``."""

    role: ClassVar[str] = "extractor"

    def __init__(
        self,
        protocol: MetricProtocol,
        *,
        output: str,
        device: str = "auto",
        reference: str | Path | None = None,
    ) -> None:
        self.output = output
        self._loaded: StatisticsEntry | None = None
        super().__init__(protocol, device=device)
        if reference is not None:
            from genmetrics.samples.statistics import read_statistics

            self.load_reference(read_statistics(reference).entry(self.spec))

    @property
    def spec(self) -> ExtractorSpec:
        """The one extractor of the metric."""
        return self.extractors[self.role]

    @property
    def needs_reference(self) -> bool:
        """Whether the metric compares with a reference set."""
        return "reference_set" in self.inputs

    def update(
        self,
        images: Tensor | Sequence[Tensor],
        real: bool = False,
        *,
        ids: Sequence[str] | None = None,
        value_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        """Extract features of images and keep them.

        Args:
            images: uint8 tensor ``(N, 3, H, W)``, a list of ``(3, H, W)`` of any sizes, or floats
                within ``value_range``.
            real: True for the reference side.
            ids: Unique names over all updates and ranks; numbered when left out.
            value_range: Declared range of float images.

        Raises:
            InputError: Another shape or dtype, values outside the range, wrong number of ids.
        """
        require_own_ids(ids or ())
        names = ids if ids is not None else self._side(real).next_ids(len(images))
        self._update(as_items(images, ids=names, value_range=value_range), real=real)

    def reset(self) -> None:
        """Forget every sample of both sides; statistics that were loaded stay."""
        super().reset()
        self._reset_reference()
        if self._loaded is not None:
            self._use_reference(self._loaded)

    def _reset_reference(self) -> None:
        self._reference = FeatureRows()

    def _side(self, real: bool) -> FeatureRows:
        return self._reference if real else self._rows

    def update_features(
        self,
        samples: Sequence[Sample],
        features: Mapping[str, Features],
        *,
        real: bool = False,
    ) -> None:
        """Keep the rows of one side; see :meth:`Metric.update_features`."""
        if real:
            self._accept_reference()
        rows = {self.output: vectors(features[self.role], self.output)}
        self._side(real).append(samples, {self.role: rows})

    def _accept_reference(self) -> None:
        """Refuse reference images where there is no reference side, or it is already fixed."""
        if not self.needs_reference:
            raise InputError(f"{self.protocol.metric} has no reference side; drop real=True")
        if self._loaded is not None:
            raise InputError(
                f"{self.protocol.metric} already has its reference from {self._loaded.source};"
                " drop real=True or reference="
            )

    def _merge(self, other: Self) -> None:
        super()._merge(other)
        if self._loaded is None:
            self._reference.merge(other._reference)

    def _check_merge(self, other: Self) -> None:
        """Refuse to mix references: a loaded one with images, or two different ones."""
        mine, theirs = self._loaded, other._loaded
        if mine is None and theirs is None:
            return
        same = (
            mine is not None
            and theirs is not None
            and mine.arrays.keys() == theirs.arrays.keys()
            and all(np.array_equal(mine.arrays[k], theirs.arrays[k]) for k in mine.arrays)
        )
        if not same:
            sources = [entry.source if entry else "images" for entry in (mine, theirs)]
            raise InputError(
                f"cannot merge {self.protocol.metric} with unlike references"
                f" ({' and '.join(sources)}); give all the same reference="
            )

    def _state(self) -> dict[str, Any]:
        # statistics that were loaded come from their file again, and are no part of the state
        own = self._reference.state_dict() if self._loaded is None else None
        return {**super()._state(), "reference": own}

    def _load_state(self, state: Mapping[str, Any]) -> None:
        if (state["reference"] is None) != (self._loaded is not None):
            had = "images" if state["reference"] is not None else "a statistics file"
            raise InputError(
                f"the state of {self.protocol.metric} had {had} as its reference; build the metric"
                f" {'without' if self._loaded else 'with that'} reference="
            )
        super()._load_state(state)
        if state["reference"] is not None:
            self._reference.load_state_dict(state["reference"])

    # -- reference statistics ----------------------------------------------------------------------

    def reference_arrays(self) -> tuple[int, dict[str, np.ndarray]]:
        """What ``stats build`` stores of the reference side: its size, and named arrays."""
        _, features = self._reference.ordered()
        return len(self._reference), {
            f"{self.output}.features": vectors(features[self.role], self.output)
        }

    def load_reference(self, entry: StatisticsEntry) -> None:
        """Use stored statistics as the reference side, also after every :meth:`reset`."""
        self._reset_reference()
        self._use_reference(entry)
        self._loaded = entry

    def _use_reference(self, entry: StatisticsEntry) -> None:
        key = f"{self.output}.features"
        if key not in entry.arrays:
            raise ProtocolMismatchError(
                f"{entry.source} holds {', '.join(entry.arrays)} and {self.protocol.metric} needs"
                f" {key}; build it with `genmetrics stats build -m {self.protocol.metric}`"
            )
        rows = np.asarray(entry.arrays[key])
        samples = [Sample(id=f"ref/{i:09d}") for i in range(len(rows))]
        self._reference.append(samples, {self.role: {self.output: rows}})

    # -- computing ---------------------------------------------------------------------------------

    def _compute(self) -> Result:
        self._require("generated", len(self._rows))
        if self.needs_reference:
            self._require("reference", len(self._reference))
        samples, features = self._rows.ordered()
        fake = vectors(features[self.role], self.output)
        return self._compare(fake, [sample.id for sample in samples])

    def _real(self) -> np.ndarray:
        """The reference features, in natural order of id."""
        _, features = self._reference.ordered()
        return vectors(features[self.role], self.output)

    @abstractmethod
    def _compare(self, fake: np.ndarray, ids: Sequence[str]) -> Result:
        """Make the result from the generated features (and :meth:`_real`)."""

    def _set_result(
        self,
        value: float,
        influence: np.ndarray,
        ids: Sequence[str],
        *,
        n_reference: int = 0,
        standard_error: float | None = None,
        interval: Interval | None = None,
        parts: Mapping[str, float] | None = None,
        warnings: Sequence[str] = (),
    ) -> Result:
        """Build a result whose interval comes from the influence of each sample.

        Args:
            value: The number.
            influence: One value a generated sample; its mean is about 0 and its standard deviation
                over the root of n is the standard error of the value, the reference kept fixed.
            ids: Sample ids in the order of ``influence``.
            n_reference: Size of the reference set.
            standard_error: Replaces the one from ``influence`` where other terms add to it.
            interval: Replaces the normal interval, which is cut to the metric's bounds.
            parts: Further numbers.
            warnings: What a reader should know.
        """
        from genmetrics.stats import normal_interval

        n = len(ids)
        if standard_error is None:
            standard_error = float(np.std(influence, ddof=1) / np.sqrt(n)) if n > 1 else np.nan
        if interval is None and np.isfinite(standard_error):
            lo, hi, level = normal_interval(value, standard_error, LEVEL)
            least, most = self.bounds
            interval = Interval(
                lo if least is None else max(lo, least),
                hi if most is None else min(hi, most),
                level,
            )
        return self._result(
            value,
            n=n,
            n_reference=n_reference,
            interval=interval,
            per_sample=dict(zip(ids, map(float, influence), strict=True)),
            parts={"standard_error": float(standard_error), **(parts or {})},
            warnings=tuple(warnings),
        )


class SampleMetric(RowsMetric):
    """A metric that scores each sample; its value is the mean over samples.

    Subclasses turn features into one score a sample in :meth:`scores`. NaN is a sample that has no
    score; it enters nothing and is counted.
    """

    def update(
        self,
        images: Tensor | Sequence[Tensor],
        *,
        prompts: Sequence[str] | None = None,
        references: Tensor | Sequence[Tensor] | None = None,
        masks: Tensor | Sequence[Tensor] | None = None,
        specs: Sequence[Mapping[str, Any]] | None = None,
        ids: Sequence[str] | None = None,
        value_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        """Extract features of images and keep them.

        Args:
            images: uint8 tensor ``(N, 3, H, W)``, a list of ``(3, H, W)`` of any sizes, or floats
                within ``value_range``.
            prompts: One text an image, for metrics that read prompts.
            references: The counterparts, in the forms of ``images``, for metrics of pairs.
            masks: bool ``(N, H, W)``, True where the image was allowed to change.
            specs: What each image should show, for benchmark rules.
            ids: Unique names over all updates and ranks; numbered when left out.
            value_range: Declared range of float images and references.

        Raises:
            InputError: A needed list is missing, has another length, or holds what it should not.
        """
        given = {"prompt": prompts, "reference": references, "spec": specs}
        plural = {"prompt": "prompts", "reference": "references", "spec": "specs"}
        for field, values in given.items():
            if values is None and field in self.inputs:
                raise InputError(f"{self.protocol.metric} needs {plural[field]}=, one an image")
        require_own_ids(ids or ())
        names = ids if ids is not None else self._rows.next_ids(len(images))
        items = as_items(
            images,
            ids=names,
            value_range=value_range,
            prompts=prompts,
            references=references,
            masks=masks,
            specs=specs,
        )
        self._update(items)

    @abstractmethod
    def scores(self, samples: Sequence[Sample], features: Mapping[str, Features]) -> np.ndarray:
        """Score each sample, shape ``(n,)`` float64; NaN where there is no score."""

    def parts(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> dict[str, float]:
        """Further numbers; none by default."""
        return {}

    def notes(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> list[str]:
        """Warnings about these samples; none by default."""
        return []

    def groups(self, samples: Sequence[Sample]) -> list[str] | None:
        """Group of each sample when the value is the unweighted mean of group means."""
        return None

    def clusters(self, samples: Sequence[Sample]) -> list[str]:
        """What each sample is drawn with: the interval takes samples of one prompt together."""
        return [sample.prompt or sample.id for sample in samples]

    def _compute(self) -> Result:
        from genmetrics.stats import mean_interval

        self._require("generated", len(self._rows))
        samples, features = self._rows.ordered()
        scores = np.asarray(self.scores(samples, features), dtype=np.float64)
        if scores.shape != (len(samples),):
            raise FeatureError(f"{self.protocol.metric} gave scores of shape {scores.shape}")
        if not in_bounds(scores, self.bounds):
            raise FeatureError(
                f"{self.protocol.metric} gave a score outside its bounds {self.bounds}:"
                f" {np.nanmin(scores)} to {np.nanmax(scores)}; check weights"
            )
        ids = [sample.id for sample in samples]
        finite = np.isfinite(scores)
        parts = self.parts(samples, features, scores)
        if np.isinf(scores).any():
            # a mean over infinite decibels says nothing; they are counted apart
            parts["n_infinite"] = float(np.isinf(scores).sum())
        common: dict[str, Any] = {
            "n": int((~np.isnan(scores)).sum()),
            "per_sample": dict(zip(ids, map(float, scores), strict=True)),
            "parts": parts,
            "warnings": tuple(self.notes(samples, features, scores)),
        }
        if not finite.any():
            return self._without_mean(scores, common)
        groups, clusters = self.groups(samples), self.clusters(samples)
        kept = [i for i in range(len(samples)) if finite[i]]
        value = group_mean(scores[finite], None if groups is None else [groups[i] for i in kept])
        interval = mean_interval(
            scores[finite],
            clusters=[clusters[i] for i in kept],
            groups=None if groups is None else [groups[i] for i in kept],
            level=LEVEL,
        )
        if not np.isfinite(interval[0]):
            return self._result(value, **common)  # one cluster tells nothing about the next
        return self._result(value, interval=Interval(*interval), **common)

    def _without_mean(self, scores: np.ndarray, common: dict[str, Any]) -> Result:
        """Result when no score is finite: all infinite (identical pairs), or none there."""
        if np.isinf(scores).any():
            value = float(scores[np.isinf(scores)][0])
            return self._result(value, reason=f"every score is {value}", **common)
        return self._result(None, status="unavailable", reason="no sample has a score", **common)


def group_mean(scores: np.ndarray, groups: Sequence[str] | None) -> float:
    """Mean of the scores, or the unweighted mean of the group means."""
    if groups is None:
        return float(np.mean(scores))
    labels = np.asarray(groups)
    return float(np.mean([scores[labels == label].mean() for label in sorted(set(groups))]))
