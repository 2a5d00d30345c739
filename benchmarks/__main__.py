"""Run the benchmarks, or render what they found.

python -m benchmarks --out FILE [--only NAME ...] [--repeats 5] [--quick] [--data DIR]
python -m benchmarks --render FILE [--into PAGE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.lab import Lab, SideError
from benchmarks.suite import BENCHMARKS, QUICK, Row, Sizes
from benchmarks.table import render, write_into

SCHEMA = "genmetrics.benchmarks/1"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a benchmark could not be run."""
    given = _arguments(argv)
    if given.render is not None:
        table = render(json.loads(given.render.read_text()))
        if given.into is not None:
            write_into(given.into, table)
        else:
            print(table, end="")
        return 0
    with tempfile.TemporaryDirectory(prefix="genmetrics-benchmarks-") as temporary:
        folder = (given.data or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        lab = Lab(folder, 1 if given.quick else given.repeats, machine.cores())
        return _run(lab, given.only or list(BENCHMARKS), QUICK if given.quick else Sizes(), given)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0]
    )
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--out", type=Path, metavar="FILE", help="run, and write results as JSON")
    task.add_argument("--render", type=Path, metavar="FILE", help="print results as Markdown")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="with --render: between markers")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="NAME",
                        help=f"some of: {', '.join(BENCHMARKS)}")  # fmt: skip
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each benchmark")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does it run?")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep photographs and weights")
    return parser.parse_args(argv)


def _run(lab: Lab, names: Sequence[str], sizes: Sizes, given: argparse.Namespace) -> int:
    """Run benchmarks; what is measured is on disk after each."""
    rows: list[Row] = []
    failures: list[str] = []
    started = time.monotonic()
    for name in names:
        try:
            rows += BENCHMARKS[name](lab, sizes)
        except SideError as error:
            failures.append(f"{name}: {error}")
            lab.tell(f"not measured: {failures[-1]}")
        results = _document(lab, sizes, rows, failures, bool(given.quick))
        results["settings"]["seconds"] = round(time.monotonic() - started)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(f"{json.dumps(results, indent=1, allow_nan=False)}\n")
    print(render(results), end="")
    return 1 if failures else 0


def _document(
    lab: Lab, sizes: Sizes, rows: Sequence[Row], failures: Sequence[str], quick: bool
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "machine": machine.describe(),
        "settings": {
            "quick": quick,
            "repeats": lab.repeats,
            "threads": lab.cores,
            "sizes": asdict(sizes),
            "highest_load": max((m.load for m in lab.measurements), default=0.0),
        },
        "rows": [asdict(row) for row in rows],
        "failures": list(failures),
        "measurements": lab.as_json(),
    }


if __name__ == "__main__":
    sys.exit(main())
