"""Worlds of real processes that the tests of ranks start, and what they leave."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from genmetrics.cli.main import main
from genmetrics.core import registry

from .conftest import write_images
from .rank_target import FAULTS, MODULE, Toy

COUNT, BATCH = 24, 4
PATIENCE = 120.0
"""Seconds that a world may take; torch itself waits ten minutes for a rank that is gone."""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


class End(NamedTuple):
    """How a world ended."""

    codes: list[int]
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[str]:
        """Lines for humans that tell of an error."""
        return [line for line in self.stderr.splitlines() if line.startswith("genmetrics: error")]


class World:
    """Processes that were started, and everything they start."""

    def __init__(
        self, folder: Path, commands: Sequence[Sequence[str]], environments: Sequence[Mapping]
    ) -> None:
        self._mark = f"RANK_TEST={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        inherited = {key: v for key, v in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
        self._streams = folder / "stdout", folder / "stderr"
        with self._streams[0].open("wb") as out, self._streams[1].open("wb") as err:
            self.processes = [
                subprocess.Popen(
                    [sys.executable, *command],
                    env={**inherited, "OMP_NUM_THREADS": "1", name: value, **environment},
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
                for command, environment in zip(commands, environments, strict=True)
            ]

    def end(self) -> End:
        """Wait until all have ended; nothing of what they started is left."""
        codes = [process.wait(timeout=PATIENCE) for process in self.processes]
        deadline = time.monotonic() + 10
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, f"left over: {left}"
        out, err = (stream.read_text() for stream in self._streams)
        return End(codes, out, err)

    def kill(self) -> None:
        """Leave nothing behind, whatever the test found."""
        for process in self.left():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def left(self) -> list[int]:
        """Return the ids of what still runs."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                running = self._mark.encode() in (place / "environ").read_bytes().split(b"\0")
                if running and (place / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append(int(place.name))
        return found


@contextmanager
def started(
    folder: Path, how: str, *arguments: str, faults: str = "", **more: str
) -> Iterator[World]:
    """Start a world of two: by ``--processes``, by torchrun, or rank by rank as srun would."""
    target = ("-m", MODULE, *arguments)
    plain = {FAULTS: faults, **more}
    if how == "processes":
        world = World(folder, [(*target, "--processes", "2")], [plain])
    elif how == "torchrun":
        world = World(folder, [(*TORCHRUN, *target)], [plain])
    else:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = str(found.getsockname()[1])
        address = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ranks = [{**plain, **address, "RANK": str(rank)} for rank in range(2)]
        world = World(folder, [target] * 2, ranks)
    try:
        yield world
    finally:
        world.kill()


def run(folder: Path, how: str, *arguments: str, faults: str = "", **more: str) -> End:
    with started(folder, how, *arguments, faults=faults, **more) as world:
        return world.end()


@pytest.fixture(name="job")
def a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of a run that logs every forward; this process knows the metric meanwhile."""
    monkeypatch.setitem(registry._METRICS, Toy.id, Toy)
    write_images(tmp_path / "gen", COUNT)
    log = tmp_path / "log"
    return [
        *("eval", str(tmp_path / "gen"), "-m", f"toy-ranks:log={log}"),
        *("--cache", str(tmp_path / "cache"), "--batch-size", str(BATCH)),
        *("--device", "cpu", "--workers", "1", "--json", "-q"),
    ]


def document(text: str) -> dict[str, Any]:
    """What may not depend on the world or its history."""
    found = json.loads(text)
    return {key: found[key] for key in ("metrics", "inputs", "skipped", "conversions")}


def forwards(folder: Path) -> int:
    log = folder / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def fresh(folder: Path, job: list[str]) -> list[str]:
    """The same run, with nothing to go on from."""
    return [str(folder / "fresh") if word == str(folder / "cache") else word for word in job]


def require_resume(
    folder: Path, job: list[str], capsys: pytest.CaptureFixture[str], alone: int = 0
) -> None:
    """What the broken run kept and the rest give the bits of a run that never failed.

    Args:
        folder: Where the log of forwards is.
        job: The run.
        capsys: What catches its output.
        alone: How many samples the broken run tried by themselves.
    """
    before = forwards(folder)
    assert 0 < before <= COUNT // BATCH + alone
    assert main(job) == 0
    resumed = capsys.readouterr().out
    # a rank that was killed loses the batch it computed, and the one under way to the disk
    assert 0 < forwards(folder) - before < COUNT // BATCH
    assert main(fresh(folder, job)) == 0
    assert document(resumed) == document(capsys.readouterr().out)


def wait_for_forwards(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 30
    while forwards(folder) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
