"""Results: a value, how sure it is, and how it was made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple


class Interval(NamedTuple):
    """A confidence interval and its level, such as ``(430.0, 452.0, 0.95)``."""

    lo: float
    hi: float
    level: float = 0.95


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
        parts: Further named numbers of the same metric.
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
    parts: Mapping[str, float] = field(default_factory=dict)
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
        interval = self.interval
        return {
            "value": finite_or_none(self.value),
            "interval": None
            if interval is None
            else [finite_or_none(interval.lo), finite_or_none(interval.hi)],
            "level": None if interval is None else interval.level,
            "n": self.n,
            "n_reference": self.n_reference,
            "higher_is_better": self.higher_is_better,
            "parts": {name: finite_or_none(value) for name, value in self.parts.items()},
            "status": self.status,
            "reason": reason,
            "warnings": list(self.warnings),
            "protocol": dict(self.protocol),
            "fingerprint": self.fingerprint,
        }


def finite_or_none(value: float | None) -> float | None:
    """Return a plain float, or None where JSON has no number for it."""
    return None if value is None or not math.isfinite(value) else float(value)
