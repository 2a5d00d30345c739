"""The benchmark harness measures what it says, and its sides agree with each other."""

from __future__ import annotations

import json
import mmap
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import genmetrics as gm
from benchmarks import machine, suite
from benchmarks.__main__ import main
from benchmarks.lab import Lab, Measurement, Runs, SideError
from benchmarks.rows import Row, Sizes, Verdict, at_least, at_most
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

    def call() -> float:
        with mmap.mmap(-1, 64 << 20) as fresh:  # an object might get memory that is held already
            fresh[::1024] = b"x" * (64 << 10)
            return float(len(fresh))

    _, seconds, working = measured(call)
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


def one_record(*rows: Row, failure: str | None = None) -> dict:
    return {
        "measured": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789",
        "machine": {
            "cpu": "A CPU", "cores": 2, "memory_gib": 8.0, "system": "Linux", "python": "3.11",
            "packages": {"torch": "2.9", "clean-fid": None},
        },
        "settings": {"repeats": 5, "threads": 2, "highest_load": 0.2},
        "rows": [asdict(row) for row in rows],
        "failure": failure,
    }  # fmt: skip


def results(**records: dict) -> dict:
    return {"quick": False, "benchmarks": records}


def test_the_table_says_what_falls_short(tmp_path: Path) -> None:
    rows = [
        Row(benchmark="a", what="one", verdict=at_least(2, 3.0), medians={"x": 1.0, "y": 3.0}),
        Row(benchmark="a", what="two", verdict=at_most(1.2, 1.5), note="because"),
        Row(benchmark="a", what="three", verdict=Verdict(0.5, "half")),
    ]
    failed = one_record(failure="fid/clean-fid ended with 1: no module")
    table = render(results(a=one_record(*rows), fid=failed))
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


def test_facts_that_differ_name_their_benchmarks() -> None:
    old, new, newer = one_record(), one_record(), one_record()
    new["measured"], newer["measured"] = "2026-01-03T01:00:00+00:00", "2026-01-03T09:00:00+00:00"
    new["settings"] = {**new["settings"], "highest_load": 1.5}
    table = render(results(old=old, new=new, newer=newer))
    assert "old: Measured 2026-01-02 at commit 0123456789, medians of 5 rounds." in table
    assert "new, newer: Measured 2026-01-03 at commit 0123456789" in table
    assert "\nA CPU, 2 cores" in table  # the same for all, so said once
    assert "at most 1.5 (new)" in table


# -- files of results ------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Replaces the benchmarks by three that only count; ``broken`` fails while it is told to."""
    calls = {"one": 0, "broken": 0, "two": 0}

    def benchmark(name: str):
        def run(lab: Lab, sizes: Sizes):
            calls[name] += 1
            if name == "broken" and calls[name] == 1:
                raise SideError("broken/side ended with 1: no module")
            yield Row(benchmark=name, what=f"{name} {calls[name]}", verdict=at_most(1, 0.5))

        return run

    for name in list(suite.BENCHMARKS):
        monkeypatch.delitem(suite.BENCHMARKS, name)
    for name in calls:
        monkeypatch.setitem(suite.BENCHMARKS, name, benchmark(name))
    return calls


def test_a_file_of_results_is_continued(tmp_path: Path, counted: dict[str, int]) -> None:
    out, data = tmp_path / "r.json", str(tmp_path / "data")

    def run(*words: str) -> tuple[int, dict]:
        code = main(["--out", str(out), "--data", data, *words])
        return code, json.loads(out.read_text())["benchmarks"]

    code, found = run("--only", "two")
    assert (code, list(found), counted) == (0, ["two"], {"one": 0, "broken": 0, "two": 1})
    kept = found["two"]
    # what is missing is measured, and listed in the order of the suite
    code, found = run()
    assert (code, list(found), counted) == (
        1, ["one", "broken", "two"], {"one": 1, "broken": 1, "two": 1},
    )  # fmt: skip
    assert found["two"] == kept
    assert found["broken"]["rows"] == []
    assert found["broken"]["failure"] == "broken/side ended with 1: no module"
    # what failed counts as missing
    code, found = run()
    assert (code, counted) == (0, {"one": 1, "broken": 2, "two": 1})
    assert found["broken"]["failure"] is None
    # what is named is measured again, and nothing else
    code, found = run("--only", "two")
    assert (code, counted) == (0, {"one": 1, "broken": 2, "two": 2})
    assert found["two"]["rows"][0]["what"] == "two 2"
    assert run()[0] == 0
    assert counted == {"one": 1, "broken": 2, "two": 2}


