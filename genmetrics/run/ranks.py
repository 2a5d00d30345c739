"""Ranks of a run: who does what, how values travel, and how the failure of one ends all.

A run is written once, for any number of ranks: :class:`Ranks` is a world of one process, in which
everything is at hand and nothing communicates; :class:`Group` is one rank of several. No rank ever
blocks inside a collective for one that is late: it asks, several times a second, whether all have
arrived, and learns on the way that another has failed or is gone.
"""

from __future__ import annotations

import atexit
import json
import pickle
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from genmetrics.core import errors
from genmetrics.core.device import affinity, cores, resolve_device
from genmetrics.core.errors import GenmetricsError, InputError, RankError, UsageError, one_line
from genmetrics.core.threads import all_threads, threads
from genmetrics.run.meeting import Lines, Lost, complain, meet, open_store

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

T = TypeVar("T")

_PATIENCE = 10.0  # seconds a rank that leaves waits until the others have heard why
_LAST_WORD = 0.5  # seconds a failed rank leaves to rank 0, which speaks for all, to speak and end
_REAPED = 0.3  # seconds after which a system can tell how a process ended
_ALIKE = "give all ranks the same arguments"
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
        """Use all cores for the block: the other ranks sleep, and every world the same number."""
        stack = ExitStack()
        stack.enter_context(threads(all_threads()))
        return stack

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

    kind: str
    message: str


