"""The machine-readable report: ``results.json`` and ``samples.jsonl``, in strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from genmetrics import __version__
from genmetrics.core.result import finite_or_none
from genmetrics.core.sample import Sample
from genmetrics.run.decide import Report

SCHEMA = "genmetrics.results/1"


def document(report: Report) -> dict[str, Any]:
    """Return the report as plain JSON values (schema ``genmetrics.results/1``).

    What JSON cannot hold is None, with the reason beside it. Every skipped file, missing partner
    and conversion of the run is listed.
    """
    found: dict[str, Any] = _strict(
        {
            "schema": SCHEMA,
            "genmetrics": __version__,
            "created": report.created,
            "inputs": report.inputs,
            "metrics": {name: result.to_dict() for name, result in report.results.items()},
            "skipped": [
                {
                    "id": failure.who.sample.id,
                    "side": failure.who.side,
                    "path": failure.who.sample.path,
                    "reason": failure.reason,
                }
                for failure in report.failures
            ],
            "missing": report.missing,
            "conversions": report.conversions,
            "notes": report.notes,
            "runtime": report.runtime,
        }
    )
    return found


def sample_lines(report: Report) -> Iterator[dict[str, Any]]:
    """Yield one object a generated sample: who it is, and its value under every metric.

    For metrics of sets the value is the influence of the sample. A sample without a value has None,
    and a ``reason``.
    """
    skipped = {
        failure.who.sample.id: failure.reason
        for failure in report.failures
        if failure.who.side == "generated"
    }
    for sample in report.samples:
        yield _line(report, sample, skipped.get(sample.id))


def _line(report: Report, sample: Sample, reason: str | None) -> dict[str, Any]:
    line: dict[str, Any] = {"id": sample.id, "path": sample.path}
    if sample.prompt is not None:
        line["prompt"] = sample.prompt
    reasons = [] if reason is None else [reason]
    for name, result in report.results.items():
        if result.per_sample is None:
            continue
        value = result.per_sample.get(sample.id)
        line[name] = finite_or_none(value)
        if line[name] is None and reason is None:
            reasons.append(f"{name} has no value" if value is None else f"{name} is {value}")
    if reasons:
        line["reason"] = "; ".join(reasons)
    return line


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Serialise strictly: no NaN, no Infinity; ASCII, so that any file name survives."""
    return json.dumps(value, indent=indent, allow_nan=False)


def _strict(value: Any) -> Any:
    """Copy into plain containers, with None for floats that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
