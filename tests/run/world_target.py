"""Worlds of ranks that do the runs a file asks for; each rank writes what it got.

python -m tests.run.world_target WORLDS.json FOLDER

WORLDS.json is a list of worlds: how many ranks, and their runs, which are arguments of
``gm.evaluate`` by name. Metrics that begin with ``toy`` are those of :mod:`tests.run.toys`, and
``{rank}`` in a cache is this rank. Rank R of world W writes FOLDER/W-R.json. Ranks are forked from
a process that has imported everything and computed nothing: importing takes longer than the runs.
Launchers start theirs in ``test_launchers.py``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import genmetrics as gm
from genmetrics import api
from genmetrics.core.errors import GenmetricsError
from genmetrics.core.sample import Sample
from genmetrics.run.launch import joined
from tests.run.toys import ToyBrightness, ToyDistance, ToySpec

ROOT = Path(__file__).parent.parent.parent
LIMIT = 180.0
"""Seconds a world may take for all its runs (30 on idle cores); one that hangs takes longer."""
IMPORTED = (
    "accelerate",
    "genmetrics.metrics",
    "scipy.linalg",
    "scipy.stats",
    "threadpoolctl",
    "transformers.models.clip.modeling_clip",
    "transformers.models.clip.tokenization_clip",
    "transformers.models.dinov2.modeling_dinov2",
)


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
                "interval": result.interval and [bits(end) for end in result.interval],
                "n": [result.n, result.n_reference],
                "per sample": result.per_sample
                and [[id_, bits(score)] for id_, score in result.per_sample.items()],
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


def evaluate(metrics: Sequence[str], **arguments: Any) -> dict[str, Any]:
    """Evaluate in the world of this process."""
    cache = arguments.pop("cache", False)
    if cache:
        cache = cache.replace("{rank}", os.environ.get("RANK", "0"))
    spec = ToySpec()
    asked = [TOYS[name](spec) if name in TOYS else name for name in metrics]
    try:
        report = gm.evaluate(
            metrics=asked, cache=cache, distributed=True, device="cpu", **arguments
        )
    except GenmetricsError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return describe(report)


def clean_environment(**more: str) -> dict[str, str]:
    """The environment of every world: without a number of threads, which counts for each rank."""
    return {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | more


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def torchrun(world: int, *words: str) -> list[str]:
    """A command line that runs a module in as many ranks; in a plain process if it is one."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    return [sys.executable, *(launcher if world > 1 else []), "-m", *words]


def finish(*commands: Sequence[str], limit: float = LIMIT, **environment: str) -> list[str]:
    """Run commands beside each other; what each said on stdout. None may fail, nor hang."""
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, env=clean_environment(**environment), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for command in commands
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=limit) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, said, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [out for out, _ in said]


def start(worlds: Sequence[tuple[int, Mapping[str, Any]]], folder: Path) -> dict[int, list[Any]]:
    """Do the runs of each world; what each of its ranks got, in order of rank."""
    asked = folder / "worlds.json"
    asked.write_text(json.dumps(worlds))
    limit = LIMIT * (1 + len(worlds))
    finish(torchrun(1, __name__, str(asked), str(folder)), limit=limit)
    return {
        world: [json.loads((folder / f"{world}-{rank}.json").read_text()) for rank in range(world)]
        for world, _ in worlds
    }


def be_rank(rank: int, world: int, port: int, runs: Mapping[str, Any], folder: Path) -> None:
    """What one rank does. A world of one has nothing in its environment."""
    if world > 1:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        os.environ.update({name: str(value) for name, value in (address | ranks).items()})
    with joined("cpu") as met:
        # met once for all runs, since a meeting may take seconds where names are looked up slowly
        api.joined = lambda device: nullcontext(met)
        found = {name: evaluate(**run) for name, run in runs.items()}
    (folder / f"{world}-{rank}.json").write_text(json.dumps(found))


def main() -> None:
    worlds, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for name in IMPORTED:
        import_module(name)
    fork = multiprocessing.get_context("fork")
    for world, runs in worlds:
        port = free_port()
        ranks = [
            fork.Process(target=be_rank, args=(rank, world, port, runs, folder), daemon=True)
            for rank in range(world)
        ]
        for process in ranks:
            process.start()
        deadline = time.monotonic() + LIMIT
        for rank, process in enumerate(ranks):
            process.join(max(0, deadline - time.monotonic()))
            if process.exitcode != 0:  # None while it runs
                sys.exit(f"rank {rank} of {world}: exit code {process.exitcode} within {LIMIT} s")


if __name__ == "__main__":
    main()
