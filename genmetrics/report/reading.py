"""Reading a run back: results.json and samples.jsonl to a record, each field checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

from genmetrics import __version__
from genmetrics.core.errors import InputError
from genmetrics.core.protocol import fingerprint_of
from genmetrics.core.result import VALUE, Interval, Result
from genmetrics.report.columns import SCHEMA, Skipped
from genmetrics.report.document import digest_of
from genmetrics.report.fields import Fields, as_number, put_back, refuse_twice
from genmetrics.report.sample_file import Columns, SampleFile
from genmetrics.report.text import printable

_FIX = "the file is damaged or was changed, run again"
_LISTED = 10  # runs that a message names
_FAMILY, NEWEST = "genmetrics.results", int(SCHEMA.rpartition("/")[2])


def read_parts(folder: Path) -> dict[str, Any]:
    """Read what a record of the run is made of; see ``RunRecord.load``."""
    results, lines = folder / "results.json", folder / "samples.jsonl"
    for path in (results, lines):
        if not path.is_file():
            fix = _runs_in(folder) or "pass a folder that `genmetrics eval --out` wrote"
            raise InputError(f"{folder} holds no {path.name}; {fix}")
    version, document = _read_document(results)
    entries = document.object("metrics").each()
    samples = SampleFile({key: _columns(entry, version) for key, entry in entries.items()}, version)
    samples.read(lines)
    _compare(document, samples, version, folder)
    skipped = document.objects("skipped")
    return {
        "metrics": {key: _result(key, entry, samples) for key, entry in entries.items()},
        "samples": samples.samples(),
        "name": document.text_or_none("name"),
        "schema": document.text("schema"),
        "inputs": {name: each.values for name, each in document.object("inputs").each().items()},
        "asked": _asked(document, entries),
        "skipped": tuple(map(_skipped, skipped)),
        "missing": document.texts("missing", []),
        "conversions": _counts(document.object("conversions", {})),
        "notes": document.texts("notes", []),
        "runtime": document.object("runtime", {}).values,
        "created": document.text("created"),
        "genmetrics": document.text("genmetrics"),
        "command": document.object("command", {}).values,
    }


def _runs_in(folder: Path) -> str | None:
    """Say which runs lie in a folder, as those of several sets do; None where there are none."""
    names = sorted(printable(path.parent.name) for path in folder.glob("*/results.json"))
    if len(names) < 2:
        return f"it holds the run {names[0]}: load that" if names else None
    named, left = names[:_LISTED], len(names) - _LISTED
    listed = f"{', '.join(named[:-1])} and {named[-1]}" if left <= 0 else ", ".join(named)
    more = f" and {left:,} more" if left > 0 else ""
    return f"it holds the runs {listed}{more}: load one of them"


def _read_document(path: Path) -> tuple[int, Fields]:
    """Return the version of the schema, and the document with NaN and infinities in it again."""
    try:
        text = path.read_bytes()
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=refuse_twice)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not strict JSON: {error}; {_FIX}") from error
    document = Fields(value, str(path), "", _FIX)
    schema = document.text("schema")
    match = re.fullmatch(rf"{re.escape(_FAMILY)}/([1-9]\d{{0,8}})", schema)
    if match is None:
        raise document.wrong("schema", f"{_FAMILY}/1 or /{NEWEST}")
    version = int(match[1])
    if version > NEWEST:
        raise InputError(
            f"{path} has schema {schema}, and this genmetrics ({__version__}) reads up to"
            f" /{NEWEST}; upgrade with `pip install -U genmetrics`"
        )
    odd = put_back(document.object("not_finite", {}).values, value)
    if odd is not None:
        raise InputError(f"{path}: not_finite names {odd!r}, where no null stands; {_FIX}")
    return version, document


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}")


def _columns(entry: Fields, version: int) -> Columns:
    """What the lines of samples.jsonl have of a metric; the first version does not say."""
    names = () if entry.values.get("per_sample") is None else entry.texts("per_sample")
    return Columns(
        value=VALUE in names if version > 1 else None,
        parts=tuple(name for name in names if name != VALUE),
        groups=entry.values.get("groups") is not None,
        clusters=entry.flag("clusters", False),
    )


def _compare(document: Fields, samples: SampleFile, version: int, folder: Path) -> None:
    """Refuse files of different runs."""
    if version > 1:
        told = document.object("samples")
        same = told.text("digest") == digest_of(samples.ids)
        n = told.count("n")
    else:
        # the first version counts what was used, and lists what was not
        skipped = [each.values for each in document.objects("skipped")]
        lost = {each.get("id") for each in skipped if each.get("side") != "reference"}
        n = document.object("inputs").object("generated").count("n") + len(lost)
        same = lost <= set(samples.ids)
    if n != len(samples.ids) or not same:
        raise InputError(
            f"{folder}: results.json tells of {n:,} samples and samples.jsonl has"
            f" {len(samples.ids):,}, not the same ones; the files are of different runs, copy both"
            " again"
        )


def _result(key: str, entry: Fields, samples: SampleFile) -> Result:
    status = entry.text("status")
    reason = entry.text_or_none("reason")
    return Result(
        id=entry.text("id", key),
        value=_value(entry, status, reason),
        interval=_interval(entry),
        n=_n(entry, len(samples.ids)),
        n_reference=entry.count("n_reference"),
        higher_is_better=entry.flag("higher_is_better"),
        parts=_parts(entry.object("parts")),
        intervals=_intervals(entry),
        status=_status(entry, status),
        reason=reason,
        warnings=entry.texts("warnings"),
        protocol=entry.object("protocol").values,
        fingerprint=_fingerprint(entry),
        per_sample=samples.column(key),
        sample_parts=samples.parts(key),
        details=samples.details(key),
        groups=samples.labels(key, "groups"),
        clusters=samples.labels(key, "clusters"),
    )


def _n(entry: Fields, samples: int) -> int:
    n = entry.count("n")
    if n > samples:
        raise entry.wrong("n", f"at most {samples}, which samples.jsonl has")
    return n


def _fingerprint(entry: Fields) -> str:
    """The fingerprint, which must be that of the protocol beside it."""
    said = entry.text("fingerprint")
    try:
        made = fingerprint_of(entry.object("protocol").values)
    except ValueError:
        raise entry.wrong("protocol", "finite numbers alone") from None
    if said != made:
        raise entry.wrong("fingerprint", f"{made[:15]}..., which its protocol has")
    return said


Status = Literal["ok", "unavailable", "failed"]


def _status(entry: Fields, status: str) -> Status:
    known: tuple[Status, ...] = ("ok", "unavailable", "failed")
    for each in known:
        if status == each:
            return each
    raise entry.wrong("status", "ok, unavailable or failed")


_WAS_INFINITE = re.compile(
    r"(?:every score is|the value is) (inf|-inf|nan)(?:, which JSON cannot hold)?"
)


def _value(entry: Fields, status: str, reason: str | None) -> float | None:
    """The value; where the first version had no place for an infinite one, its reason tells."""
    if entry.values.get("value") is not None:
        return entry.number("value")
    match = _WAS_INFINITE.fullmatch(reason or "")
    return float(match[1]) if status == "ok" and match is not None else None


def _interval(entry: Fields) -> Interval | None:
    if entry.values.get("interval") is None:
        return None
    bounds = [as_number(each) for each in entry.list("interval")]
    if len(bounds) != 2 or bounds[0] is None or bounds[1] is None:
        raise entry.wrong("interval", "two numbers")
    if bounds[0] > bounds[1]:
        raise entry.wrong("interval", "the lower number first")
    return Interval(bounds[0], bounds[1], entry.number("level"))


def _intervals(entry: Fields) -> dict[str, Interval]:
    """The intervals of parts, each of a part that is there."""
    intervals, parts = entry.object("intervals", {}), entry.object("parts").values
    for name in intervals.values:
        if name not in parts:
            raise intervals.wrong(name, "the interval of one of the parts")
    found = {name: _interval(each) for name, each in intervals.each().items()}
    return {name: interval for name, interval in found.items() if interval is not None}


def _parts(parts: Fields) -> dict[str, float]:
    # null: the first version had no place for parts that are not finite
    return {
        name: float("nan") if value is None else parts.number(name)
        for name, value in parts.values.items()
    }


def _skipped(entry: Fields) -> Skipped:
    return Skipped(
        id=entry.text("id"),
        side=entry.text("side"),
        path=entry.text_or_none("path"),
        reason=entry.text("reason"),
        model=entry.text_or_none("model"),
    )


def _asked(document: Fields, entries: Mapping[str, Fields]) -> Mapping[str, str]:
    asked = document.object("asked", {})
    for name in asked.values:
        if asked.text(name) not in entries:
            raise asked.wrong(name, "a key of metrics")
    return {name: asked.text(name) for name in asked.values}


def _counts(fields: Fields) -> dict[str, int]:
    return {name: fields.count(name) for name in fields.values}
