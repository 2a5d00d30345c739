"""The three files of a report: results.json, samples.jsonl, report.html."""

from __future__ import annotations

import os
from pathlib import Path

from genmetrics.core.errors import UsageError
from genmetrics.core.files import require_local, write_together
from genmetrics.report.document import document, sample_lines, to_json
from genmetrics.report.html import page
from genmetrics.run.evaluate import Report

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


def _try_to_make(path: Path) -> None:
    """Make the folder and take it away again: some places refuse although rights allow it."""
    new = [place for place in (path, *path.parents) if not place.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for place in new:
            place.rmdir()
    except OSError as error:
        raise UsageError(f"out {path}: {error.strerror}; pass another folder") from error


def write_report(report: Report, out: Path, *, command: str | None = None) -> list[Path]:
    """Write the report's files, each whole or not at all.

    Args:
        report: What a run found.
        out: Folder; made if it is not there.
        command: Command line that made the report, for the page.

    Returns:
        The paths written.
    """
    out = check_out(out)
    lines = "".join(f"{to_json(line)}\n" for line in sample_lines(report))
    texts = (
        f"{to_json(document(report), indent=2)}\n",
        lines,
        page(report, command=command),
    )
    paths = [out / name for name in FILES]
    write_together(dict(zip(paths, texts, strict=True)))
    return paths
