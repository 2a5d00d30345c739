"""A run that can be read back: all that reports, comparisons and leaderboards look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from genmetrics import __version__
from genmetrics.core.errors import InputError, UsageError
from genmetrics.core.result import RESERVED, VALUE, Interval, PerSample, Result, resolve
from genmetrics.core.sample import Sample
from genmetrics.report.columns import SCHEMA, Labels, Samples, Skipped
from genmetrics.report.reading import read_parts
from genmetrics.run.work import GENERATED, Failure


@dataclass(frozen=True, kw_only=True, repr=False)
class RunRecord:
    """What a run found of one set: ``record["fid@clean"]``, or ``record["fid"]``, is a Result.

    Attributes:
        metrics: Results by key, complete: every mean can be made again from them.
        samples: The samples of the set, those that failed included.
        name: Name of the set in a run over several; None in a plain run.
        inputs: Path, number and content digest of each set, and of what belongs to the samples.
        asked: Ids with the options they were asked for, to keys of ``metrics``.
        skipped: Samples that could not be used, by all metrics or by those of one model.
        missing: Names without a partner that were let pass.
        conversions: What was done to how many pictures on the way to RGB of 8 bits.
        notes: What a reader should know of the run as a whole, one line each.
        runtime: Device, precision, seconds and the like.
        created: When, as ISO 8601.
        genmetrics: Version that made it.
        command: How it was made: ``argv`` (list of the command line) or ``call`` (text of the call
            in Python), and ``overrides`` (what was replaced, such as weights, to what by).
        schema: Schema it was read from, or will be written in.
    """

    metrics: Mapping[str, Result]
    samples: Samples
    name: str | None = None
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    missing: tuple[str, ...] = ()
    conversions: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    runtime: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    genmetrics: str = __version__
    command: Mapping[str, Any] = field(default_factory=dict)
    schema: str = SCHEMA

    def __getitem__(self, name: str) -> Result:
        return self.metrics[resolve(name, self.metrics, self.asked)]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={result.value}" for name, result in self.metrics.items())
        return f"RunRecord({values})"

    @property
    def ok(self) -> bool:
        """Whether every metric has a value and nothing was skipped or missing."""
        complete = not self.skipped and not self.missing
        return complete and all(r.status == "ok" for r in self.metrics.values())

    @classmethod
    def of(cls, report: Any, *, command: Mapping[str, Any] | None = None) -> RunRecord:
        """Record a run just made.

        Args:
            report: A :class:`genmetrics.Report`, or anything with its attributes.
            command: How it was made; see :attr:`command`.

        Raises:
            UsageError: A metric has a name that is reserved.
            InputError: Details, protocols or the like hold what JSON has no value for.
        """
        samples = _samples(report)
        metrics = {key: _settled(key, result, samples) for key, result in report.results.items()}
        skipped = tuple(_skipped(failure) for failure in report.failures)
        whole = {s.id: s.reason for s in skipped if s.side == report.name and not s.model}
        for id_, reason in _reasons(metrics, whole, samples):
            samples.reasons[id_] = reason
        return cls(
            metrics=metrics,
            samples=samples,
            name=None if report.name == GENERATED else report.name,
            inputs=plain(report.inputs),
            asked=plain(report.asked),
            skipped=skipped,
            missing=tuple(report.missing),
            conversions=plain(report.conversions),
            notes=tuple(report.notes),
            runtime=plain(report.runtime),
            created=report.created,
            command=plain(command or {}),
        )

    @classmethod
    def load(cls, directory: str | Path) -> RunRecord:
        """Read a run back from results.json and samples.jsonl alone.

        Raises:
            InputError: They are missing, damaged, newer than this version, of different runs, or
                contradict themselves.
        """
        return cls(**read_parts(Path(directory).expanduser()))


def plain(value: Any) -> Any:
    """Copy as what JSON gives back: dicts, lists, texts, numbers, true, false and None.

    Raises:
        InputError: Something else.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, int | float):  # of a class of their own
        return float(value) if isinstance(value, float) else int(value)
    kind = type(value).__name__
    raise InputError(f"a record cannot hold {value!r:.60} ({kind}); give plain JSON values")