class Group(Ranks):
    """One rank of several, on torch's process group, with the device accelerate gives it.

    Values travel as pickles between the ranks of this run. Everything else (claims, failures) goes
    through a key-value store that rank 0 hosts. Enter it before anything else.

    Args:
        device: As in :meth:`Ranks.device`.
        lost: Asked while waiting; knows of ranks that ended what their connection does not tell.
    """

    def __init__(
        self, device: str = "auto", lost: Callable[[], Lost | None] = lambda: None
    ) -> None:
        self._asked_device, self._lost = device, lost
        self._store: TCPStore | None = None
        self._lines = Lines({})
        self._owns_group = False
        self._step = 0
        self._tallied = 0
        self._ending = False
        self._heard = False
        self._limits = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._connect()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _connect(self) -> None:
        """Meet the others, and share the cores with those on this machine.

        Raises:
            GenmetricsError: The environment does not say how, or the others do not come.
        """
        from torch import distributed

        if not distributed.is_initialized():
            self._owns_group = True
            self.rank = meet(_backend(self._asked_device), self._lost)
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        self._state = _accelerate_state(self._asked_device)
        self._store, self._lines = open_store(
            self.rank, self.world, lambda value: _exchange(value, self.world)[0]
        )
        mine = (socket.gethostname(), sorted(affinity()))
        alike = self.gather(mine).count(mine)
        self._cores = max(1, cores() // alike)
        self._limits.enter_context(threads(max(1, all_threads() // alike)))

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

    def gather(self, value: T, meanwhile: Callable[[], object] = lambda: None) -> list[T]:
        """Return every rank's value once all have arrived."""
        # pickled before arriving, so that nobody waits in the exchange for one that cannot
        mine = (self._ending, pickle.dumps(value))
        arrived = f"{self._next()}/arrived"
        self._count(arrived, 1)
        self._wait(lambda: self._count(arrived, 0) == self.world, meanwhile)
        try:
            found = _exchange(mine, self.world)
        except RuntimeError as error:  # what gloo and NCCL raise when a rank dies just now
            self.check()
            raise RankError(f"rank {self.rank} lost the others: {one_line(error)}") from error
        if len({ending for ending, _ in found}) > 1:
            done = ", ".join(str(rank) for rank, (ending, _) in enumerate(found) if ending)
            raise UsageError(f"rank {done} has less to do than others; {_ALIKE}")
        return [pickle.loads(data) for _, data in found]

    def claims(self, count: int) -> Iterator[Claim]:
        """Yield own positions, then those of the next ranks, each counted up in the store."""
        step = self._next()
        told = self._ask(lambda s: s.compare_set(f"{step}/count", "", str(count)))
        if int(told) != count:
            raise UsageError(f"{count} pieces of work where another has {int(told)}; {_ALIKE}")
        for distance in range(self.world):
            owner = (self.rank + distance) % self.world
            part = _part(count, owner, self.world)
            while (taken := self._count(f"{step}/claimed/{owner}", 1)) <= len(part):
                yield Claim(part[taken - 1], own=distance == 0)

    def check(self) -> None:
        """Raise what another rank failed of, with its name in front, or that one is gone."""
        if not self._has("failure"):
            lost = self._find_lost()
            if lost is None:
                return
            self._tell(Failure(RankError.__name__, str(lost)))
        kind, message = json.loads(self._ask(lambda s: s.get("failure")))
        self._heard = True
        raise getattr(errors, kind)(message)

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
        """Leave together: when all are done, or when all have heard what went wrong.

        Raises:
            GenmetricsError: Another rank failed after this one was done.
        """
        self._limits.close()
        late = None
        if error is None:
            late = self._wait_for_all()
        self._leave(error or late)
        if self._owns_group and not (error or late):
            # at exit, so that a second run of this process can join again; and never where a
            # rank is gone, because taking a group down may wait for it
            atexit.register(self._state.destroy_process_group)
        if late is not None:
            raise late

    def _wait_for_all(self) -> BaseException | None:
        """Wait until all are done; returns what came between."""
        self._ending = True
        try:
            self.gather(None)
        except BaseException as error:  # it is raised once the others have heard of it
            return error
        return None

    def _leave(self, error: BaseException | None) -> None:
        """Tell the others what went wrong, and go when they have heard it; rank 0 goes last."""
        failure = None if error is None or self._heard else _describe(self.rank, error)
        heard = False
        try:
            if self._store is not None:
                if failure is not None:
                    self._tell(failure)
                heard = self._part_with()
        except RankError:
            pass  # rank 0 is gone, and with it everybody who could be told
        finally:
            self._lines.close(told=error is not None)
        if error is None or self.main:  # so is a rank that has not met the others: its number is 0
            return
        if heard:
            time.sleep(_LAST_WORD)  # a launcher that sees one end ends the others
        elif failure is not None and not self._lines.told:
            complain(failure.message)

    def _part_with(self) -> bool:
        """Say that this rank goes, and wait: rank 0 for all others, they for rank 0."""
        self._count(f"gone/{self.rank}", 1)
        waiting = set(range(1, self.world)) if self.main else {0}
        deadline = time.monotonic() + _PATIENCE
        while waiting and time.monotonic() < deadline:
            waiting = {rank for rank in waiting if not self._has(f"gone/{rank}")}
            waiting -= self._lines.broken()
            time.sleep(_POLL[0])
        return not waiting

    def _wait(self, ready: Callable[[], bool], meanwhile: Callable[[], object]) -> None:
        pause, most = _POLL
        while not ready():
            self.check()
            meanwhile()
            time.sleep(pause)
            pause = min(1.5 * pause, most)

    def _find_lost(self) -> Lost | None:
        """Return a rank that ended, with the reason if whoever started it knows one."""
        lost = self._lost()
        broken = self._lines.broken()
        if lost is None and broken:
            time.sleep(_REAPED)
            lost = self._lost() or Lost(min(broken))
        return lost

    def _tell(self, failure: Failure) -> None:
        """Leave a failure for the others; the first one stays."""
        self._ask(lambda store: store.compare_set("failure", "", json.dumps(failure)))

    def _next(self) -> int:
        self._step += 1
        return self._step

    def _count(self, key: str, amount: int) -> int:
        return int(self._ask(lambda store: store.add(key, amount)))

    def _has(self, key: str) -> bool:
        return bool(self._ask(lambda store: store.check([key])))

    def _ask(self, question: Callable[[TCPStore], T]) -> T:
        assert self._store is not None
        if 0 in self._lines.broken():
            raise RankError(str(Lost(0)))  # before torch tells of it in thirty lines
        try:
            return question(self._store)
        except RuntimeError as error:
            raise RankError(str(Lost(0))) from error


def _part(count: int, rank: int, world: int) -> range:
    return range(rank * count // world, (rank + 1) * count // world)


def _exchange(value: T, world: int) -> list[T]:
    """Exchange values; waits inside C++ for all ranks."""
    from torch import distributed

    found: list[Any] = [None] * world
    distributed.all_gather_object(found, value)
    return found


def _backend(device: str) -> str:
    """Values travel by gloo; NCCL is for what else the process does with its group."""
    import torch

    alone = device == "cpu" or not torch.cuda.is_available()
    return "gloo" if alone else "cpu:gloo,cuda:nccl"


def _accelerate_state(device: str) -> Any:
    """Choose a device by accelerate's rules."""
    import warnings

    import torch
    from accelerate import PartialState

    cpu = device == "cpu" or not torch.cuda.is_available()
    with warnings.catch_warnings():
        # accelerate divides physical cores among ranks and says so; we divide the usable ones
        warnings.filterwarnings("ignore", message="OMP_NUM_THREADS/MKL_NUM_THREADS unset")
        return PartialState(cpu=cpu)


def _describe(rank: int, error: BaseException) -> Failure:
    name = type(error).__name__
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return Failure(RankError.__name__, f"rank {rank}: interrupted")
    if not isinstance(error, GenmetricsError):
        return Failure(RankError.__name__, f"rank {rank}: {name}: {one_line(error)}")
    if name not in vars(errors) or name == "MissingExtraError":
        name = InputError.__name__
    return Failure(name, f"rank {rank}: {error}")
