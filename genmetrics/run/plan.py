"""The plan: everything a run needs, validated before a model loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from genmetrics.core.errors import TooFewSamplesError, UsageError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.fields import FIELDS, REFERENCE_SET
from genmetrics.core.metric import Metric
from genmetrics.extractors.needs import check_all
from genmetrics.metrics.base import SetMetric
from genmetrics.run.agreement import same_arguments, same_files, same_models
from genmetrics.run.build import Asked, build_metrics
from genmetrics.run.inputs import Inputs, SampleSet, read_inputs
from genmetrics.run.look import compare_sizes, look_at_all
from genmetrics.run.ranks import Ranks
from genmetrics.run.work import REFERENCE, Failure, Job, Side, Who
from genmetrics.samples.attach import carries
from genmetrics.samples.statistics import Statistics


@dataclass(frozen=True)
class Plan:
    """Validated inputs and metrics of a run.

    Attributes:
        metrics: Key to metric.
        sets: Every set by name, the reference among them; samples that cannot be used are in none.
        statistics: What stands for a reference set.
        failures: Samples that cannot be used, by all or by one extractor.
        missing: Names without a partner, of each set; allowed by ``allow_missing``.
        asked: Ids with the options they were asked for, to their keys in ``metrics``.
        joined: Field of samples to what it was joined from.
        notes: What a reader of the run should know of its inputs.
        set_notes: What a reader should know of each set's files.
    """

    metrics: Mapping[str, Metric]
    sets: Mapping[Side, SampleSet]
    statistics: Statistics | None = None
    failures: tuple[Failure, ...] = ()
    missing: Mapping[Side, tuple[str, ...]] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)
    joined: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    set_notes: Mapping[Side, tuple[str, ...]] = field(default_factory=dict)

    def notes_of(self, side: Side) -> tuple[str, ...]:
        """Return the notes that concern a generated set."""
        own = [*self.set_notes.get(side, ()), *self.set_notes.get(REFERENCE, ())]
        return tuple(dict.fromkeys([*own, *self.notes]))

    @property
    def generated(self) -> tuple[Side, ...]:
        """Names of the generated sets."""
        return tuple(name for name in self.sets if name != REFERENCE)

    def reads_reference(self, metric: Metric) -> bool:
        """Whether the metric extracts features of a reference set in this run."""
        return REFERENCE_SET in metric.inputs and self.statistics is None and REFERENCE in self.sets

    def jobs(self) -> list[Job]:
        """One job an extractor, however many metrics ask for it and sets are judged."""
        sides: dict[str, dict[Side, None]] = {}
        specs: dict[str, ExtractorSpec] = {}
        for metric in self.metrics.values():
            wanted = [REFERENCE] if self.reads_reference(metric) else []
            for spec in metric.extractors.values():
                specs.setdefault(spec.fingerprint, spec)
                sides.setdefault(spec.fingerprint, {}).update(
                    dict.fromkeys([*wanted, *self.generated])
                )
        return [Job(spec, self._members(sides[key])) for key, spec in specs.items()]

    def _members(self, sides: Iterable[Side]) -> tuple[Who, ...]:
        """Samples of some sets, the reference first, each set in its order."""
        ordered = sorted(sides, key=lambda side: (side != REFERENCE, list(self.sets).index(side)))
        return tuple(Who(side, s) for side in ordered for s in self.sets[side].samples)

    def without(self, failures: Sequence[Failure]) -> Plan:
        """Return the plan without what turned out to be unusable.

        A sample that no extractor can use leaves its set; one that some extractor has nothing for
        stays, and is left out where that one's features are read.
        """
        gone = {failure.who.place for failure in failures if failure.extractor is None}
        sets = {
            side: replace(
                found, samples=tuple(s for s in found.samples if (side, s.id) not in gone)
            )
            for side, found in self.sets.items()
        }
        return replace(self, sets=sets, failures=(*self.failures, *failures))


def make_plan(inputs: Inputs, asked: Asked, *, device: str, workers: int, ranks: Ranks) -> Plan:
    """Read every input, build every metric, and refuse what cannot work, before a model loads.

    The main rank lists the samples; each rank opens and hashes its part of them. Every rank gets
    the same plan.

    Raises:
        GenmetricsError: One line that says what, where, the value found, and the fix.
    """
    # weights may lie elsewhere on each machine; that they are the same ones is seen below
    same_arguments(ranks, **_told(inputs), **_told(asked, "metrics", "weights"))
    built = build_metrics(asked, ranks.device(device))
    metrics = built.metrics
    _require_reference(metrics, inputs)
    reads = frozenset(name for metric in metrics.values() for name in metric.uses)
    listed = ranks.share(lambda: read_inputs(inputs, reads))
    if listed.statistics is not None:
        for metric in metrics.values():
            if isinstance(metric, SetMetric) and metric.needs_reference:
                metric.load_reference(listed.statistics.entry(metric.spec))
    check_all(spec for metric in metrics.values() for spec in metric.extractors.values())
    same_models(metrics, ranks)
    for found in listed.sets.values():
        same_files(found.samples, ranks)
    plan = Plan(
        metrics,
        listed.sets,
        listed.statistics,
        missing=listed.missing,
        asked=built.asked,
        joined={name: str(path) for name, path in inputs.joined.items()},
        notes=tuple(_unread(metrics, inputs, listed.sets)),
        set_notes=listed.notes,
    )
    sets, failures = look_at_all(plan.sets, inputs.on_error, workers, ranks)
    plan = replace(plan, sets=sets).without(failures)
    equal = {f for m in metrics.values() for s in m.extractors.values() for f in s.same_size}
    if equal and inputs.on_error == "fail":
        # with "skip", a pair of two sizes is left out when it is prepared
        for side in plan.generated:
            compare_sizes(plan.sets[side], sorted(equal), workers, ranks)
    _require_fields(plan)
    _require_counts(plan)
    return plan


def _told(options: object, *but: str) -> dict[str, object]:
    return {name: value for name, value in vars(options).items() if name not in but}


def _require_reference(metrics: Mapping[str, Metric], inputs: Inputs) -> None:
    for name, metric in metrics.items():
        if REFERENCE_SET in metric.inputs and inputs.reference is None:
            raise UsageError(f"{name} needs a reference set: pass --ref DIR or a statistics file")


def _unread(
    metrics: Mapping[str, Metric], inputs: Inputs, sets: Mapping[Side, SampleSet]
) -> list[str]:
    """Say which inputs no metric of the run reads.

    Raises:
        UsageError: Masks, which would have changed what is judged.
    """
    used = {name for metric in metrics.values() for name in metric.uses}
    unread = [name for name in inputs.joined if name not in used]
    if "mask" in unread:
        raise UsageError(
            f"masks {inputs.joined['mask']}: no metric of this run reads masks; drop --masks"
        )
    notes = [
        f"no metric of this run reads {FIELDS[name].several}: {inputs.joined[name]} was not used"
        + ("; prompts only keep images of one prompt together in intervals" * (name == "prompt"))
        for name in unread
    ]
    for side in (side for side in sets if side != REFERENCE):
        found = sets[side]
        carried = {name for sample in found.samples for name in sample.fields}
        idle = [n for n in FIELDS if n in carried - used - inputs.joined.keys() - _QUIET]
        if idle:
            names = ", ".join(FIELDS[name].several for name in idle)
            notes.append(f"{found.path}: no metric of this run reads its {names}")
    if inputs.reference is not None and not any(
        REFERENCE_SET in m.inputs for m in metrics.values()
    ):
        from genmetrics.samples.memory import described

        notes.append(
            f"no metric of this run compares with a reference set: {described(inputs.reference)}"
        )
    return notes


_QUIET = {"image", "video", "prompt"}
"""Fields that are judged, shown, or keep samples together whatever the metrics read."""


def _require_fields(plan: Plan) -> None:
    """Refuse samples without what a metric reads, naming the first: the one place that asks."""
    for name, metric in plan.metrics.items():
        fields = [FIELDS[used] for used in metric.uses if not FIELDS[used].optional]
        for side in plan.generated:
            samples = plan.sets[side].samples
            for needed in fields:
                lacking = [s.id for s in samples if not carries(s, needed.name)]
                if lacking:
                    article = "an" if needed.called[0] in "aeiou" else "a"
                    raise UsageError(
                        f"{name} needs {article} {needed.called} for each image; {len(lacking)} of"
                        f" {len(samples)} have none, first {lacking[0]!r}: pass {needed.option}"
                    )


def _require_counts(plan: Plan) -> None:
    """Refuse too small sets."""
    for name, metric in plan.metrics.items():
        sides = [*plan.generated, *([REFERENCE] if plan.reads_reference(metric) else [])]
        for side in sides:
            count = len(plan.sets[side].samples)
            if count < metric.minimum:
                raise TooFewSamplesError(
                    f"{name} has {count} {side} images, needs at least {metric.minimum}"
                )
