"""Ranks of a run: who does what, how values travel, and how the failure of one ends all.

A run is written once, for any number of ranks: :class:`Ranks` is a world of one process, in which
everything is at hand and nothing communicates; :class:`Group` is one rank of several. No rank ever
blocks inside a collective for one that is late: it asks, several times a second, whether all have
arrived, and learns on the way that another has failed or fallen silent.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from genmetrics.core import errors
from genmetrics.core.device import affinity, cores, resolve_device
from genmetrics.core.errors import GenmetricsError, InputError, RankError, UsageError
from genmetrics.core.threads import all_threads, threads

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

T = TypeVar("T")

SILENCE = 20.0
"""Seconds without a sign of life after which a rank counts as dead."""
_BEAT = 1.0  # seconds between two signs of life
_PATIENCE = 15.0  # seconds a rank that failed waits for the others to have heard of it
_POLL = 0.002, 0.05  # seconds between two questions: at first, and at most


class Claim(NamedTuple):
    """A piece of work that this rank, and no other, does."""

    position: int
    own: bool
    """Whether it was this rank's from the start, and not taken from a slower one."""


class Ranks:
    """A world of one process."""

    rank = 0
    world = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        """Leave; an error is told to the other ranks."""

    @property
    def main(self) -> bool:
        """Whether this is the rank that lists, decides and reports."""
        return self.rank == 0

    @property
    def cores(self) -> int:
        """CPU cores this rank may use while all work."""
        return cores()

    def device(self, asked: str) -> str:
        """Return the device of this rank."""
        return resolve_device(asked)

    def deciding(self) -> ExitStack:
        """Use, for the block, what the main rank alone may use while the others wait."""
        return ExitStack()

    def gather(self, value: T, meanwhile: Callable[[], object] = lambda: None) -> list[T]:
        """Return every rank's value, in order of rank, on every rank.

        ``meanwhile`` is called again and again until the last rank has arrived.
        """
        return [value]

    def share(self, make: Callable[[], T]) -> T:
        """Return what the main rank makes, on every rank."""
        return self.gather(make() if self.main else None)[0]  # type: ignore[return-value]

    def part(self, count: int) -> range:
        """Return this rank's contiguous part of ``count`` things."""
        return _part(count, self.rank, self.world)

    def claims(self, count: int) -> Iterator[Claim]:
        """Yield positions below ``count``; over all ranks, each exactly once.

        A rank takes its own contiguous part first, in order, then what others have not begun.
        """
        return (Claim(position, own=True) for position in range(count))

    def check(self) -> None:
        """Raise if another rank has failed."""

    def flag(self) -> None:
        """Tell all ranks that the run is known to fail."""

    def flagged(self) -> bool:
        """Tell whether some rank has raised the flag."""
        return False

    def tally(self, count: int) -> int:
        """Count ``count`` things as done; return how many all ranks did since the last call."""
        return count


ALONE = Ranks()


class Failure(NamedTuple):
    """What a rank that fails leaves for the others."""

    rank: int
    kind: str
    message: str


