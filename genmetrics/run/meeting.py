"""How the ranks of a run meet, and how one notices that another is gone."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from genmetrics.core.errors import RankError, UsageError, one_line
from genmetrics.run.exchange import LIMIT

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

STARTER = "GENMETRICS_RANK_0"
"""Environment variable: the process id of the rank 0 that started this one."""
MEETING = 600.0
"""Seconds the first rank waits for the last one to start."""
SILENCE = 20.0
"""Seconds after which a machine that does not answer any more counts as gone."""
_GRACE = 10.0  # seconds a rank has to end by itself once rank 0 is gone
_POLL = 0.05


class Lost(NamedTuple):
    """A rank that is gone, and what is known of it."""

    rank: int
    why: str = "killed, or out of memory?"

    def __str__(self) -> str:
        return f"rank {self.rank} is gone ({self.why}); run again, what was computed is kept"


class Address(NamedTuple):
    """What a launcher tells a rank in its environment."""

    host: str
    port: int
    rank: int
    world: int


def launched_world() -> int:
    """Return the number of ranks a launcher (torchrun, accelerate) started; 1 without one.

    Clusters set WORLD_SIZE in shells where nothing was launched; a rank has a number.
    """
    text = os.environ.get("WORLD_SIZE", "1")
    return int(text) if text.isdecimal() and "RANK" in os.environ else 1


def have_met() -> bool:
    """Tell whether this process is one of a world whose ranks hear each other."""
    distributed = sys.modules.get("torch.distributed")
    return bool(getattr(distributed, "is_initialized", bool)())


def read_address() -> Address:
    """Read where and as which rank to meet the others.

    Raises:
        UsageError: A variable is missing or cannot be right.
    """
    numbers = []
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        text = os.environ.get(name) or "29500" * (name == "MASTER_PORT")
        if not text.isdecimal():
            raise UsageError(f"{name} is {text!r} in the environment; it must be a whole number")
        numbers.append(int(text))
    rank, world, port = numbers
    host = os.environ.get("MASTER_ADDR", "")
    if not host:
        raise UsageError(
            f"RANK={rank} and WORLD_SIZE={world} are in the environment without MASTER_ADDR; set it"
            " to the machine of rank 0, or unset RANK to run alone"
        )
    if rank >= world:
        raise UsageError(
            f"RANK is {rank} and WORLD_SIZE {world} in the environment; ranks count from 0"
        )
    return Address(host, port, rank, world)


def meet(backend: str, lost: Callable[[], Lost | None]) -> int:
    """Make torch's default process group, once all ranks have arrived; returns this rank.

    torch's own meeting waits for up to half an hour inside C++, where neither Ctrl-C nor the end of
    another rank reaches it. Here nobody enters before all are there.

    Raises:
        UsageError: The environment does not say where to meet.
        RankError: The others do not come, or one of them ended.
    """
    from torch import distributed
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    host, port, rank, world = address = read_address()
    # torchrun's agent hosts the store itself; a restarted world must not meet the one before
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if agent or rank > 0:
        # asked first, because torch warns of every connection that is refused
        _until(lambda: _answers(host, port), address, lost)
    limit = timedelta(seconds=2 * SILENCE)
    try:
        opened = TCPStore(host, port, world, rank == 0 and not agent, limit, wait_for_workers=False)
        store = PrefixStore(f"genmetrics/{attempt}", opened)
        store.add("met", 1)
        _until(lambda: store.add("met", 0) >= world, address, lost)
        if "LOCAL_RANK" not in os.environ:  # accelerate needs it to tell the cards of a machine
            local = store.add(f"on/{socket.gethostname()}", 1) - 1
            os.environ["LOCAL_RANK"] = os.environ.get("SLURM_LOCALID", str(local))
        distributed.init_process_group(
            backend, store=store, rank=rank, world_size=world, timeout=LIMIT
        )
    except RuntimeError as error:
        raise RankError(
            f"rank {rank} of {world} could not meet the others at {host}:{port}: {one_line(error)}"
        ) from error
    return rank


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=SILENCE).close()
    except OSError:
        return False
    return True


def _until(ready: Callable[[], bool], address: Address, lost: Callable[[], Lost | None]) -> None:
    started = time.monotonic()
    deadline, told = started + MEETING, False
    while not ready():
        if not told and time.monotonic() > started + SILENCE:
            told = True
            where = f"{address.host}:{address.port}"
            say(f"rank {address.rank} waits at {where} for all {address.world} ranks to start")
        gone = lost()
        if gone is not None:
            raise RankError(str(gone))
        if time.monotonic() > deadline:
            host, port, rank, world = address
            raise RankError(
                f"rank {rank} waited {MEETING:.0f} s at {host}:{port} for all {world} ranks; start"
                " them together, with the same MASTER_ADDR and MASTER_PORT"
            )
        time.sleep(_POLL)


def open_store(
    rank: int, world: int, share: Callable[[object], Mapping[int, Any]], *, force: bool
) -> tuple[TCPStore, Lines]:
    """Open a key-value store of the run's own, and lines, on free ports of rank 0's machine.

    Args:
        rank: This one.
        world: Number of ranks.
        share: Returns on every other rank, under 0, what rank 0 passes.
        force: As :class:`Lines` takes it.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=2 * SILENCE)
    if rank == 0:
        host = os.environ.get("MASTER_ADDR") or socket.gethostname()
        store = TCPStore(host, 0, world, True, limit, wait_for_workers=False)
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        with socket.create_server(("", 0), family=family, dualstack_ipv6=both) as server:
            share((host, store.port, server.getsockname()[1]))
            return store, Lines(_accept(server, world - 1))
    host, port, line = share(None)[0]
    store = TCPStore(host, port, world, False, limit, wait_for_workers=False)
    try:
        connection = socket.create_connection((host, line), timeout=SILENCE)
        connection.sendall(rank.to_bytes(4))
    except OSError as error:
        raise RankError(f"rank {rank} cannot reach rank 0 at {host}:{line}: {error}") from error
    return store, Lines({0: connection}, own=rank, force=force)


