"""Results: a value, how sure it is, and how it was made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from genmetrics.core.state import natural_key

RESERVED = frozenset(
    {"id", "path", "prompt", "reason", "details", "groups", "clusters", "not_finite"}
)
"""Names that no metric may have: the other keys of a line of samples.jsonl."""

VALUE = "value"
"""Name that no further number of a sample may have: it is the metric's own."""


class Interval(NamedTuple):
    """A confidence interval and its level, such as ``(430.0, 452.0, 0.95)``."""

    lo: float
    hi: float
    level: float = 0.95


class PerSample(Mapping[str, float]):
    """Sample id to number, as two columns: eight bytes a sample beside the ids, which are shared.

    Args:
        ids: Sample ids, in natural order.
        numbers: A number for each, float64 ``(n,)``; NaN where there is none.
    """

    __slots__ = ("_index", "ids", "numbers")

    def __init__(self, ids: Sequence[str], numbers: Sequence[float] | np.ndarray) -> None:
        self.ids, self.numbers = ids, np.asarray(numbers, dtype=np.float64)
        self._index: dict[str, int] | None = None
        if self.numbers.shape != (len(ids),):
            raise ValueError(f"{len(ids)} ids and numbers of shape {self.numbers.shape}")

    def __getitem__(self, id_: str) -> float:
        if self._index is None:
            self._index = {name: i for i, name in enumerate(self.ids)}
        return float(self.numbers[self._index[id_]])

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PerSample):
            same = list(self.ids) == list(other.ids)
            return same and np.array_equal(self.numbers, other.numbers, equal_nan=True)
        return dict(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PerSample({len(self)} samples)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One metric's answer. ``float(result)`` is its value.

    Attributes:
        id: Registry id with its protocol, such as ``"fid@clean"``.
        value: The number, or None when ``status`` is not ``"ok"``.
        interval: ``(lo, hi, level)``, or None where the metric has none.
        n: Generated samples that entered the value.
        n_reference: Reference samples, 0 for metrics without a reference set.
        higher_is_better: Direction.
        per_sample: Sample id to value (set metrics: the influence of the sample on the value;
            failed samples: NaN), or None.
        sample_parts: Further numbers a sample: name to sample id to value.
        details: Sample id to plain JSON values by name, such as a verdict, an answer, or the
            ``reason`` why the sample has no value; only samples that have any.
        groups: Sample id to its group, where the value is the unweighted mean of group means.
        clusters: Sample id to what it was drawn with, where samples were drawn together.
        parts: Further named numbers of the same metric.
        intervals: Names of ``parts`` to their intervals, where they have one.
        protocol: Every choice that moved the number, as plain JSON values.
        fingerprint: ``"sha256:..."`` of ``protocol``.
        status: ``"ok"``, ``"unavailable"`` (nothing to compute from) or ``"failed"``.
        reason: Why ``status`` is not ``"ok"``, in one line.
        warnings: What a reader of the value should know.
    """

    id: str
    value: float | None
    n: int
    higher_is_better: bool
    protocol: Mapping[str, Any] = field(repr=False)
    fingerprint: str
    interval: Interval | None = None
    n_reference: int = 0
    per_sample: Mapping[str, float] | None = field(default=None, repr=False)
    sample_parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict, repr=False)
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    groups: Mapping[str, str] | None = field(default=None, repr=False)
    clusters: Mapping[str, str] | None = field(default=None, repr=False)
    parts: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    status: Literal["ok", "unavailable", "failed"] = "ok"
    reason: str | None = None
    warnings: tuple[str, ...] = ()

    def __float__(self) -> float:
        return math.nan if self.value is None else float(self.value)

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of ``results.json``: strict JSON values, not finite becomes None."""
        reason = self.reason
        if reason is None and self.value is not None and not math.isfinite(self.value):
            reason = f"the value is {self.value}, which JSON cannot hold"
        return {
            "value": finite_or_none(self.value),
            "interval": None if self.interval is None else _bounds(self.interval),
            "level": None if self.interval is None else self.interval.level,
            "n": self.n,
            "n_reference": self.n_reference,
            "higher_is_better": self.higher_is_better,
            "parts": {name: finite_or_none(value) for name, value in self.parts.items()},
            "intervals": {
                name: {"interval": _bounds(interval), "level": interval.level}
                for name, interval in self.intervals.items()
            },
            "groups": None if self.groups is None else sorted(set(self.groups.values())),
            "status": self.status,
            "reason": reason,
            "warnings": list(self.warnings),
            "protocol": dict(self.protocol),
            "fingerprint": self.fingerprint,
        }


def with_missing(result: Result, reasons: Mapping[str, str | None]) -> Result:
    """Add samples without a value: NaN in every column, and the reason where it is the metric's.

    Args:
        result: Of the samples that have values.
        reasons: Sample id to why it has none; None where the sample itself cannot be used.
    """
    if not reasons:
        return result
    own = {id_: {"reason": why} for id_, why in reasons.items() if why is not None}
    parts = {name: _extended(column, reasons) for name, column in result.sample_parts.items()}
    column = None if result.per_sample is None else _extended(result.per_sample, reasons)
    return replace(result, per_sample=column, sample_parts=parts, details={**result.details, **own})


def _extended(column: Mapping[str, float], ids: Iterable[str]) -> PerSample:
    values = {**column, **dict.fromkeys(ids, math.nan)}
    order = sorted(values, key=natural_key)
    return PerSample(order, [values[id_] for id_ in order])


def resolve(name: str, results: Mapping[str, Any], asked: Mapping[str, str]) -> str:
    """Return the key that a name means: itself, or the only one that it is short for.

    Args:
        name: A key, an id as it was asked for, or a key without its options or variant.
        results: Results by key.
        asked: Ids as they were asked for, to keys.

    Raises:
        KeyError: None, or several.
    """
    if name in results:
        return name
    if name in asked:
        return asked[name]
    close = [key for key in results if name in _shorter(key)]
    if len(close) == 1:
        return close[0]
    if close:
        raise KeyError(f"{name!r} is not one metric here; ask for one of {', '.join(close)}")
    raise KeyError(f"{name!r} is not in this run, which has {', '.join(results) or 'no metric'}")


def _shorter(key: str) -> tuple[str, str]:
    """The key without its options, and without its variant."""
    base = key.split(":")[0]
    return base, base.split("@")[0]


def _bounds(interval: Interval) -> list[float | None]:
    return [finite_or_none(interval.lo), finite_or_none(interval.hi)]


def finite_or_none(value: float | None) -> float | None:
    """Return a plain float, or None where JSON has no number for it."""
    return None if value is None or not math.isfinite(value) else float(value)