class Group(Ranks):
    """One rank of several, on accelerate's process group.

    Objects travel by ``gather_object``, as pickles between the ranks of this run. Everything else
    (claims, signs of life, failures) goes through a key-value store that rank 0 hosts.

    Args:
        device: As in :meth:`Ranks.device`.
        lost: Asked while waiting; returns why a rank cannot answer any more, or an empty string.
    """

    def __init__(self, device: str = "auto", lost: Callable[[], str] = lambda: "") -> None:
        self._lost = lost
        self._owns_group = not _group_exists()
        self._state = _join(device)
        self.rank, self.world = self._state.process_index, self._state.num_processes
        self._store = _open_store(self.rank, self.world)
        self._beats = _Beats(self._store, self.rank, self.world)
        self._step = 0
        self._tallied = 0
        self._heard = False
        self._limits = ExitStack()
        alike = self._alike()
        self._cores, self._threads = max(1, cores() // alike), max(1, all_threads() // alike)

    def _alike(self) -> int:
        """Count the ranks that were given the same cores of the same machine."""
        import socket

        mine = (socket.gethostname(), sorted(affinity()))
        return self.gather(mine).count(mine)

    def __enter__(self) -> Self:
        self._limits.enter_context(threads(self._threads))
        return self

    @property
    def cores(self) -> int:
        """This rank's share of the cores it was given together with others."""
        return self._cores

    def device(self, asked: str) -> str:
        """Return the device accelerate chose for this rank; of CUDA devices, one a rank."""
        found = self._state.device
        if ":" in asked and found.type == "cuda":
            raise UsageError(f"device {asked} is one card for {self.world} ranks; pass cuda")
        if found.type == "cuda" and asked in ("auto", "cuda"):
            return str(found)
        return resolve_device(asked)

    def deciding(self) -> ExitStack:
        """Use all cores: the other ranks sleep, and so the numbers are those of one process."""
        stack = ExitStack()
        stack.enter_context(threads(all_threads()))
        return stack

    def gather(self, value: T, meanwhile: Callable[[], object] = lambda: None) -> list[T]:
        """Return every rank's value once all have arrived."""
        from accelerate.utils import gather_object

        arrived = f"{self._next()}/arrived"
        self._count(arrived, 1)
        self._wait(lambda: self._count(arrived, 0) == self.world, meanwhile)
        try:
            found: list[T] = gather_object([value])
        except RuntimeError as error:  # what gloo and NCCL raise when a rank dies just now
            self.check()
            raise RankError(f"rank {self.rank} lost the others: {_line(error)}") from error
        return found

    def claims(self, count: int) -> Iterator[Claim]:
        """Yield own positions, then those of the next ranks, each counted up in the store."""
        step = self._next()
        for distance in range(self.world):
            owner = (self.rank + distance) % self.world
            part = _part(count, owner, self.world)
            while (taken := self._count(f"{step}/claimed/{owner}", 1)) <= len(part):
                yield Claim(part[taken - 1], own=distance == 0)

    def check(self) -> None:
        """Raise what another rank failed of, with its name in front."""
        if not self._has("failure"):
            return
        rank, kind, message = json.loads(self._ask(lambda: self._store.get("failure")))
        self._heard = True
        raise getattr(errors, kind)(f"rank {rank}: {message}")

    def flag(self) -> None:
        """Raise the flag."""
        self._count("flag", 1)

    def flagged(self) -> bool:
        """Tell whether some rank has raised the flag."""
        return self._has("flag")

    def tally(self, count: int) -> int:
        """Count, and return what all ranks have counted since the last call."""
        before, self._tallied = self._tallied, self._count("tally", count)
        return self._tallied - before

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        """Tell the others what went wrong, and go when they have heard it; rank 0 goes last."""
        self._limits.close()
        failure = None if error is None or self._heard else _describe(self.rank, error)
        try:
            heard = self._part_with(failure, wait=error is not None or self.main)
        except RankError:
            heard = False  # rank 0 is gone, and with it everybody who could be told
        finally:
            self._beats.stop()
            if failure is not None and not self.main and not heard:
                print(f"genmetrics: error: rank {self.rank}: {failure.message}", file=sys.stderr)
            if self._owns_group and error is None:
                # at exit, so that a second run of this process can join again; and never where a
                # rank is gone, because taking a group down may wait for it
                atexit.register(self._state.destroy_process_group)

    def _part_with(self, failure: Failure | None, *, wait: bool) -> bool:
        """Leave word and wait until all are leaving; tells whether they are."""
        if failure is not None:
            self._tell(failure)
        self._count("ended", 1)
        deadline = time.monotonic() + (_PATIENCE if wait else 0)
        while self._count("ended", 0) < self.world:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL[1])
        return True

    def _wait(self, ready: Callable[[], bool], meanwhile: Callable[[], object]) -> None:
        pause, most = _POLL
        while not ready():
            self.check()
            lost = self._lost() or self._beats.silent()
            if lost:
                self._tell(Failure(self.rank, RankError.__name__, lost))
                self.check()
            meanwhile()
            time.sleep(pause)
            pause = min(1.5 * pause, most)

    def _tell(self, failure: Failure) -> None:
        """Leave a failure for the others; the first one stays."""
        self._ask(lambda: self._store.compare_set("failure", "", json.dumps(failure)))

    def _next(self) -> int:
        self._step += 1
        return self._step

    def _count(self, key: str, amount: int) -> int:
        return int(self._ask(lambda: self._store.add(key, amount)))

    def _has(self, key: str) -> bool:
        return bool(self._ask(lambda: self._store.check([key])))

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except RuntimeError as error:
            raise RankError(
                f"rank {self.rank} lost rank 0, which ended or cannot be reached:"
                f" {_line(error)}; run again, what was computed is kept"
            ) from error


