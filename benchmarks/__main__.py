"""Run the benchmarks, or render what they found.

python -m benchmarks --out FILE [--only NAME ...] [--repeats 5] [--quick] [--data DIR]
python -m benchmarks --render FILE [--into PAGE]

A FILE that exists is continued: what it holds stays, what it lacks is measured. ``--only`` measures
the benchmarks it names, again if need be, and leaves the others as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import record
from benchmarks.lab import Lab
from benchmarks.rows import QUICK, Sizes
from benchmarks.suite import BENCHMARKS
from benchmarks.table import render, write_into
from genmetrics.core.device import cores
from genmetrics.core.files import write_atomic


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, 1 if a benchmark could not be run, or 2 if the file is not one to use."""
    given = _arguments(argv)
    if given.render is not None:
        if not given.render.is_file():
            print(f"benchmarks: {given.render} is no file; give one of --out", file=sys.stderr)
            return 2
        table = render(json.loads(given.render.read_text()))
        if given.into is not None:
            write_into(given.into, table)
        else:
            print(table, end="")
        return 0
    try:
        document = record.read(given.out, quick=given.quick)
    except ValueError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="genmetrics-benchmarks-") as temporary:
        folder = (given.data or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return _run(document, folder, given)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0]
    )
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--out", type=Path, metavar="FILE", help="run, and keep results as JSON")
    task.add_argument("--render", type=Path, metavar="FILE", help="print results as Markdown")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="with --render: between markers")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="NAME",
                        help="these, again if FILE has them; by default those FILE lacks."
                        f" Some of: {', '.join(BENCHMARKS)}")  # fmt: skip
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each benchmark")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does it run?")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep photographs and weights")
    return parser.parse_args(argv)


def _run(document: record.Document, folder: Path, given: argparse.Namespace) -> int:
    """Measure what is asked for; each record is on disk before the next benchmark begins."""
    held, sizes = document["benchmarks"], QUICK if given.quick else Sizes()
    wanted = given.only or record.missing(document, list(BENCHMARKS))
    for name in (name for name in BENCHMARKS if name in held and name not in wanted):
        Lab.tell(f"{name}: kept, measured {held[name]['measured']} at {held[name]['commit']}")
    for name in wanted:
        lab = Lab(folder, 1 if given.quick else given.repeats, cores())
        held[name] = record.measure(BENCHMARKS[name], lab, sizes)
        held = document["benchmarks"] = {name: held[name] for name in BENCHMARKS if name in held}
        write_atomic(given.out, f"{json.dumps(document, indent=1, allow_nan=False)}\n")
    print(render(document), end="")
    return 1 if any(held[name]["failure"] is not None for name in wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