def _samples(report: Any) -> Samples:
    """Columns of the report's samples, and of any that only its results know."""
    given: Sequence[Sample] = report.samples
    known = Samples(
        [sample.id for sample in given],
        [sample.path for sample in given],
        [sample.prompt for sample in given],
        media=[sample.image or sample.video for sample in given],
    )
    more = dict.fromkeys(
        id_
        for result in report.results.values()
        for column in _columns(result)
        if not _same_ids(column, known)
        for id_ in column
        if not _is_in(id_, known)
    )
    if not more:
        return known
    nothing = [None] * len(more)
    return Samples(
        [*known.ids, *more],
        [*known.paths, *nothing],
        [*known.prompts, *nothing],
        media=[*known.media, *nothing],
    )


def _columns(result: Result) -> list[Mapping[str, Any]]:
    """Everything in a result that is by sample."""
    some = (result.per_sample, *result.sample_parts.values(), result.groups, result.clusters)
    return [column for column in (*some, result.details) if column is not None]


def _same_ids(column: Mapping[str, Any], samples: Samples) -> bool:
    if not isinstance(column, PerSample):
        return False
    return column.ids is samples.ids or list(column.ids) == samples.ids


def _is_in(id_: str, samples: Samples) -> bool:
    try:
        samples.place(id_)
    except KeyError:
        return False
    return True


def _settled(key: str, result: Result, samples: Samples) -> Result:
    """The result as it will be read back: columns in the order of the samples, plain values."""
    if key in RESERVED:
        raise UsageError(f"a metric cannot be called {key!r}, which samples.jsonl uses; rename it")
    if VALUE in result.sample_parts:
        raise UsageError(f"{key}: a number of a sample cannot be called {VALUE!r}; rename it")
    scores = result.per_sample
    return replace(
        result,
        value=None if result.value is None else float(result.value),
        interval=_floats(result.interval),
        n=int(result.n),
        n_reference=int(result.n_reference),
        higher_is_better=bool(result.higher_is_better),
        per_sample=None if scores is None else _column(scores, samples),
        sample_parts={n: _column(part, samples) for n, part in result.sample_parts.items()},
        details={id_: plain(said) for id_, said in result.details.items() if said},
        groups=_labels(result.groups, samples),
        clusters=_labels(result.clusters, samples),
        parts={name: float(value) for name, value in result.parts.items()},
        intervals={name: i for name, each in result.intervals.items() if (i := _floats(each))},
        protocol=plain(result.protocol),
        # a value that JSON cannot hold gets the reason that is going to be in the file
        reason=result.to_dict()["reason"],
        warnings=tuple(result.warnings),
    )


def _floats(interval: Interval | None) -> Interval | None:
    return None if interval is None else Interval(*map(float, interval))


def _column(values: Mapping[str, float], samples: Samples) -> PerSample:
    if isinstance(values, PerSample):
        if _same_ids(values, samples):
            return PerSample(samples.ids, values.numbers)
        pairs: Any = zip(values.ids, values.numbers.tolist(), strict=True)
    else:
        pairs = values.items()
    numbers = np.full(len(samples), np.nan)
    for id_, value in pairs:
        numbers[samples.place(id_)] = value
    return PerSample(samples.ids, numbers)


def _labels(labels: Mapping[str, str] | None, samples: Samples) -> Labels | None:
    """A column of labels; None where no sample has one."""
    if not labels:
        return None
    return Labels(samples.ids, [labels.get(id_) for id_ in samples.ids])


def _skipped(failure: Failure) -> Skipped:
    sample = failure.who.sample
    return Skipped(sample.id, failure.who.side, sample.path, failure.reason, failure.model)


def _reasons(
    metrics: Mapping[str, Result], whole: Mapping[str, str], samples: Samples
) -> Iterator[tuple[str, str]]:
    """Say of each sample that lacks a value why; ``whole`` are those that no metric counts."""
    found: dict[str, list[str]] = {}
    for key, result in metrics.items():
        if not isinstance(result.per_sample, PerSample):
            continue
        numbers = result.per_sample.numbers
        for place in np.flatnonzero(~np.isfinite(numbers)).tolist():
            id_ = samples.ids[place]
            if np.isinf(numbers[place]):
                text = f"{key} is {numbers[place]}"
            else:
                why = result.details.get(id_, {}).get("reason")
                text = f"{key} has no value" if why is None else f"{key}: {why}"
            found.setdefault(id_, []).append(text)
    for id_ in {**whole, **found}:
        if _is_in(id_, samples):
            yield id_, whole[id_] if id_ in whole else "; ".join(found[id_])
