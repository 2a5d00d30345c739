"""A run that can be read back: all that reports, comparisons and leaderboards look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genmetrics import __version__
from genmetrics.core.errors import InputError, UsageError
from genmetrics.core.result import RESERVED, VALUE, Interval, PerSample, Result, resolve
from genmetrics.core.sample import Media, Sample

SCHEMA = "genmetrics.results/2"
"""What is written. ``genmetrics.results/1`` is read too."""


class Row(NamedTuple):
    """One sample of a run."""

    id: str
    path: str | None = None
    """Where its picture or clip lies: a file, or ``archive!member``."""
    prompt: str | None = None
    reason: str | None = None
    """Why a metric has no value for it."""


class Skipped(NamedTuple):
    """A sample that could not be used."""

    id: str
    side: str
    path: str | None
    reason: str
    model: str | None = None
    """The model that has nothing for it; its other metrics count it. None: no metric does."""

    @property
    def line(self) -> str:
        """Name the file and the reason; most reasons begin with the file."""
        name = self.path or self.id
        text = self.reason if name in self.reason else f"{name}: {self.reason}"
        return text if self.model is None else f"{text} ({self.model})"


class Samples(Mapping[str, Row]):
    """Samples by id, in natural order of id, as columns: a million take a few hundred megabytes.

    Args:
        ids: Their ids.
        paths: Where each lies; None where it is no file.
        prompts: Prompt of each, or None.
        reasons: Id to the reason why some metric has no value for it.
        media: Handles of the pictures, where the run just made has them still.
    """

    __slots__ = ("_index", "ids", "media", "paths", "prompts", "reasons")

    def __init__(
        self,
        ids: Sequence[str],
        paths: Sequence[str | None] | None = None,
        prompts: Sequence[str | None] | None = None,
        reasons: Mapping[str, str] | None = None,
        media: Sequence[Media | None] = (),
    ) -> None:
        nothing: list[str | None] = [None] * len(ids)
        self.ids: Sequence[str] = ids
        self.paths = nothing if paths is None else paths
        self.prompts = nothing if prompts is None else prompts
        self.reasons = dict(reasons or {})
        self.media = media
        self._index: dict[str, int] | None = None

    def place(self, id_: str) -> int:
        """Return the position of an id. Raises KeyError."""
        if self._index is None:
            self._index = {name: i for i, name in enumerate(self.ids)}
        return self._index[id_]

    def row(self, place: int) -> Row:
        """Return the sample at a position."""
        id_ = self.ids[place]
        return Row(id_, self.paths[place], self.prompts[place], self.reasons.get(id_))

    def __getitem__(self, id_: str) -> Row:
        return self.row(self.place(id_))

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Samples):
            return NotImplemented
        mine = (list(self.ids), list(self.paths), list(self.prompts), self.reasons)
        return mine == (list(other.ids), list(other.paths), list(other.prompts), other.reasons)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Samples({len(self)} samples)"


class Labels(Mapping[str, str]):
    """Sample id to label, as columns; samples without a label are left out.

    Args:
        ids: All sample ids.
        labels: A label for each, or None.
    """

    __slots__ = ("_index", "ids", "labels")

    def __init__(self, ids: Sequence[str], labels: Sequence[str | None]) -> None:
        self.ids, self.labels = ids, labels
        self._index: dict[str, str] | None = None

    def __getitem__(self, id_: str) -> str:
        if self._index is None:
            self._index = dict(self.items())
        return self._index[id_]

    def items(self) -> Any:
        """Pairs of id and label."""
        pairs = zip(self.ids, self.labels, strict=True)
        return ((id_, label) for id_, label in pairs if label is not None)

    def values(self) -> Any:
        """Labels, in the order of the ids."""
        return (label for label in self.labels if label is not None)

    def __iter__(self) -> Iterator[str]:
        return (id_ for id_, _ in self.items())

    def __len__(self) -> int:
        return sum(label is not None for label in self.labels)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]


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

    @classmethod
    def of(cls, report: Any) -> RunRecord:
        """Record a run just made.

        Args:
            report: A :class:`genmetrics.Report`, or anything with its attributes.

        Raises:
            UsageError: A metric has a name that is reserved.
            InputError: Details, protocols or the like hold what JSON has no value for.
        """
        samples = _samples(report)
        metrics = {key: _settled(key, result, samples) for key, result in report.results.items()}
        skipped = tuple(_skipped(failure) for failure in report.failures)
        name = getattr(report, "name", None)
        whole = {s.id: s.reason for s in skipped if s.side in ("generated", name) and not s.model}
        for id_, reason in _reasons(metrics, whole, samples):
            samples.reasons[id_] = reason
        return cls(
            metrics=metrics,
            samples=samples,
            name=None if name == "generated" else name,
            inputs=plain(report.inputs),
            asked=plain(report.asked),
            skipped=skipped,
            missing=tuple(report.missing),
            conversions=plain(report.conversions),
            notes=tuple(getattr(report, "notes", ())),
            runtime=plain(report.runtime),
            created=report.created,
            command=plain(getattr(report, "command", None) or {}),
        )

    @classmethod
    def load(cls, directory: str | Path) -> RunRecord:
        """Read a run back from results.json and samples.jsonl alone.

        Raises:
            InputError: They are missing, damaged, newer than this version, or of different runs.
        """
        from genmetrics.report.reading import read_record

        return read_record(Path(directory).expanduser())

    def save(self, directory: str | Path) -> list[Path]:
        """Write results.json, samples.jsonl and report.html, all or none; return their paths.

        Raises:
            InputError: They cannot be written.
        """
        from genmetrics.report.files import write_report

        return write_report(self, Path(directory))


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


def _skipped(failure: Any) -> Skipped:
    sample = failure.who.sample
    model = getattr(failure, "model", None) or getattr(failure, "extractor", None)
    return Skipped(sample.id, failure.who.side, sample.path, failure.reason, model)


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
