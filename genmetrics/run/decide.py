"""Decisions: from features in the store to results, in one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from genmetrics.core.errors import UsageError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.fields import FIELDS
from genmetrics.core.metric import Metric
from genmetrics.core.result import Result, resolve, with_missing
from genmetrics.core.rows import Features
from genmetrics.core.sample import Sample
from genmetrics.core.state import natural_key
from genmetrics.extractors.needs import replacement
from genmetrics.metrics._tools import conversion_note
from genmetrics.metrics.base import SetMetric
from genmetrics.run.inputs import SampleSet
from genmetrics.run.keep import CONVERSIONS
from genmetrics.run.plan import Plan
from genmetrics.run.store import FeatureStore
from genmetrics.run.work import GENERATED, REFERENCE, Failure, Side


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Mapping[str, Result]):
    """What a run found of one set: ``report["fid@clean"]``, or ``report["fid"]``, is a Result."""

    name: Side = GENERATED
    """Name of the set."""

    results: Mapping[str, Result]
    inputs: Mapping[str, Mapping[str, Any]]
    samples: tuple[Sample, ...]
    """Generated samples in natural order of id, those that failed included."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Ids with the options they were asked for, to their keys in ``results``."""

    failures: tuple[Failure, ...] = ()
    missing: tuple[str, ...] = ()
    conversions: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader of the run should know of its inputs."""
    runtime: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""

    def __getitem__(self, name: str) -> Result:
        return self.results[resolve(name, self.results, self.asked)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={result.value}" for name, result in self.results.items())
        return f"Report({values})"

    @property
    def ok(self) -> bool:
        """Whether every metric has a value and nothing was skipped or missing."""
        complete = not self.failures and not self.missing
        return complete and all(r.status == "ok" for r in self.results.values())


class Decider:
    """Computes every metric of every set from the features in the store."""

    def __init__(self, plan: Plan, store: FeatureStore) -> None:
        self.plan = plan
        self.store = store
        self._conversions: dict[Side, Counter[str]] = {}
        self._jobs = plan.jobs()
        self._lacking: dict[Side, dict[str, dict[str, Failure]]] = {}
        for failure in plan.failures:
            if failure.extractor is not None:
                of_side = self._lacking.setdefault(failure.who.side, {})
                of_side.setdefault(failure.extractor, {})[failure.who.sample.id] = failure

    def results(self) -> dict[Side, dict[str, Result]]:
        """Compute everything: generated set to key to result."""
        found: dict[Side, dict[str, Result]] = {side: {} for side in self.plan.generated}
        for key, metric in self.plan.metrics.items():
            metric.reset()  # a plan may be run twice
            failed = self._give_reference(metric)
            for side in found:
                metric.reset(keep_reference=True)
                found[side][key] = self._decide(key, metric, side, failed)
            metric.reset()  # rows of one metric at a time are enough to hold
        return found

    def _give_reference(self, metric: Metric) -> Exception | None:
        """Give a metric its reference side; returns what went wrong."""
        if not self.plan.reads_reference(metric):
            return None
        try:
            self._give(metric, REFERENCE)
        except Exception as error:  # see _decide
            return error
        return None

    def _decide(self, key: str, metric: Metric, side: Side, failed: Exception | None) -> Result:
        """Give a metric the features of a set in natural order of id, and compute."""
        plan = self.plan
        try:
            if failed is not None:
                raise failed
            self._give(metric, side)
            result = metric.compute()
        except Exception as error:
            # Whatever a metric or a library under it raises must not take the other metrics'
            # results along, after hours of extraction; it is told in the result and by the exit
            # code.
            reference = plan.sets[REFERENCE].samples if plan.reads_reference(metric) else ()
            n = len(self._usable(metric, side)[0])
            result = metric.failed(error, n=n, n_reference=len(reference))
        notes = self._notes(key, metric, side)
        result = replace(result, warnings=(*result.warnings, *notes))
        return self._with_failed(metric, side, result)

    def _give(self, metric: Metric, side: Side) -> None:
        samples, _ = self._usable(metric, side)
        if not samples:
            raise UsageError(f"no {side} image is left; see what was skipped")
        features = {role: self._read(spec, samples) for role, spec in metric.extractors.items()}
        metric.update_features(samples, features, real=side == REFERENCE)

    def _read(self, spec: ExtractorSpec, samples: Sequence[Sample]) -> Features:
        reads = spec.reads
        keys = [sample.digest(reads) for sample in samples]
        return self.store.open(spec, keys, list(spec.outputs))

    def _usable(self, metric: Metric, side: Side) -> tuple[Sequence[Sample], dict[str, Failure]]:
        """Samples that every extractor of the metric has something for, and why others lack it."""
        lacking: dict[str, Failure] = {}
        for spec in metric.extractors.values():
            lacking |= self._lacking.get(side, {}).get(spec.fingerprint, {})
        samples = self.plan.sets[side].samples
        return [s for s in samples if s.id not in lacking] if lacking else samples, lacking

    def _with_failed(self, metric: Metric, side: Side, result: Result) -> Result:
        """Add the samples without a value to the columns of a result, with the reason."""
        _, lacking = self._usable(metric, side)
        unusable = {
            f.who.sample.id: f
            for f in self.plan.failures
            if f.who.side == side and f.extractor is None
        }
        reasons: dict[str, str | None] = dict.fromkeys(unusable)
        return with_missing(result, {**reasons, **{i: f.reason for i, f in lacking.items()}})

    def _notes(self, key: str, metric: Metric, side: Side) -> list[str]:
        """What a reader of a value should know of how it was asked for, and of its samples."""
        plan = self.plan
        notes = self._notes_of_sets(metric, side)
        replaced = map(replacement, metric.extractors.values())
        notes += dict.fromkeys(text for text in replaced if text is not None)
        asked = [name for name, known in plan.asked.items() if known == key]
        if asked and ":" in asked[0]:
            notes.append(f"options: {asked[0].partition(':')[2]}")
        missing = plan.missing.get(side, ())
        if missing:
            notes.append(f"not comparable: {len(missing)} names had no partner, left out")
        sides = (side, REFERENCE) if plan.reads_reference(metric) else (side,)
        converted = sum((self._converted(where) for where in sides), Counter[str]())
        unlike = conversion_note(metric.protocol.metric, converted)
        notes += [] if unlike is None else [unlike]
        for where in sides:
            samples, lacking = self._usable(metric, where)
            if lacking:
                first = next(iter(lacking.values()))
                notes.append(
                    f"{len(lacking)} of {len(samples) + len(lacking)} {where} samples have no value"
                    f" (first: {first.who.sample.id!r}, {first.reason})"
                )
        return notes

    def _notes_of_sets(self, metric: Metric, side: Side) -> list[str]:
        """Say of sets that are compared how many copies they hold, and images in common."""
        if not isinstance(metric, SetMetric):
            return []
        generated = _contents(self.plan.sets[side])
        notes = []
        copies = len(generated) - len(set(generated))
        if copies:
            notes.append(f"{copies} of {len(generated)} {side} images are copies of others")
        if self.plan.reads_reference(metric):
            common = set(generated) & set(_contents(self.plan.sets[REFERENCE]))
            if common:
                notes.append(f"{len(common)} images are in both the {side} and the reference set")
        return notes

    def conversions(self, side: Side) -> dict[str, int]:
        """Count conversions over the decoded samples of a set and its reference, each once."""
        return dict(sorted((self._converted(side) + self._converted(REFERENCE)).items()))

    def _converted(self, side: Side) -> Counter[str]:
        if side not in self._conversions:
            self._conversions[side] = self._count_conversions(side)
        return self._conversions[side]

    def _count_conversions(self, side: Side) -> Counter[str]:
        names: dict[str, set[str]] = {}
        for job in self._jobs:
            lacking = self._lacking.get(side, {}).get(job.spec.fingerprint, {})
            samples = [
                who.sample
                for who in job.members
                if who.side == side and who.sample.id not in lacking
            ]
            if samples:
                keys = [sample.digest(job.spec.reads) for sample in samples]
                rows = self.store.read(job.spec, keys, outputs=[CONVERSIONS])[CONVERSIONS]
                for sample, row in zip(samples, rows, strict=True):
                    if row:
                        names.setdefault(sample.id, set()).update(row)
        return Counter(name for row in names.values() for name in row)


def _contents(found: SampleSet) -> list[str]:
    return [s.digest(("image",)) for s in found.samples if s.image is not None]


def all_samples(plan: Plan, side: Side) -> tuple[Sample, ...]:
    """Samples of a set in natural order of id, those that cannot be used included."""
    lost = [f.who.sample for f in plan.failures if f.who.side == side and f.extractor is None]
    if not lost:
        return tuple(plan.sets[side].samples)
    return tuple(sorted([*plan.sets[side].samples, *lost], key=lambda s: natural_key(s.id)))


def describe_inputs(plan: Plan, side: Side) -> dict[str, dict[str, Any]]:
    """Path, size and digest of everything that a set was judged by."""
    found = plan.sets[side]
    described = {"generated": _described(found)}
    if REFERENCE in plan.sets:
        described[REFERENCE] = _described(plan.sets[REFERENCE])
    for row in FIELDS.values():
        having = tuple(s for s in found.samples if getattr(s, row.name) is not None)
        if row.name not in _JUDGED and having:
            which = "image" if having[0].image is not None else "video"
            described[_BESIDE.get(row.name, row.plural)] = {
                "path": plan.joined.get(row.name, found.path),
                "n": len(having),
                # with the image, because it matters which belongs to which
                "digest": SampleSet(found.path, having).digest(which, row.name),
            }
    for metric in plan.metrics.values():
        described |= metric.recorded_inputs()
    if plan.statistics is not None:
        described[REFERENCE] = {
            "path": plan.statistics.source,
            "n": max((entry.n for entry in plan.statistics.entries), default=0),
            "digest": plan.statistics.digest,
            "verified": all(entry.verified for entry in plan.statistics.entries),
        }
    return dict(sorted(described.items()))


_JUDGED = ("image", "video")
_BESIDE = {"reference": "counterparts"}


def _described(found: SampleSet) -> dict[str, Any]:
    which = "image" if not found.samples or found.samples[0].image is not None else "video"
    return {"path": found.path, "n": len(found.samples), "digest": found.digest(which)}
