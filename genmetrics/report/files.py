"""The three files of a report: results.json, samples.jsonl, report.html."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genmetrics.core.errors import UsageError
from genmetrics.core.files import Content, require_local, write_together
from genmetrics.report.columns import SCHEMA
from genmetrics.report.document import document, sample_chunks, to_json
from genmetrics.report.html import page
from genmetrics.run.decide import describe_inputs
from genmetrics.run.plan import Plan

if TYPE_CHECKING:
    from genmetrics.report.record import RunRecord

FILES = ("results.json", "samples.jsonl", "report.html")


def check_out(out: str | Path) -> Path:
    """Refuse a folder that could not be written to; made before the run, it changes nothing.

    Raises:
        UsageError: ``out`` is an address, or it or something above it is a file or may not be
            written.
    """
    if not str(out):
        raise UsageError("out is empty; pass a folder")
    require_local("out", out, "pass a folder of this machine")
    path = Path(out).expanduser()
    try:
        existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    except OSError as error:
        raise UsageError(f"out {path}: {error.strerror}; pass another folder") from error
    if not existing.is_dir():
        raise UsageError(f"out {path}: {existing} is a file; pass a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"out {path}: {existing} may not be written; pass another folder")
    _try_to_make(path)
    for name in FILES:
        if (path / name).is_dir():
            raise UsageError(f"out {path}: {path / name} is a folder; pass another folder")
    return path


def check_same_run(
    out: str | Path,
    inputs: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, str],
    *,
    force: bool = False,
) -> None:
    """Refuse a folder that holds a run of which this one would lose something.

    A run that was killed leaves no files here, so files are a run that was finished. It may be
    replaced by the same run: each of its metrics again, by the same protocol, of the same paths, of
    no fewer samples.

    Args:
        out: Folder; it need not be there.
        inputs: As in the results document: name to at least ``path`` and ``n``.
        metrics: Name of each metric to the fingerprint of its protocol.
        force: Replace whatever is there.

    Raises:
        UsageError: Another run, or files that are no run of genmetrics; says what differs.
    """
    folder = Path(out).expanduser()
    there = [name for name in FILES if (folder / name).exists()]
    if force or not there:
        return
    fault = _other_run(folder / FILES[0], inputs, metrics)
    if fault is not None:
        raise UsageError(
            f"out {folder}: {fault}; pass another folder, or --force (force=True) to replace it"
        )


def _other_run(
    results: Path, inputs: Mapping[str, Mapping[str, Any]], metrics: Mapping[str, str]
) -> str | None:
    """Say what of the run in a folder another run would lose; None if nothing."""
    try:
        found = json.loads(results.read_bytes())
        had = {name: (str(each["path"]), int(each["n"])) for name, each in found["inputs"].items()}
        old = {name: str(each["fingerprint"]) for name, each in found["metrics"].items()}
        if not str(found["schema"]).startswith(SCHEMA.partition("/")[0]):
            raise ValueError
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return f"it holds files of these names, and no {FILES[0]} of genmetrics"
    for name, (path, n) in had.items():
        now = inputs.get(name)
        if now is None or str(now["path"]) != path:
            other = "none" if now is None else now["path"]
            return f"it holds the results of another run ({name} was {path}, is {other})"
        if int(now["n"]) < n:
            return f"it holds the results of more samples ({name} had {n:,}, has {now['n']:,})"
    lost = [name for name in old if name not in metrics]
    if lost:
        return f"it holds results that this run does not make again ({', '.join(lost)})"
    moved = [name for name in old if metrics[name] != old[name]]
    return f"it holds results by another protocol ({', '.join(moved)})" if moved else None


def _try_to_make(path: Path) -> None:
    """Make the folder and take it away again: some places refuse although rights allow it."""
    new = [place for place in (path, *path.parents) if not place.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for place in new:
            place.rmdir()
    except OSError as error:
        raise UsageError(f"out {path}: {error.strerror}; pass another folder") from error


def write_report(record: RunRecord, out: Path) -> list[Path]:
    """Write the record's files, each whole or not at all.

    Args:
        record: What a run found.
        out: Folder; made if it is not there.

    Returns:
        The paths written.
    """
    out = check_out(out)
    contents: tuple[Content, ...] = (
        f"{to_json(document(record), indent=2)}\n",
        sample_chunks(record),
        page(record),
    )
    paths = [out / name for name in FILES]
    write_together(dict(zip(paths, contents, strict=True)))
    return paths


def write_records(records: Mapping[str, RunRecord], out: Path, *, several: bool) -> list[Path]:
    """Write the files of each set: into ``out``, or of several into a folder each in it."""
    paths = []
    for name, record in records.items():
        paths += write_report(record, out / name if several else out)
    return paths


def check_runs(plan: Plan, out: Path, *, several: bool, force: bool = False) -> None:
    """Refuse to replace other runs in the folders that :func:`write_records` would write to."""
    prints = {key: metric.protocol.fingerprint for key, metric in plan.metrics.items()}
    for side in plan.generated:
        folder = out / side if several else out
        check_same_run(folder, describe_inputs(plan, side), prints, force=force)
