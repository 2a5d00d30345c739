"""One rank of several: how it meets the others, and how the failure of one ends all."""

from __future__ import annotations

import atexit
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from genmetrics.core import errors
from genmetrics.core.device import affinity, cores, resolve_device
from genmetrics.core.errors import GenmetricsError, InputError, RankError, UsageError, one_line
from genmetrics.core.threads import all_threads, threads
from genmetrics.run.exchange import NOTHING, Call, Data, Exchange, pack
from genmetrics.run.meeting import Lines, Lost, complain, meet, open_store
from genmetrics.run.ranks import Claim, Ranks, part_of

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

T = TypeVar("T")

_PATIENCE = 10.0  # seconds a rank that leaves waits until the others have heard why
_LAST_WORD = 0.5  # seconds a failed rank leaves to rank 0, which speaks for all, to speak and end
_REASON = 3.0  # seconds within which the reason of a connection that broke is known
_REAPED = 0.3  # seconds after which a system can tell how a process ended
_ALIKE = "give all ranks the same arguments"
_POLL = 0.002, 0.05  # seconds between two questions: at first, and at most


class Reason(NamedTuple):
    """Why a rank fails, as it tells the others."""

    kind: str
    message: str


class Group(Ranks):
    """One rank of several, on torch's process group, with the device accelerate gives it.

    Values travel as pickles between the ranks of this run. Everything else (claims, failures) goes
    through a key-value store that rank 0 hosts. Enter it before anything else.

    A rank that fails leaves its reason behind and goes: into the store, and where it is rank 0 into
    the connection of each other rank, which learns it when it next asks for anything.

    Args:
        device: As in :meth:`Ranks.device`.
        lost: Asked while waiting; knows of ranks that ended what their connection does not tell.
        owned: Whether this process exists for the run alone, as the command's does. Then ranks
            leave a failed run together, after rank 0 has spoken for all, and one that does not end
            by itself after rank 0 is ended. Never so in a program that called the library.
    """

    _made_default = False
    """Whether this process has the default group that was made here."""

    def __init__(
        self,
        device: str = "auto",
        lost: Callable[[], Lost | None] = lambda: None,
        *,
        owned: bool = False,
    ) -> None:
        self._asked_device, self._lost, self._owned = device, lost, owned
        self._exchange: Exchange | None = None
        self._store: TCPStore | None = None
        self._lines = Lines({})
        self._step = 0
        self._tallied = 0
        self._heard: Reason | None = None
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
            self.rank = meet(_backend(self._asked_device), self._lost)
            Group._made_default = True
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        try:
            exchange = self._exchange = Exchange(apart=not self._owned)
            self._store, self._lines = open_store(
                self.rank,
                self.world,
                lambda value: exchange.swap(Call.SHARE, pack(value) if self.main else NOTHING),
                force=self._owned,
            )
        except RuntimeError as error:
            raise RankError(
                f"rank {self.rank} of {self.world} could not join the others: {one_line(error)}"
            ) from error
        self._state = _accelerate_state(self._asked_device)
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
        found = self._swap(Call.GATHER, pack(value), meanwhile)
        return [found.get(rank, value) for rank in range(self.world)]

    def gather_to_main(self, value: T, meanwhile: Callable[[], object] = lambda: None) -> list[T]:
        """Return every rank's value, on the main rank, once all have arrived."""
        found = self._swap(Call.TO_MAIN, NOTHING if self.main else pack(value), meanwhile)
        return [found.get(rank, value) for rank in range(self.world)] if self.main else []

    def share(self, make: Callable[[], T]) -> T:
        """Return what the main rank makes; the others wait for it."""
        if not self.main:
            found: T = self._swap(Call.SHARE, NOTHING)[0]
            return found
        made = make()
        self._swap(Call.SHARE, pack(made))
        return made

    def _swap(
        self, call: Call, data: Data, meanwhile: Callable[[], object] = lambda: None
    ) -> dict[int, Any]:
        """Exchange values once all have arrived.

        They are packed before, so that nobody waits in the exchange for one that cannot.
        """
        assert self._exchange is not None
        arrived = f"{self._next()}/arrived"
        self._count(arrived, 1)
        self._wait(lambda: self._count(arrived, 0) == self.world, meanwhile)
        try:
            return self._exchange.swap(call, data)
        except RuntimeError as error:  # what gloo raises when a rank dies or leaves just now
            why = one_line(error)
        deadline = time.monotonic() + _REASON
        while time.monotonic() < deadline:
            self.check()
            time.sleep(_POLL[1])
        raise RankError(f"rank {self.rank} lost the others: {why}")

    def claims(self, count: int) -> Iterator[Claim]:
        """Yield own positions, then those of the next ranks, each counted up in the store."""
        step = self._next()
        told = self._ask(lambda s: s.compare_set(f"{step}/count", "", str(count)))
        if int(told) != count:
            raise UsageError(f"{count} pieces of work where another has {int(told)}; {_ALIKE}")
        for distance in range(self.world):
            owner = (self.rank + distance) % self.world
            part = part_of(count, owner, self.world)
            while (taken := self._count(f"{step}/claimed/{owner}", 1)) <= len(part):
                yield Claim(part[taken - 1], own=distance == 0)

    def check(self) -> None:
        """Raise what another rank failed of, with its name in front, or that one is gone."""
        if self._has("failure"):
            raise self._hear(self._ask(lambda store: store.get("failure")))
        lost = self._find_lost()
        if lost is not None:
            raise self._hear(self._tell(Reason(RankError.__name__, str(lost))))

    def _hear(self, said: str | bytes) -> GenmetricsError:
        """Remember what another rank failed of; returns it."""
        self._heard = failure = Reason(*json.loads(said))
        found: GenmetricsError = getattr(errors, failure.kind)(failure.message)
        return found

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
        """Leave: together when all are done; else when the others can learn what went wrong.

        Raises:
            GenmetricsError: Another rank failed after this one was done.
        """
        self._limits.close()
        late = None
        if error is None:
            late = self._wait_for_all()
        self._leave(error or late)
        if Group._made_default and not (error or late):
            # at exit, so that a second run of this process can join again; and never where a
            # rank is gone, because taking a group down may wait for it
            atexit.register(self._state.destroy_process_group)
            Group._made_default = False
        if late is not None:
            raise late

    def _wait_for_all(self) -> BaseException | None:
        """Wait until all are done; returns what came between."""
        try:
            self._swap(Call.END, NOTHING)
        except BaseException as error:  # it is raised once the others have heard of it
            return error
        return None

    def _leave(self, error: BaseException | None) -> None:
        """Leave behind what went wrong, and go."""
        failure = self._heard or (None if error is None else _describe(self.rank, error))
        said, parted = failure and json.dumps(failure), False
        try:
            if self._store is not None:
                if failure is not None and not self._heard:
                    said = self._tell(failure)
                if error is None or self._owned:
                    parted = self._part_with()
        except GenmetricsError:
            pass  # rank 0 has left, and with it whoever could be told
        finally:
            self._lines.close(said or "")
            if self._exchange is not None:
                self._exchange.close()
            self._store = None
        if error is not None and self._owned and not self.main:
            self._go_after_rank_0(failure, parted=parted)

    def _go_after_rank_0(self, failure: Reason | None, *, parted: bool) -> None:
        """Let rank 0 speak for all; speak where it cannot."""
        if parted:
            time.sleep(_LAST_WORD)  # a launcher that sees one end ends the others
        elif failure is not None and not self._heard and self._lines.said is None:
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

    def _tell(self, failure: Reason) -> str:
        """Leave a failure for the others; the first one stays, and is returned."""
        said = json.dumps(failure)
        return bytes(self._ask(lambda s: s.compare_set("failure", "", said))).decode()

    def _next(self) -> int:
        self._step += 1
        return self._step

    def _count(self, key: str, amount: int) -> int:
        return int(self._ask(lambda store: store.add(key, amount)))

    def _has(self, key: str) -> bool:
        return bool(self._ask(lambda store: store.check([key])))

    def _ask(self, question: Callable[[TCPStore], T]) -> T:
        """Ask the store.

        Raises:
            GenmetricsError: Rank 0 has left: what it said, or that it is gone.
        """
        assert self._store is not None
        self._listen()  # before torch tells in thirty lines that its connection broke
        try:
            return question(self._store)
        except RuntimeError as error:
            self._lines.wait(_REASON)
            self._listen()
            raise RankError(str(Lost(0))) from error

    def _listen(self) -> None:
        """Raise if rank 0 has left."""
        if 0 in self._lines.broken():
            said = self._lines.said
            raise RankError(str(Lost(0))) if said is None else self._hear(said)


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


def _describe(rank: int, error: BaseException) -> Reason:
    name = type(error).__name__
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return Reason(RankError.__name__, f"rank {rank}: interrupted")
    if not isinstance(error, GenmetricsError):
        return Reason(RankError.__name__, f"rank {rank}: {name}: {one_line(error)}")
    if name not in vars(errors) or name == "MissingExtraError":
        name = InputError.__name__
    return Reason(name, f"rank {rank}: {error}")
