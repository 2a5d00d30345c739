"""A run inside somebody's program ends as an error, whatever happens, and the program goes on.

Retold here: rank 0 caught the error of a run and trained on; rank 1 was in a long forward pass, and
twenty seconds later its process was ended without a word.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import genmetrics as gm

from .conftest import write_images
from .host_target import FAULT
from .toys import ToyBrightness, ToySpec
from .world_target import ROOT, clean_environment, finish, free_port, torchrun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TARGET = "tests.run.host_target"


def evaluate_alone(generated: Path) -> float | None:
    report = gm.evaluate(generated, metrics=ToyBrightness(ToySpec()), cache=False, device="cpu")
    return report["toy-brightness"].value


def outcome(folder: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{rank}.json").read_text())
    return found


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("0:error run", ["InputError: no such picture", "InputError: rank 0: no such picture"]),
        ("0:error", ["InputError: no such picture", "InputError: rank 0: no such picture"]),
        ("1:error", ["InputError: rank 1: no such picture", "InputError: no such picture"]),
        ("0:surprise", ["ValueError: a surprise", "RankError: rank 0: ValueError: a surprise"]),
        ("0:interrupt", ["KeyboardInterrupt: ", "RankError: rank 0: interrupted"]),
        ("0:leave", ["KeyboardInterrupt: ", "RankError: rank 0: interrupted"]),
        ("1:leave", ["RankError: rank 1: interrupted", "KeyboardInterrupt: "]),
    ],
)
def test_each_rank_of_a_program_catches_the_error_and_goes_on(tmp_path, fault, said):
    """One is in a long forward, or inside the exchange; afterwards they talk and run again."""
    generated = write_images(tmp_path / "gen", 13)
    fault, _, maker = fault.partition(" ")
    words = (str(generated), str(tmp_path), maker or "program")
    finish(torchrun(2, TARGET, *words), **{FAULT: fault})
    found = [outcome(tmp_path, rank) for rank in range(2)]
    assert [each["caught"] for each in found] == said
    assert [each["sum"] for each in found] == [3.0, 3.0]
    assert [each["again"] for each in found] == [evaluate_alone(generated)] * 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("0:kill", "RankError: rank 0 is gone (killed, or out of memory?)"),
        ("1:kill", "RankError: rank 1 is gone (killed, or out of memory?)"),
        ("0:end", "InputError: rank 0: no such picture"),
        ("1:end", "InputError: rank 1: no such picture"),
    ],
)
def test_a_rank_learns_why_another_process_ended_meanwhile(tmp_path, fault, said):
    generated = write_images(tmp_path / "gen", 13)
    address = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", TARGET, str(generated), str(tmp_path), "program"],
            cwd=ROOT,
            env=clean_environment(**address, **{"RANK": str(rank), FAULT: fault}),
        )
        for rank in range(2)
    ]
    try:
        codes = [rank.wait(timeout=60) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    other = 1 - int(fault[0])
    assert codes[other] == 0
    assert codes[1 - other] == (-signal.SIGKILL if fault.endswith("kill") else 0)
    assert outcome(tmp_path, other)["caught"].startswith(said)