class _Beats:
    """Signs of life: one thread a rank that counts, and what the others' counts looked like."""

    def __init__(self, store: TCPStore, rank: int, world: int) -> None:
        self._store, self._rank = store, rank
        self._seen = {other: (0, time.monotonic()) for other in range(world) if other != rank}
        self._asked = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="genmetrics-beat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        store = self._store.clone()  # a connection of its own: the main thread may be in a question
        while not self._over.wait(_BEAT):
            try:
                store.add(f"beat/{self._rank}", 1)
            except RuntimeError:
                return  # rank 0 is gone; the main thread meets that in its own time

    def silent(self) -> str:
        """Say which rank has given no sign for too long."""
        now = time.monotonic()
        if now - self._asked < _BEAT:
            return ""
        self._asked = now
        for other, (count, since) in self._seen.items():
            try:
                found = self._store.add(f"beat/{other}", 0)
            except RuntimeError:
                return ""
            if found != count:
                self._seen[other] = (found, now)
            elif now - since > SILENCE:
                return (
                    f"rank {other} gave no sign of life for {SILENCE:.0f} s: killed, or out of"
                    " memory? run again, what was computed is kept"
                )
        return ""

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join(timeout=5)


def launched_world() -> int:
    """Return the number of ranks a launcher (torchrun, accelerate) started; 1 without one."""
    text = os.environ.get("WORLD_SIZE", "1")
    return int(text) if text.isdecimal() and "RANK" in os.environ else 1


def _part(count: int, rank: int, world: int) -> range:
    return range(rank * count // world, (rank + 1) * count // world)


def _group_exists() -> bool:
    from torch import distributed

    return distributed.is_available() and distributed.is_initialized()


def _join(device: str) -> Any:
    """Join the process group by accelerate's rules."""
    import warnings

    import torch
    from accelerate import PartialState

    cpu = device == "cpu" or not torch.cuda.is_available()
    with warnings.catch_warnings():
        # accelerate divides physical cores among ranks and says so; we divide the usable ones
        warnings.filterwarnings("ignore", message="OMP_NUM_THREADS/MKL_NUM_THREADS unset")
        return PartialState(cpu=cpu)


def _open_store(rank: int, world: int) -> TCPStore:
    """Open the key-value store of the run, on a free port of rank 0's machine."""
    import socket
    from datetime import timedelta

    from accelerate.utils import gather_object
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=2 * SILENCE)
    if rank == 0:
        host = os.environ.get("MASTER_ADDR") or socket.gethostname()
        store = TCPStore(host, 0, world, True, limit, wait_for_workers=False)
        gather_object([(host, store.port)])
        return store
    host, port = gather_object([None])[0]
    return TCPStore(host, port, world, False, limit, wait_for_workers=False)


def _describe(rank: int, error: BaseException) -> Failure:
    name = type(error).__name__
    if isinstance(error, GenmetricsError) and name in vars(errors) and name != "MissingExtraError":
        return Failure(rank, name, str(error))
    if isinstance(error, GenmetricsError):
        return Failure(rank, InputError.__name__, str(error))
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return Failure(rank, RankError.__name__, "it was interrupted")
    return Failure(rank, RankError.__name__, f"{name}: {_line(error)}")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
