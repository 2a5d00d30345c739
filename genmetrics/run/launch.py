"""Worlds of a run: alone, a launcher's, or started here."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from genmetrics.core.device import cores
from genmetrics.core.errors import UsageError
from genmetrics.run.group import Group
from genmetrics.run.meeting import STARTER, Lost, launched_world
from genmetrics.run.ranks import ALONE, Ranks

_GRACE = 12.0  # seconds started ranks have to end by themselves
_CROWD = 4  # ranks a core; each holds its own copy of the models
_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def world(processes: int | None, device: str, command: Sequence[str]) -> Iterator[Ranks]:
    """Enter the world this process belongs to, and exists for: it ends when the world does.

    Args:
        processes: Ranks to run on this machine; None is one, or what a launcher started.
        device: As a run takes it.
        command: What the other ranks run, this process being rank 0.

    Raises:
        UsageError: A launcher started another number of ranks, or there are far too many.
    """
    # torch's C++ adds thirty lines of stack to every connection that ends
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    launched = launched_world()
    if launched > 1 or "TORCHELASTIC_RUN_ID" in os.environ:
        if processes not in (None, launched):
            raise UsageError(
                f"--processes {processes} inside a launcher that started {launched}; drop it"
            )
        with Group(device, _lost_starter, owned=True) if launched > 1 else ALONE as ranks:
            yield ranks
    elif processes in (None, 1):
        yield ALONE
    else:
        assert processes is not None
        if processes > _CROWD * cores():
            raise UsageError(f"--processes {processes} on {cores()} cores; pass one a core or card")
        with (
            _Started(processes, command) as others,
            Group(device, others.lost, owned=True) as ranks,
        ):
            others.met = True
            yield ranks


def joined(device: str) -> Ranks:
    """Return the world that a launcher or the caller's own process group made; one without.

    It never ends this process, which is the caller's: whatever happens becomes an error.
    """
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return Group(device) if distributed.get_world_size() > 1 else ALONE
    return Group(device) if launched_world() > 1 else ALONE


def _lost_starter() -> Lost | None:
    """Tell whether the process that started this one is gone: it is nobody's child then."""
    starter = os.environ.get(STARTER)
    return None if starter is None or int(starter) == os.getppid() else Lost(0)


class _Started:
    """Ranks 1 and up of a world of which this process is rank 0."""

    def __init__(self, world: int, command: Sequence[str]) -> None:
        self.met = False
        """Whether all ranks have met, so that each hears of the end of others."""
        self._world, self._command = world, command
        self._before = {name: os.environ.get(name) for name in _NAMES}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        world = str(self._world)
        values = ("0", "0", world, world, "127.0.0.1", str(_free_port()))
        os.environ.update(zip(_NAMES, values, strict=True))
        try:
            for rank in range(1, self._world):
                self._processes[rank] = self._start(rank)
        except BaseException as error:
            self.__exit__()
            if isinstance(error, OSError):
                raise UsageError(
                    f"rank {rank} of {self._world} cannot be started: {error.strerror}; pass a"
                    " smaller --processes"
                ) from error
            raise
        return self

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), STARTER: str(os.getpid())}
        return subprocess.Popen(
            list(self._command),
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # an interrupt reaches rank 0 alone, which tells the others
            start_new_session=True,
        )

    def __exit__(self, *error: object) -> None:
        """Wait for the others to end, and end those that do not."""
        deadline = time.monotonic() + (_GRACE if self.met else 0)
        try:
            while time.monotonic() < deadline and None in self._codes():
                time.sleep(0.02)
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()
            for name, value in self._before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def lost(self) -> Lost | None:
        """Say which rank has ended, and how."""
        for rank, code in zip(self._processes, self._codes(), strict=True):
            if code is not None:
                how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
                return Lost(rank, how)
        return None

    def _codes(self) -> list[int | None]:
        return [process.poll() for process in self._processes.values()]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
