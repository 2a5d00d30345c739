"""What one rank of a program does that catches the error of a run and goes on.

python -m tests.run.host_target GENERATED FOLDER program|run

Who made the process group: the program, or the run, which leaves it to the program.

FAULT in the environment is ``RANK:WHAT``: what this rank does in its first forward, while the other
ones are in a forward of some seconds. ``leave`` gives up an exchange that all others have entered.
Each rank writes FOLDER/RANK.json: what it caught, and what came afterwards.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed

import genmetrics as gm
from genmetrics.core.errors import GenmetricsError, InputError
from genmetrics.run import exchange, group, meeting
from genmetrics.run.keep import Keeper

from .toys import ToyBrightness, ToyExtractor, ToySpec

FAULT = "FAULT"
PAUSE = 4.0
"""Seconds of the forward during which another rank fails."""


def evaluate(generated: str) -> gm.Report:
    metrics = [ToyBrightness(ToySpec())]
    return gm.evaluate(
        generated, metrics=metrics, cache=False, device="cpu", batch_size=4, distributed=True
    )


def fail(what: str) -> None:
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "interrupt":
        signal.raise_signal(signal.SIGINT)
    raise ValueError("a surprise") if what == "surprise" else InputError("no such picture")


def arm(rank: int, fault: str) -> None:
    """Let the first forward fail, or take its time. The next ones do neither."""
    who, _, what = fault.partition(":")
    sound, keep, swap = ToyExtractor.forward, Keeper.keep, exchange.Exchange.swap

    def forward(self: ToyExtractor, prepared: Any) -> Any:
        ToyExtractor.forward = sound  # type: ignore[method-assign]
        if rank != int(who):
            time.sleep(PAUSE)
        return sound(self, prepared)

    def failing(self: Keeper, *given: Any) -> None:
        """Fail where the error is no sample's: what a model raises would be named and gathered."""
        Keeper.keep = keep  # type: ignore[method-assign]
        if rank == int(who):
            fail(what)
        keep(self, *given)

    def leave(self: exchange.Exchange, *given: Any) -> Any:
        if given[0] is not exchange.Call.GATHER:
            return swap(self, *given)
        exchange.Exchange.swap = swap  # type: ignore[method-assign]
        time.sleep(1)  # the others wait inside C++
        raise KeyboardInterrupt

    if what != "leave":
        ToyExtractor.forward = forward  # type: ignore[method-assign]
        Keeper.keep = failing  # type: ignore[method-assign]
    elif rank == int(who):
        exchange.Exchange.swap = leave  # type: ignore[method-assign]


def caught(generated: str) -> str:
    try:
        evaluate(generated)
    except (GenmetricsError, KeyboardInterrupt, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def main() -> None:
    generated, folder, maker = sys.argv[1:]
    group._PATIENCE = meeting._GRACE = 1.0  # after both the command would end its process
    rank = int(os.environ["RANK"])
    if maker == "program":
        distributed.init_process_group("gloo")
    fault = os.environ[FAULT]
    arm(rank, fault)
    found: dict[str, Any] = {"caught": caught(generated)}
    if not fault.endswith(("kill", "end")):
        total = torch.tensor([rank + 1.0])
        distributed.all_reduce(total)  # the program's own group, in step
        found["sum"] = total.item()
        found["again"] = evaluate(generated)["toy-brightness"].value
        distributed.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
