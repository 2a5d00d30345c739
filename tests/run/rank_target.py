"""One rank of test_ranks: the command line, with a metric that needs no model and faults on order.

FAULTS in the environment holds words ``RANK:PLACE:WHAT``. PLACE is ``start``, ``forwardN`` (the
N-th forward of the rank), ``store`` (its first file), ``arrived`` (in a gather that all have
reached) or ``end`` (all work is done). In an argument, of ``{A,B}`` rank 0 takes A and rank 1 B.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from genmetrics.cli import output
from genmetrics.cli.main import leave, main
from genmetrics.core.registry import register
from genmetrics.run import evaluate, exchange, launch

from .toys import ToyBrightness, ToyExtractor, ToySpec

MODULE = "tests.run.rank_target"
FAULTS = "FAULTS"
PAUSE = 5.0
"""Seconds of ``stop`` and ``hold``."""


class Toy(ToyBrightness):
    """Mean brightness; ``log`` names every forward, ``mark`` is part of what is computed."""

    id = "toy-ranks"

    def __init__(
        self, device: str = "cpu", log: str | None = None, pause: float = 0.1, mark: str = ""
    ) -> None:
        super().__init__(ToySpec(log=log, pause=pause, fault=mark), device)


class Lost:
    """Its destructor meets a signal, whose exception Python drops there."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


def fail(what: str) -> None:
    """Do what was ordered."""
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stop":
        subprocess.Popen(["sh", "-c", f"sleep {PAUSE}; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "hold":  # unlike CDLL, PyDLL keeps Python's lock while the function runs
        ctypes.PyDLL(None).usleep(int(PAUSE * 1e6))
    elif what == "sleep":
        time.sleep(3600)  # whoever waits for this one waits too long
    elif what in ("SIGINT", "SIGTERM"):
        Lost(getattr(signal, what))
    elif what == "exit":
        sys.exit(3)
    elif what == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    else:
        raise RuntimeError(what)


def after(number: int, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function fail before its ``number``-th call."""
    calls = iter(range(1, 1000))

    def failing(*args: Any, **options: Any) -> Any:
        if next(calls) == number:
            fail(what)
        return function(*args, **options)

    return failing


def arm(place: str, what: str) -> None:
    """Put a fault in its place."""
    if place == "start":
        fail(what)
    elif place.startswith("forward"):
        number = int(place.removeprefix("forward"))
        ToyExtractor.forward = after(number, what, ToyExtractor.forward)  # type: ignore[method-assign]
    elif place == "store":
        # the first is a shard, or what the extractor is, whichever rank writes that
        os.fsync = after(1, what, os.fsync)
    elif place == "arrived":
        swap = after(5, what, exchange.Exchange.swap)
        exchange.Exchange.swap = swap  # type: ignore[method-assign]
    elif place == "end":
        whole = evaluate.evaluate

        def evaluate_all(*args: Any, **options: Any) -> Any:
            reports = whole(*args, **options)
            fail(what)
            return reports

        evaluate.evaluate = evaluate_all
    else:
        raise ValueError(place)


def world(processes: int | None, device: str) -> Any:
    """The world of the command line, except that the other ranks run this module too."""
    return launch.world(processes, device, [sys.executable, "-m", MODULE, *sys.argv[1:]])


def run(arguments: Sequence[str]) -> int:
    """Run the command line as this rank."""
    rank = os.environ.get("RANK", "0")
    for fault in os.environ.get(FAULTS, "").split():
        who, place, what = fault.split(":")
        if who == rank:
            arm(place, what)

    def choose(match: re.Match[str]) -> str:
        return match[1].split(",")[int(rank)]

    own = [re.sub(r"{(.*)}", choose, argument) for argument in arguments]
    return leave(main(own))


if __name__ == "__main__":
    register(Toy)  # here, because the tests that import this file must not know the metric
    output.world = world
    sys.exit(run(sys.argv[1:]))
