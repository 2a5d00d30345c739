"""What results.json and samples.jsonl hold, in strict JSON. ``reading`` is the way back.

JSON has no NaN and no infinity. In their place is null, and ``not_finite`` (of the document, or of
the sample's line) says by JSON Pointer (RFC 6901) which it was: ``{"/metrics/psnr/value": "inf"}``.
A sample's number that is null without such an entry is NaN: there is none, and ``reason`` says why.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from genmetrics.core.result import VALUE, Interval, PerSample, Result
from genmetrics.report.columns import SCHEMA, Labels, Samples

if TYPE_CHECKING:
    from genmetrics.report.record import RunRecord

__all__ = ["SCHEMA", "digest_of", "document", "pointer", "sample_chunks", "sample_lines", "to_json"]

_BLOCK = 1024  # lines made at a time
_encode = json.JSONEncoder(allow_nan=False).encode


def document(record: RunRecord) -> dict[str, Any]:
    """Return the record as plain JSON values (schema ``genmetrics.results/2``)."""
    not_finite: dict[str, str] = {}
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "genmetrics": record.genmetrics,
        "created": record.created,
        "name": record.name,
        "command": record.command,
        "inputs": record.inputs,
        "metrics": {name: _entry(result) for name, result in record.metrics.items()},
        "asked": record.asked,
        "samples": {"n": len(record.samples), "digest": digest_of(record.samples.ids)},
        "skipped": [skipped._asdict() for skipped in record.skipped],
        "missing": record.missing,
        "conversions": record.conversions,
        "notes": record.notes,
        "runtime": record.runtime,
    }
    strict: dict[str, Any] = _strict(found, "", not_finite)
    return {**strict, "not_finite": not_finite}


def _entry(result: Result) -> dict[str, Any]:
    """One metric; ``per_sample`` names the numbers that it has in each line of samples.jsonl."""
    columns = [] if result.per_sample is None else [VALUE]
    columns += result.sample_parts
    return {
        "id": result.id,
        **result.to_dict(),
        "value": result.value,
        "interval": _bounds(result.interval),
        "parts": dict(result.parts),
        "intervals": {
            name: {"interval": _bounds(each), "level": each.level}
            for name, each in result.intervals.items()
        },
        "clusters": result.clusters is not None,
        "per_sample": columns or None,
    }


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.lo, interval.hi]


def digest_of(ids: Sequence[str]) -> str:
    """``"sha256:..."`` of the ids in order, each as JSON and a line break: ties files together."""
    whole = hashlib.sha256()
    for start in range(0, len(ids), _BLOCK):
        text = "".join(f"{_encode(id_)}\n" for id_ in ids[start : start + _BLOCK])
        whole.update(text.encode())
    return f"sha256:{whole.hexdigest()}"


def sample_chunks(record: RunRecord) -> Iterator[bytes]:
    """Yield samples.jsonl in pieces, so that no more than a few lines are in memory."""
    for start in range(0, len(record.samples), _BLOCK):
        lines = _block(record, start, min(start + _BLOCK, len(record.samples)))
        yield "".join(f"{_encode(line)}\n" for line in lines).encode()


def sample_lines(record: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield one object a sample: who it is, and its numbers under every metric.

    For metrics of sets the number is the influence of the sample. Where a metric has further
    numbers a sample, they are an object with its own as ``value``; those that are NaN are left out.
    """
    for start in range(0, len(record.samples), _BLOCK):
        yield from _block(record, start, min(start + _BLOCK, len(record.samples)))


def _block(record: RunRecord, start: int, stop: int) -> list[dict[str, Any]]:
    samples = record.samples
    lines = [_who(samples, place) for place in range(start, stop)]
    not_finite: list[dict[str, str]] = [{} for _ in lines]
    for key, result in record.metrics.items():
        for line, cell in zip(lines, _cells(key, result, start, stop, not_finite), strict=False):
            line[key] = cell
    for key, result in record.metrics.items():
        _add_labels(lines, "groups", key, result.groups, start)
        _add_labels(lines, "clusters", key, result.clusters, start)
        if result.details:
            _add_details(lines, key, result.details, not_finite)
    for line, odd in zip(lines, not_finite, strict=True):
        if odd:
            line["not_finite"] = odd
        if line["id"] in samples.reasons:
            line["reason"] = samples.reasons[line["id"]]
    return lines


def _who(samples: Samples, place: int) -> dict[str, Any]:
    line = {"id": samples.ids[place], "path": samples.paths[place]}
    prompt = samples.prompts[place]
    return line if prompt is None else {**line, "prompt": prompt}


def _cells(
    key: str, result: Result, start: int, stop: int, not_finite: list[dict[str, str]]
) -> list[Any]:
    """What each line has under a metric; empty where the metric has nothing by sample."""
    own = None
    if result.per_sample is not None:
        place = pointer(key, VALUE) if result.sample_parts else pointer(key)
        own = _numbers(result.per_sample, start, stop, place, not_finite)
    if not result.sample_parts:
        return own or []
    cells: list[dict[str, Any]] = [{} for _ in range(start, stop)]
    if own is not None:
        cells = [{VALUE: number} for number in own]
    for name, column in result.sample_parts.items():
        numbers = _numbers(column, start, stop, pointer(key, name), not_finite)
        for cell, odd, number in zip(cells, not_finite, numbers, strict=True):
            if number is not None or pointer(key, name) in odd:
                cell[name] = number
    return cells


def _numbers(
    column: Mapping[str, float], start: int, stop: int, where: str, odd: list[dict[str, str]]
) -> list[float | None]:
    """Numbers with None for those that JSON cannot hold; infinite ones are noted."""
    assert isinstance(column, PerSample)
    block = column.numbers[start:stop]
    cells: list[float | None] = block.tolist()
    for i in np.flatnonzero(~np.isfinite(block)).tolist():
        cells[i] = None
        if np.isinf(block[i]):
            odd[i][where] = str(float(block[i]))
    return cells


def _add_labels(
    lines: list[dict[str, Any]], kind: str, key: str, labels: Mapping[str, str] | None, start: int
) -> None:
    """Note labels; a cluster that is the prompt, or the id where there is none, goes unsaid."""
    if labels is None:
        return
    assert isinstance(labels, Labels)
    some = labels.labels[start : start + len(lines)]
    for line, label in zip(lines, some, strict=True):
        unsaid = None if kind == "groups" else line.get("prompt") or line["id"]
        if label != unsaid:
            line.setdefault(kind, {})[key] = label


def _add_details(
    lines: list[dict[str, Any]],
    key: str,
    details: Mapping[str, Mapping[str, Any]],
    not_finite: list[dict[str, str]],
) -> None:
    for line, odd in zip(lines, not_finite, strict=True):
        said = details.get(line["id"])
        if said:
            # nearly always there is nothing to do, and no copy to make
            strict = said if _is_finite(said) else _strict(said, pointer("details", key), odd)
            line.setdefault("details", {})[key] = strict


def pointer(*parts: str) -> str:
    """Return the JSON Pointer to a place."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Serialise strictly: no NaN, no Infinity; ASCII, so that any file name survives."""
    return json.dumps(value, indent=indent, allow_nan=False)


def _is_finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, tuple | list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _strict(value: Any, where: str, not_finite: dict[str, str]) -> Any:
    """Copy into plain containers, with None for floats that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {k: _strict(each, where + pointer(k), not_finite) for k, each in value.items()}
    if isinstance(value, tuple | list):
        return [_strict(each, f"{where}/{i}", not_finite) for i, each in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        not_finite[where] = str(value)
        return None
    return value
