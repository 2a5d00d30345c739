"""The two shapes every metric has: sets compared with sets, and samples scored one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from genmetrics.core.errors import (
    FeatureError,
    InputError,
    ProtocolMismatchError,
    TooFewSamplesError,
)
from genmetrics.core.extractor import ExtractorSpec, Features, in_bounds
from genmetrics.core.fields import REFERENCE_SET
from genmetrics.core.metric import Metric, MetricProtocol
from genmetrics.core.outputs import plain_json
from genmetrics.core.result import Interval, PerSample, Result
from genmetrics.core.rows import in_memory, matrix, vectors
from genmetrics.core.sample import Sample
from genmetrics.core.state import FeatureRows
from genmetrics.metrics._means import Table

if TYPE_CHECKING:
    from pathlib import Path

    from genmetrics.samples.statistics import StatisticsEntry

LEVEL = 0.95
"""Confidence level of every interval."""


class RowsMetric(Metric):
    """A metric whose state is the generated samples' feature rows."""

    def reset(self, *, keep_reference: bool = False) -> None:
        """Forget every sample."""
        self._rows = FeatureRows()

    def next_ids(self, real: bool, count: int) -> list[str]:
        """See :meth:`Metric.next_ids`."""
        return self._side(real).next_ids(count)

    def _side(self, real: bool) -> FeatureRows:
        return self._rows

    def miss(self, reasons: Mapping[str, str], *, real: bool = False) -> None:
        """See :meth:`Metric.miss`."""
        self._side(real).miss(reasons)

    def missed(self) -> Mapping[str, str]:
        """See :meth:`Metric.missed`."""
        return self._rows.missed

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
        self._rows.append(samples, {role: in_memory(rows) for role, rows in features.items()})

    def _merge(self, other: Self) -> None:
        self._rows.merge(other._rows)

    def _state(self) -> dict[str, Any]:
        return {"rows": self._rows.state_dict()}

    def _load_state(self, state: Mapping[str, Any]) -> None:
        self._rows.load_state_dict(state["rows"])

    def mark(self, *, reference: bool) -> Callable[[], None]:
        """See :meth:`Metric.mark`; a subclass with a state beside the rows marks it as well."""
        return self._rows.mark()

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

    streams: ClassVar[bool] = False
    """Whether :meth:`_compare` works block by block on features that are not in memory."""

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
            from genmetrics.extractors.published import find_reference
            from genmetrics.samples.statistics import read_statistics

            found = find_reference(reference) or read_statistics(reference)
            self.load_reference(found.entry(self.spec))

    @property
    def spec(self) -> ExtractorSpec:
        """The one extractor of the metric."""
        return self.extractors[self.role]

    @property
    def needs_reference(self) -> bool:
        """Whether the metric compares with a reference set."""
        return REFERENCE_SET in self.inputs

    def reset(self, *, keep_reference: bool = False) -> None:
        """Forget every sample of both sides; statistics that were loaded stay."""
        super().reset()
        if keep_reference:
            return
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
        rows = {self.output: matrix(features[self.role], self.output)}
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

    def mark(self, *, reference: bool) -> Callable[[], None]:
        """See :meth:`Metric.mark`."""
        undo = super().mark(reference=reference)
        if not reference:
            return undo
        undo_reference = self._reference.mark()

        def back() -> None:
            undo()
            undo_reference()

        return back

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
        fake = matrix(features[self.role], self.output)
        ids = [sample.id for sample in samples]
        return self._compare(fake if self.streams else np.asarray(fake), ids)

    def _real(self) -> np.ndarray:
        """The reference features, in natural order of id."""
        _, features = self._reference.ordered()
        return vectors(features[self.role], self.output)

    @abstractmethod
    def _compare(self, fake: Any, ids: Sequence[str]) -> Result:
        """Make the result from the generated features (and :meth:`_real`).

        Args:
            fake: Array ``(n, d)`` in natural order of id; where the metric :attr:`streams`, it may
                be a :class:`~genmetrics.core.rows.StoredRows`.
            ids: The samples' ids.
        """

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
            per_sample=PerSample(ids, influence),
            parts={"standard_error": float(standard_error), **(parts or {})},
            warnings=tuple(warnings),
        )


