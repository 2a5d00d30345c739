"""The benchmark harness measures what it says, and its sides agree with each other."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.lab import Lab, Measurement, Runs, SideError
from benchmarks.suite import Row, Verdict, at_least, at_most
from benchmarks.table import BEGIN, END, render, write_into

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, repeats=3, cores=2)


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_a_process_is_measured_from_outside(lab: Lab) -> None:
    code = (
        "import json, os, time; held = b'x' * (80 << 20); time.sleep(0.2);"
        "print('noise'); print(json.dumps({'value': {round}, 'start': {start},"
        " 'threads': os.environ['OMP_NUM_THREADS']}))"
    )
    found = lab.run("some", "side", 7, python(code))
    assert found.wall > 0.2
    assert found.peak_mib > 80
    assert found.output["value"] == 7
    assert found.output["threads"] == "2"
    assert found.output["start"] > 0


def test_settings_of_the_user_do_not_reach_a_side(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENMETRICS_HOME", "/elsewhere")
    found = lab.run("b", "s", 1, python("import os, json; print(json.dumps(dict(os.environ)))"))
    assert found.output["GENMETRICS_HOME"] == str(lab.folder / "home")


def test_a_failed_side_says_why(lab: Lab) -> None:
    code = "import sys; print('no such weights', file=sys.stderr); sys.exit(3)"
    with pytest.raises(SideError, match=r"b/s ended with 3: .*no such weights"):
        lab.run("b", "s", 1, python(code))
    with pytest.raises(SideError, match="no JSON"):
        lab.run("b", "s", 1, python("print('fine')"))


def test_the_document_of_genmetrics_is_read(lab: Lab) -> None:
    document = {
        "schema": "genmetrics.results/1",
        "metrics": {"fid@clean": {"value": 2.5, "n": 4}},
        "runtime": {"seconds": 1.5},
    }
    found = lab.run("b", "s", 1, python(f"import json; print(json.dumps({document}, indent=2))"))
    assert found.output == {"values": {"fid@clean": 2.5}, "runtime": {"seconds": 1.5}}


def measurement(side: str, number: int, wall: float, **output: float) -> Measurement:
    return Measurement(
        benchmark="b", side=side, round=number, wall=wall, cpu=0.0, peak_mib=1.0, load=0.0,
        output=output,
    )  # fmt: skip


def test_rounds_interleave_and_slow_contenders_leave(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    walls = {"ours": 9.0, "a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}
    monkeypatch.setattr(
        lab, "run", lambda _, side, number, __: measurement(side, number, walls[side])
    )
    runs = lab.rounds("b", dict.fromkeys(walls, ()), contenders=["a", "b", "c", "d"])
    assert {side: len(found) for side, found in runs.by_side.items()} == {
        "ours": 3, "a": 1, "b": 1, "c": 2, "d": 3,
    }  # fmt: skip
    assert len(lab.measurements) == 10


def test_medians_are_of_what_was_seen_or_reported() -> None:
    walls = [(5.0, 0.5), (1.0, 0.1), (2.0, 0.3)]
    runs = Runs({"s": [measurement("s", i, wall, seconds=s) for i, (wall, s) in enumerate(walls)]})
    assert runs.median("s") == 2.0
    assert runs.median("s", "seconds") == 0.3


@pytest.mark.parametrize(
    ("verdict", "passed"),
    [
        (at_least(2.5, 2.5), True),
        (at_least(2.5, 2.49), False),
        (at_most(1.2, 1.2), True),
        (at_most(1.2, 1.21), False),
    ],
)
def test_targets_include_their_edge(verdict: Verdict, passed: bool) -> None:
    assert verdict.passed is passed


@pytest.mark.parametrize(("side", "relative"), [("frechet", 1e-6), ("cmmd", 1e-6), ("prdc", 1e-9)])
def test_our_side_and_the_plain_one_give_the_same_number(side: str, relative: float) -> None:
    from benchmarks.features import SIDES

    ours, make = SIDES[side]
    plain, make_plain = SIDES[f"{side}-plain"]
    assert make is make_plain
    assert ours(*make(200, 16)) == pytest.approx(plain(*make(200, 16)), rel=relative)


def test_peak_memory_of_a_call_is_that_of_the_call() -> None:
    from benchmarks.features import measured

    _, seconds, working = measured(lambda: float(len(b"x" * (64 << 20))))
    assert seconds > 0
    assert working is None or 60 < working < 100


def test_photographs_follow_their_seed(tmp_path: Path) -> None:
    from benchmarks.dataset import write_photos

    for name, seed in (("a", 0), ("again", 0), ("b", 1)):
        write_photos(tmp_path / name, count=3, size=32, seed=seed)
    read = {
        name: [file.read_bytes() for file in sorted((tmp_path / name).iterdir())]
        for name in ("a", "again", "b")
    }
    assert read["a"] == read["again"] != read["b"]
    assert len(set(read["a"])) == 3


def test_the_parent_stays_small() -> None:
    """A child's peak memory starts at that of the process that made it."""
    code = (
        "import sys, benchmarks.__main__;"
        "print(sorted({'torch', 'numpy', 'scipy', 'PIL'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


def results(*rows: Row) -> dict:
    return {
        "machine": {
            "cpu": "A CPU", "cores": 2, "memory_gib": 8.0, "system": "Linux", "python": "3.11",
            "packages": {"torch": "2.9", "clean-fid": None},
        },
        "settings": {"quick": False, "repeats": 5, "threads": 2, "highest_load": 0.2},
        "rows": [asdict(row) for row in rows],
        "failures": ["fid: fid/clean-fid ended with 1: no module"],
    }  # fmt: skip


def test_the_table_says_what_falls_short(tmp_path: Path) -> None:
    rows = [
        Row(benchmark="a", what="one", verdict=at_least(2, 3.0), medians={"x": 1.0, "y": 3.0}),
        Row(benchmark="a", what="two", verdict=at_most(1.2, 1.5), note="because"),
        Row(benchmark="a", what="three", verdict=Verdict(0.5, "half")),
    ]
    table = render(results(*rows))
    assert "| one | at least 2 times faster | 3.00 times | pass |" in table
    assert "| two | at most 1.2 times the time | 1.5 times the time | falls short |" in table
    assert "| three | none | half |  |" in table
    assert "- one: x 1, y 3." in table
    assert "- two: because." in table
    assert "clean-fid None" not in table
    assert "Not measured: fid: fid/clean-fid ended with 1" in table
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_into(page, table)
    write_into(page, table)
    assert page.read_text() == f"before\n{BEGIN}\n{table}{END}\nafter\n"
    page.write_text("no place\n")
    with pytest.raises(ValueError, match="table: begin"):
        write_into(page, table)


def test_the_documentation_shows_the_recorded_run() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    shown = page.split(f"{BEGIN}\n")[1].split(END)[0]
    recorded = ROOT / "benchmarks/results.json"
    if recorded.exists():
        found = json.loads(recorded.read_text())
        assert not found["settings"]["quick"]
        assert shown == render(found)
    else:
        assert shown == "No full run has been recorded yet.\n"


def test_the_gpu_table_says_that_it_needs_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    from benchmarks import gpu

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert gpu.main() == 2
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1
    assert "CUDA" in said.err
    assert said.out == ""


@pytest.mark.slow
def test_a_quick_run_from_start_to_table(
    tmp_path: Path, inception_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "results.json"
    data.mkdir()
    shutil.copy(inception_file, data / "inception.pth")
    words = ["--quick", "--only", "startup", "prdc", "--data", str(data), "--out", str(out)]
    assert main(words) == 0
    table = capsys.readouterr().out
    assert "Quick sizes" in table
    found = json.loads(out.read_text())
    assert {row["benchmark"] for row in found["rows"]} == {"startup", "prdc"}
    assert all(m["wall"] > 0 and m["peak_mib"] > 10 for m in found["measurements"])
    assert main(["--render", str(out)]) == 0
    assert capsys.readouterr().out == table
