"""Worlds of a run: alone, a launcher's, or started here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from genmetrics.core.errors import UsageError
from genmetrics.run.ranks import ALONE, Group, Ranks, launched_world

_GRACE = 20.0  # seconds started ranks have to end by themselves


@contextmanager
def world(processes: int | None, device: str, command: Sequence[str]) -> Iterator[Ranks]:
    """Enter the world this process belongs to.

    Args:
        processes: Ranks to run on this machine; None is one, or what a launcher started.
        device: As a run takes it.
        command: What the other ranks run, this process being rank 0.

    Raises:
        UsageError: A launcher started another number of ranks.
    """
    launched = launched_world()
    if launched > 1 or "TORCHELASTIC_RUN_ID" in os.environ:
        if processes not in (None, launched):
            raise UsageError(
                f"--processes {processes} inside a launcher that started {launched}; drop it"
            )
        with Group(device) if launched > 1 else ALONE as ranks:
            yield ranks
    elif processes in (None, 1):
        yield ALONE
    else:
        assert processes is not None
        with _Started(processes, command) as others, Group(device, others.lost) as ranks:
            others.joined.set()
            yield ranks


def joined(device: str) -> Ranks:
    """Return the world that a launcher or the caller's own process group made; one without."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return Group(device) if distributed.get_world_size() > 1 else ALONE
    return Group(device) if launched_world() > 1 else ALONE


class _Started:
    """Ranks 1 and up of a world of which this process is rank 0."""

    def __init__(self, world: int, command: Sequence[str]) -> None:
        self.joined = threading.Event()
        """Set once all ranks have met."""
        address = {
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
        }
        os.environ.update(address, RANK="0", LOCAL_RANK="0")
        self._processes = {
            rank: subprocess.Popen(
                list(command),
                env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # an interrupt reaches rank 0 alone, which tells the others
                start_new_session=True,
            )
            for rank in range(1, world)
        }
        threading.Thread(target=self._watch_start, daemon=True).start()

    def __enter__(self) -> _Started:
        return self

    def __exit__(self, *error: object) -> None:
        """Wait for the others to end, and end those that do not."""
        for process in self._processes.values():
            try:
                process.wait(timeout=_GRACE if self.joined.is_set() else 0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK"):
            os.environ.pop(name, None)
        os.environ.pop("LOCAL_RANK", None)

    def lost(self) -> str:
        """Say which rank has ended while the others wait for it."""
        for rank, process in self._processes.items():
            code = process.poll()
            if code is not None:
                how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                return f"rank {rank} {how}; run again, what was computed is kept"
        return ""

    def _watch_start(self) -> None:
        """End this process if another dies before all have met: the meeting would wait for it."""
        while not self.joined.wait(0.2):
            lost = self.lost()
            if lost:
                print(f"genmetrics: error: {lost}", file=sys.stderr, flush=True)
                for process in self._processes.values():
                    process.kill()
                os._exit(1)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
