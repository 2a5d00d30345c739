"""What one rank of a test does within a program of its own; it writes to FOLDER/RANK.json.

torchrun -m tests.run.joined_target torch|accelerate RUN.json FOLDER

The program's process group is torch's, each rank on a core of its own; or accelerate's, on all.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from genmetrics.core.device import affinity
from genmetrics.run.evaluate import Running, how_to_run
from genmetrics.run.launch import joined
from tests.run.world_target import evaluate


def begin(program: str, rank: int) -> Callable[[], list[int]]:
    """Start the caller's program; returns how its ranks talk to each other."""
    if program == "accelerate":
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True)
        return lambda: accelerator.gather(torch.tensor([rank])).tolist()
    mine = sorted(affinity())
    os.sched_setaffinity(0, {mine[rank % len(mine)]})
    distributed.init_process_group("gloo")

    def talk() -> list[int]:
        found = [torch.zeros(1, dtype=torch.int64) for _ in range(distributed.get_world_size())]
        distributed.all_gather(found, torch.tensor([rank]))
        return [int(each) for each in found]

    return talk


def look() -> dict[str, Any]:
    """How many threads and workers a rank uses, within a world."""
    with joined("cpu") as ranks:
        found = {
            "threads": torch.get_num_threads(),
            "workers": how_to_run(Running(device="cpu"), ranks=ranks).workers,
            "cores": sorted(affinity()),
        }
        with ranks.deciding():
            found["deciding"] = torch.get_num_threads()
    return found


def main() -> None:
    program, run, folder = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), sys.argv[3]
    rank = int(os.environ["RANK"])
    talk = begin(program, rank)
    before = torch.get_num_threads()
    found = {"inside": look(), "reports": [evaluate(**run) for _ in range(2)]}
    found["threads kept"] = torch.get_num_threads() == before
    found["talk"] = talk()  # the group is there, and in step
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()  # without it torch may abort at the end


if __name__ == "__main__":
    main()
