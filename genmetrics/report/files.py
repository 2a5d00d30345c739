"""The three files of a report: results.json, samples.jsonl, report.html."""

from __future__ import annotations

import os
from pathlib import Path

from genmetrics.core.errors import UsageError
from genmetrics.core.files import Content, write_together
from genmetrics.report.document import document, sample_chunks, to_json
from genmetrics.report.html import page
from genmetrics.report.record import RunRecord

FILES = ("results.json", "samples.jsonl", "report.html")


def check_out(out: str | Path) -> Path:
    """Refuse a folder that could not be written to; made before the run, it changes nothing.

    Raises:
        UsageError: ``out`` or something above it is a file, or may not be written.
    """
    if not str(out):
        raise UsageError("out is empty; pass a folder")
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