def test_each_record_says_what_it_was_measured_on(tmp_path: Path, counted: dict[str, int]) -> None:
    out = tmp_path / "r.json"
    main(["--out", str(out), "--data", str(tmp_path / "data"), "--repeats", "2", "--only", "one"])
    found = json.loads(out.read_text())["benchmarks"]["one"]
    assert found["settings"]["repeats"] == 2
    assert found["settings"]["sizes"]["photos"] == 384
    assert found["machine"]["packages"]["genmetrics"]
    assert found["measured"].endswith("+00:00")
    assert found["measurements"] == []


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"rev-parse": "0123456789", "status": ""}, "0123456789"),
        ({"rev-parse": "0123456789", "status": "M genmetrics/api.py"}, "0123456789 with changes"),
        ({}, None),
    ],
)
def test_a_commit_counts_only_while_the_code_is_that_of_it(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, str], said: str | None
) -> None:
    def git(command: str, *_: str) -> str:
        if not answers:
            raise FileNotFoundError("git")
        return answers[command]

    monkeypatch.setattr(machine, "_git", git)
    assert machine.commit() == said


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ('{"schema": "genmetrics.benchmarks/1", "rows": []}', "has the schema"),
        ('{"schema": "genmetrics.benchmarks/2", "quick": true, "benchmarks": {}}', "quick sizes"),
        ("[]", "no file of results"),
        ("not JSON", "no file of results"),
    ],
)
def test_a_file_that_cannot_be_continued_is_left_alone(
    tmp_path: Path, counted: dict[str, int], held: str, reason: str, capsys
) -> None:
    out = tmp_path / "r.json"
    out.write_text(held)
    assert main(["--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert len(said.splitlines()) == 1
    assert out.read_text() == held
    assert set(counted.values()) == {0}


def test_rendering_a_file_that_is_not_there_is_one_line(tmp_path: Path, capsys) -> None:
    assert main(["--render", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"benchmarks: {tmp_path / 'none.json'} is no file; give one of --out"
    ]


# -- scores of single images -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Images, and what they were before they were blurred."""
    from benchmarks.dataset import write_photos

    folder = tmp_path_factory.mktemp("photos")
    for name, blur in (("images", 1.0), ("references", 0.0)):
        write_photos(folder / name, count=3, size=64, seed=0, blur=blur)
    return folder / "images", folder / "references"


@pytest.mark.filterwarnings("ignore")  # what torchmetrics and its dependencies say
def test_ssim_is_torchmetrics_map_without_its_rim(photos: tuple[Path, Path]) -> None:
    from benchmarks.peers_per_image import Task, ssim, ssim_inside

    images, references = map(str, photos)
    task = Task(images, references, model=None, batch=2, workers=0)
    report = gm.evaluate(images, pair_with=references, metrics=["ssim"], cache=False, device="cpu")
    assert report["ssim"].value == pytest.approx(ssim_inside(task)(), rel=1e-5)
    assert abs(ssim(task)() / report["ssim"].value - 1) > 1e-5  # the rim is another number


@pytest.mark.filterwarnings("ignore")
def test_clipscore_is_torchmetrics_on_the_same_model(
    photos: tuple[Path, Path], tmp_path: Path
) -> None:
    from benchmarks.dataset import write_clip, write_prompts
    from benchmarks.peers_per_image import Task, clipscore

    model, prompts = tmp_path / "clip", tmp_path / "prompts.jsonl"
    write_clip(model, width=128, layers=2)
    write_prompts(prompts, count=3)
    task = Task(str(photos[0]), str(prompts), str(model), batch=2, workers=0)
    metric = f"clipscore@cos:model={model}"
    report = gm.evaluate(photos[0], prompts=prompts, metrics=[metric], cache=False, device="cpu")
    (result,) = report.results.values()
    assert 100 * result.value == pytest.approx(clipscore(task)(), rel=1e-4)
    # no cosine is cut at zero, and each depends on its image and prompt
    cosines = sorted(result.per_sample.values())
    assert cosines[0] > 0
    assert cosines[-1] - cosines[0] > 1e-3


def test_the_tokenizer_is_the_one_of_clip(tmp_path: Path) -> None:
    from open_clip import SimpleTokenizer
    from transformers import CLIPTokenizer

    from benchmarks.dataset import write_clip, write_prompts

    write_clip(tmp_path / "clip", width=64, layers=1)
    write_prompts(tmp_path / "prompts.jsonl", count=20)
    ours, known = CLIPTokenizer.from_pretrained(str(tmp_path / "clip")), SimpleTokenizer()
    for line in (tmp_path / "prompts.jsonl").read_text().splitlines():
        text = json.loads(line)["prompt"]
        assert ours(text)["input_ids"] == [49406, *known.encode(text), 49407]


# -- the documentation -----------------------------------------------------------------------------


def test_the_documentation_shows_the_recorded_run() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    shown = page.split(f"{BEGIN}\n")[1].split(END)[0]
    recorded = ROOT / "benchmarks/results.json"
    if recorded.exists():
        found = json.loads(recorded.read_text())
        assert not found["quick"]
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
    words = ["--quick", "--only", "startup", "--data", str(data), "--out", str(out)]
    assert main(words) == 0
    table = capsys.readouterr().out
    assert "Quick sizes" in table
    found = json.loads(out.read_text())
    assert list(found["benchmarks"]) == ["startup"]
    for name, record in found["benchmarks"].items():
        assert {row["benchmark"] for row in record["rows"]} == {name}
        assert record["failure"] is None
        assert all(m["wall"] > 0 and m["peak_mib"] > 10 for m in record["measurements"])
    assert main(["--render", str(out)]) == 0
    assert capsys.readouterr().out == table