class SampleMetric(RowsMetric):
    """A metric that scores each sample; its value is the mean over samples.

    Subclasses turn features into one score a sample in :meth:`scores`. NaN is a sample that has no
    score; it enters nothing and is counted.
    """

    @abstractmethod
    def scores(self, samples: Sequence[Sample], features: Mapping[str, Features]) -> np.ndarray:
        """Score each sample, shape ``(n,)`` float64; NaN where there is no score."""

    def parts(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> dict[str, float]:
        """Further numbers; none by default."""
        return {}

    def sample_parts(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Further numbers a sample, ``(n,)`` each; NaN where a sample has none.

        The mean of each is one of the ``parts``, with an interval like that of the value.
        """
        return {}

    def details(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> Sequence[Mapping[str, Any]]:
        """Plain JSON values by name for each sample, such as verdicts; none by default."""
        return ()

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
        self._require("generated", len(self._rows))
        samples, features = self._rows.ordered()
        scores = self._checked(np.asarray(self.scores(samples, features), dtype=np.float64))
        table = Table(
            [sample.id for sample in samples], self.groups(samples), self.clusters(samples)
        )
        columns = self.sample_parts(samples, features, scores)
        means = {name: table.mean(column, level=LEVEL) for name, column in columns.items()}
        parts = {name: value for name, (value, _) in means.items()}
        parts |= self.parts(samples, features, scores)
        if np.isinf(scores).any():
            # a mean over infinite decibels says nothing; they are counted apart
            parts["n_infinite"] = float(np.isinf(scores).sum())
        details = self._details(table.ids, self.details(samples, features, scores), scores)
        common: dict[str, Any] = {
            "n": int((~np.isnan(scores)).sum()),
            "per_sample": PerSample(table.ids, scores),
            "sample_parts": {name: PerSample(table.ids, col) for name, col in columns.items()},
            "details": details,
            "groups": table.labels(table.groups),
            "clusters": table.labels(table.clusters),
            "parts": parts,
            "intervals": {name: interval for name, (_, interval) in means.items() if interval},
            "warnings": tuple(self.notes(samples, features, scores)),
        }
        if not np.isfinite(scores).any():
            return self._without_mean(scores, common)
        value, interval = table.mean(scores, level=LEVEL, grouped=True)
        return self._result(value, interval=interval, **common)

    def _details(
        self, ids: Sequence[str], told: Sequence[Mapping[str, Any]], scores: np.ndarray
    ) -> dict[str, dict[str, Any]]:
        """Check the details of all samples or none; of a sample without a score, say so."""
        if len(told) not in (0, len(ids)):
            raise FeatureError(
                f"{self.protocol.metric} gave details of {len(told)} samples for {len(ids)}"
            )
        found: dict[str, dict[str, Any]] = {}
        for id_, values in zip(ids, told, strict=False):
            try:
                plain = plain_json(values)
            except ValueError as error:
                raise FeatureError(
                    f"{self.protocol.metric} gave {error} in the details of {id_!r}, no JSON value"
                ) from error
            if plain:
                found[id_] = plain
        for i in np.flatnonzero(np.isnan(scores)).tolist():
            found.setdefault(ids[i], {}).setdefault("reason", "it has no score")
        return found

    def _checked(self, scores: np.ndarray) -> np.ndarray:
        if scores.shape != (len(self._rows),):
            raise FeatureError(f"{self.protocol.metric} gave scores of shape {scores.shape}")
        if not in_bounds(scores, self.bounds):
            raise FeatureError(
                f"{self.protocol.metric} gave a score outside its bounds {self.bounds}:"
                f" {np.nanmin(scores)} to {np.nanmax(scores)}; check weights"
            )
        return scores

    def _without_mean(self, scores: np.ndarray, common: dict[str, Any]) -> Result:
        """Result when no score is finite: all infinite (identical pairs), or none there."""
        if np.isinf(scores).any():
            value = float(scores[np.isinf(scores)][0])
            return self._result(value, reason=f"every score is {value}", **common)
        return self._result(None, status="unavailable", reason="no sample has a score", **common)
