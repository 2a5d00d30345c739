"""The benchmark of several ranks: its arithmetic, and its uneven samples on real ranks."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.dataset import write_photos
from benchmarks.lab import Command, Lab, Measurement, Runs
from benchmarks.ranks import DEAR, costs, ranks, static_split
from benchmarks.rows import QUICK, Row
from benchmarks.uneven import Call, idle_share

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_quarter_costs_ten_times_as_much(where: str) -> None:
    each = costs(8, 26.0, where)
    slow = each[:2] if where == "first" else each[-2:]
    assert sum(each) == pytest.approx(26)
    assert sorted(each)[-2:] == slow
    assert max(each) / min(each) == pytest.approx(DEAR)
    # two slow ones and two others on one side, four others on the other
    assert static_split(each) == pytest.approx(22)


def test_idle_is_what_no_model_used() -> None:
    busy = [Call(10, 11), Call(11, 14)]
    assert idle_share([busy, [Call(10, 14)]]) == 0
    assert idle_share([busy, [Call(10, 12)]]) == 0.25
    assert idle_share([busy, []]) == 0.5


class Imagined(Lab):
    """Measures nothing; knows what every side takes."""

    def __init__(self, folder: Path, values: Mapping[str, float]) -> None:
        super().__init__(folder, repeats=1, cores=2)
        self.values = values
        self.commands: dict[str, Command] = {}

    def photos(self, count: int, size: int, seed: int, blur: float = 0.0) -> Path:
        return self.folder / f"{count}-{size}-{seed}-{blur:g}"

    def inception(self) -> Path:
        return self.folder / "inception.pth"

    def rounds(self, benchmark, sides, *, repeats=None, contenders=()) -> Runs:
        found = {}
        for side, command in sides.items():
            self.commands[f"{benchmark}/{side}"] = command
            output = {"seconds": self.values["uneven"], "idle": 0.125}
            output["values"] = {"m": self.values[f"value {side}"]}
            found[side] = [
                Measurement(
                    benchmark=benchmark, side=side, round=1, wall=self.values[side], cpu=0.0,
                    peak_mib=1.0, load=0.0, output=output,
                )
            ]  # fmt: skip
        return Runs(found)


def rows_of(lab: Imagined) -> list[Row]:
    return list(ranks(lab, QUICK))


GOOD = {
    "1 rank": 10.0, "2 ranks": 11.0, "value 1 rank": 2.5, "value 2 ranks": 2.5,
    "two ranks": 4.0, "uneven": 1.1, "value two ranks": 0.0,
}  # fmt: skip


def test_two_ranks_are_set_against_one_and_against_half_of_the_work(tmp_path: Path) -> None:
    lab = Imagined(tmp_path, GOOD)
    rows = rows_of(lab)
    assert len(rows) == 6
    assert all(row.verdict.passed for row in rows)
    assert rows[0].verdict.ratio == pytest.approx(1.1)
    assert rows[4].verdict.ratio == pytest.approx(1.1)  # against half of two seconds
    assert rows[4].medians["fixed halves"] == pytest.approx(2 * 22 / 26)
    assert "12.5% of the ranks' time" in rows[4].note
    command = lab.commands["ranks-fd-lite/2 ranks"]
    assert list(command[-3:]) == ["--no-cache", "--processes", "2"]


@pytest.mark.parametrize(
    ("worse", "row"),
    [({"2 ranks": 11.1}, 0), ({"value 2 ranks": math.nextafter(2.5, 3)}, 1), ({"uneven": 1.16}, 4)],
)
def test_what_falls_short_is_said(tmp_path: Path, worse: dict[str, float], row: int) -> None:
    rows = rows_of(Imagined(tmp_path, GOOD | worse))
    assert not rows[row].verdict.passed


@pytest.mark.slow
def test_ranks_share_uneven_samples(tmp_path: Path) -> None:
    """Fixed halves would take 1.7 times the ideal, and a rank would do half of the batches."""
    write_photos(tmp_path / "photos", count=64, size=16, seed=0)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "benchmarks.uneven", str(tmp_path / "photos"),
         "--seconds", "3", "--where", "first"],
        capture_output=True, text=True, timeout=100, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["n"] == 64
    assert sum(found["calls"]) == 16
    assert found["calls"][1] > 8  # the second rank took over what the first had not begun
    assert found["idle"] < 0.35  # of fixed halves 0.41; of one rank alone 0.5
