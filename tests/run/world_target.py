"""What one rank of a test does: run what a file asks for, and write what it got to FOLDER/RANK.json.

torchrun -m tests.run.world_target RUNS.json FOLDER

RUNS.json maps names to arguments of ``gm.evaluate``. ``{rank}`` in a cache is this rank's number,
names of metrics that begin with ``toy`` are those of :mod:`tests.run.toys`, and ``toy`` holds the
options of their extractor. Every rank writes a file of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import genmetrics as gm
from genmetrics.core.errors import GenmetricsError
from genmetrics.core.sample import Sample
from tests.run.toys import ToyBrightness, ToyDistance, ToySpec

ROOT = Path(__file__).parent.parent.parent


class ToyVideos(ToyBrightness):
    """Mean over videos of the mean brightness of their frames, which are ``video/frame``."""

    id = "toy-videos"

    def groups(self, samples: Sequence[Sample]) -> list[str]:
        return [sample.id.split("/")[0] for sample in samples]


TOYS = {metric.id: metric for metric in (ToyDistance, ToyBrightness, ToyVideos)}


def bits(value: float | None) -> str | None:
    return None if value is None else float(value).hex()


def describe(report: gm.Report) -> dict[str, Any]:
    """Every bit of a report that may not depend on the world."""
    return {
        "metrics": {
            name: {
                "value": bits(result.value),
                "interval": None if result.interval is None else list(map(bits, result.interval)),
                "n": [result.n, result.n_reference],
                "per sample": None
                if result.per_sample is None
                else [[id_, bits(score)] for id_, score in result.per_sample.items()],
                "parts": {part: bits(value) for part, value in result.parts.items()},
                "said": [result.status, result.reason, *result.warnings],
                "fingerprint": result.fingerprint,
            }
            for name, result in report.results.items()
        },
        "samples": [sample.id for sample in report.samples],
        "inputs": report.inputs,
        "conversions": report.conversions,
        "left out": [[f.who.sample.id, f.reason] for f in report.failures] + [*report.missing],
        "work": [report.runtime["features_computed"], report.runtime["features_reused"]],
    }


def evaluate(
    metrics: Sequence[str], toy: Mapping[str, Any] | None = None, **arguments: Any
) -> dict[str, Any]:
    """Evaluate in the world of this process."""
    cache = arguments.pop("cache", False)
    if cache:
        cache = cache.replace("{rank}", os.environ.get("RANK", "0"))
    spec = ToySpec(**(toy or {}))
    asked = [TOYS[name](spec) if name in TOYS else name for name in metrics]
    try:
        return describe(
            gm.evaluate(
                metrics=asked, cache=cache, distributed=True, device="cpu", **arguments
            )
        )
    except GenmetricsError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def clean_environment() -> dict[str, str]:
    """The environment of every world: with no number of threads, which would be each rank's own."""
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


def launch(
    world: int, runs: Mapping[str, Mapping[str, Any]], folder: Path, *, limit: float = 60
) -> list[dict[str, Any]]:
    """Do the runs in as many ranks; what each of them got, in order of rank."""
    found, asked = folder / f"world-{world}", folder / "runs.json"
    found.mkdir(parents=True)
    asked.write_text(json.dumps(runs))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    done = subprocess.run(
        [sys.executable, *(launcher if world > 1 else []), "-m", __name__, str(asked), str(found)],
        capture_output=True, text=True, timeout=limit, env=clean_environment(), cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list(found.iterdir())) == world
    return [json.loads((found / f"{rank}.json").read_text()) for rank in range(world)]


def main() -> None:
    runs, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    found = {}
    for name, run in runs.items():
        started = time.monotonic()
        found[name] = evaluate(**run)
        if os.environ.get("TIMES") and os.environ.get("RANK", "0") == "0":
            print(f"{name} {time.monotonic() - started:.2f}", file=sys.stderr, flush=True)
    (folder / f"{os.environ.get('RANK', 0)}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
