"""The file of results: one record a benchmark, each with the facts it was measured under.

A record comes from one run of its benchmark, so every ratio in it does too. Benchmarks of one file
may have been measured on different days, machines and commits; each record says which.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.lab import Lab, SideError
from benchmarks.rows import Row, Sizes

SCHEMA = "genmetrics.benchmarks/2"

Document = dict[str, Any]
Benchmark = Callable[[Lab, Sizes], Iterator[Row]]


def read(file: Path, *, quick: bool) -> Document:
    """Return what a file holds so far; an empty document if there is none.

    Raises:
        ValueError: Not a file of results, or of sizes other than those asked for.
    """
    if not file.exists():
        return {"schema": SCHEMA, "quick": quick, "benchmarks": {}}
    try:
        document: Document = json.loads(file.read_text())
        found = document["schema"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{file} is no file of results; give another --out") from error
    if found != SCHEMA:
        raise ValueError(f"{file} has the schema {found!r}, not {SCHEMA!r}; give another --out")
    if document["quick"] != quick:
        held, asked = ("quick", "full") if document["quick"] else ("full", "quick")
        raise ValueError(f"{file} holds {held} sizes, and {asked} ones do not go with them; give"
                         " another --out")  # fmt: skip
    return document


def missing(document: Document, names: list[str]) -> list[str]:
    """Return the benchmarks that a document has no measurement of; failed ones count as missing."""
    held = document["benchmarks"]
    return [name for name in names if name not in held or held[name]["failure"] is not None]


def measure(benchmark: Benchmark, lab: Lab, sizes: Sizes) -> dict[str, Any]:
    """Run one benchmark in a lab of its own and return its record."""
    began, started = datetime.now(UTC), time.monotonic()
    commit = machine.commit()  # at the start: somebody may edit while it runs
    rows: list[Row] = []
    failure = None
    try:
        rows += benchmark(lab, sizes)
    except SideError as error:
        failure = str(error)
        lab.tell(f"not measured: {failure}")
    return {
        "measured": began.isoformat(timespec="seconds"),
        "commit": commit,
        "machine": machine.describe(),
        "settings": {
            "repeats": lab.repeats,
            "threads": lab.cores,
            "sizes": asdict(sizes),
            "highest_load": max((m.load for m in lab.measurements), default=0.0),
            "seconds": round(time.monotonic() - started),
        },
        "rows": [asdict(row) for row in rows],
        "failure": failure,
        "measurements": lab.as_json(),
    }