def _accept(server: socket.socket, count: int) -> dict[int, socket.socket]:
    lines: dict[int, socket.socket] = {}
    server.settimeout(SILENCE)
    try:
        while len(lines) < count:
            line, _ = server.accept()
            line.settimeout(SILENCE)
            rank = int.from_bytes(line.recv(4))
            if 0 < rank <= count:  # else a stranger
                lines[rank] = line
    except OSError as error:
        raise RankError(f"{count - len(lines)} of {count} ranks do not reach rank 0") from error
    return lines


class Lines:
    """A connection from each rank to rank 0: it breaks when one of the two is gone.

    The kernel breaks it: at once where a process ended, after :data:`SILENCE` where a machine does
    not answer. So a rank is never taken for dead because it computes, keeps Python's lock, or is
    stopped for a while. Nothing is said but the last word of a rank 0 that fails: it waits at the
    other end until it is asked for, also when the process that said it is long gone.

    Args:
        lines: The connections of this rank, by the rank at the other end.
        own: This rank.
        force: End this process some time after rank 0 if it does not end by itself.
    """

    def __init__(
        self, lines: dict[int, socket.socket], own: int = 0, *, force: bool = False
    ) -> None:
        self._lines, self._own = lines, own
        self._broken: set[int] = set()
        self._heard = b""
        self._left = threading.Event()
        for line in lines.values():
            _keep_alive(line)
            line.setblocking(False)
        self._thread = threading.Thread(target=self._watch, name="genmetrics-line", daemon=True)
        if force and own > 0:
            self._thread.start()

    def broken(self) -> set[int]:
        """Return the ranks at the other ends that are gone."""
        for rank in self._lines.keys() - self._broken:
            if self._ended(self._lines[rank]):
                self._broken.add(rank)
        return self._broken

    @property
    def said(self) -> str | None:
        """What rank 0 said before it left, once its line is broken; None if it was cut short."""
        return self._heard[:-1].decode() if self._heard.endswith(b"\n") else None

    def wait(self, seconds: float) -> None:
        """Wait until rank 0 is known to be gone, no longer than this."""
        deadline = time.monotonic() + seconds
        while 0 in self._lines.keys() - self.broken() and time.monotonic() < deadline:
            time.sleep(_POLL)

    def close(self, last_word: str = "") -> None:
        """Break the lines from this end; rank 0 may say why."""
        self._left.set()
        for line in self._lines.values():
            with contextlib.suppress(OSError):  # the other end was faster
                if last_word and self._own == 0:
                    line.settimeout(1)
                    line.sendall(f"{last_word}\n".encode())
                line.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(timeout=1)  # it has nothing left to wait for
        for line in self._lines.values():
            line.close()

    def _ended(self, line: socket.socket) -> bool:
        try:
            while said := line.recv(4096):
                self._heard += said
        except BlockingIOError:
            return False
        except OSError:  # reset, or no answer
            pass
        return True

    def _watch(self) -> None:
        """End this process some time after rank 0.

        It may be in a long forward pass, or wait inside C++ for what a dead machine never sends.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._lines[0], selectors.EVENT_READ)
            selector.select()
        if not self._left.wait(_GRACE):
            self.broken()
            if self.said is None:
                complain(f"rank {self._own}: {Lost(0)}")
            os._exit(1)


def _keep_alive(line: socket.socket) -> None:
    """Let the kernel ask an idle connection four times, and break it if nothing comes back."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("IDLE", SILENCE / 4), ("INTVL", SILENCE / 4), ("CNT", 3)):
        option = getattr(socket, f"TCP_KEEP{name}", None)  # not every system has all three
        if option is not None:
            line.setsockopt(socket.IPPROTO_TCP, option, max(1, int(value)))


def complain(message: str) -> None:
    """Write the error of a rank for which nobody else speaks."""
    say(f"error: {message}")


def say(message: str) -> None:
    """Write a line to stderr."""
    with contextlib.suppress(OSError):
        print(f"genmetrics: {message}", file=sys.stderr, flush=True)
