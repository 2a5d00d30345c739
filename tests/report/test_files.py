import json
import os
import stat
import sys

import pytest

from genmetrics.core.errors import InputError, UsageError
from genmetrics.report.files import FILES, check_out, check_same_run, write_report
from tests.report.fakes import report


def test_three_files_are_written(tmp_path):
    out = tmp_path / "runs" / "a"
    paths = write_report(report(), out, command="genmetrics eval gen")
    assert [path.name for path in paths] == list(FILES)
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    assert json.loads((out / "results.json").read_text())["schema"] == "genmetrics.results/1"
    lines = (out / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"img_{i}" for i in range(20)]
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_written_again_gives_the_same_bytes(tmp_path):
    paths = write_report(report(), tmp_path)
    before = [path.read_bytes() for path in paths]
    write_report(report(), tmp_path)
    assert [path.read_bytes() for path in paths] == before


def test_checking_makes_nothing(tmp_path):
    check_out(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "a", "a/b"])
def test_out_that_is_or_lies_in_a_file_is_refused(tmp_path, below):
    file = tmp_path / "taken"
    file.write_text("x")
    with pytest.raises(UsageError, match="taken is a file; pass a folder"):
        check_out(file / below)
    assert file.read_text() == "x"


def test_folder_in_the_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(UsageError, match=r"report\.html is a folder"):
        check_out(tmp_path)


# -- a folder that holds a run ---------------------------------------------------------------------


def again(folder, force=False, drop=(), metrics=None, **changed):
    """Ask whether the fake run, with these changes, may be written where it already is."""
    found = json.loads((folder / "results.json").read_text())
    inputs = {k: {**v, **changed.get(k, {})} for k, v in found["inputs"].items() if k not in drop}
    prints = {name: result["fingerprint"] for name, result in found["metrics"].items()}
    check_same_run(folder, inputs, {**prints, **(metrics or {})}, force=force)


def test_the_same_run_again_may_take_its_place(tmp_path):
    write_report(report(), tmp_path)
    again(tmp_path)
    again(tmp_path, metrics={"one-more": "sha256:0"}, generated={"n": 21, "digest": "other"})
    check_same_run(tmp_path / "new", {}, {})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"generated": {"path": "gen2"}}, r"another run \(generated was gen, is gen2\)"),
        ({"drop": ["reference"]}, r"another run \(reference was real, is none\)"),
        ({"generated": {"n": 5}}, r"more samples \(generated had 20, has 5\)"),
        ({"metrics": {"fid@clean": "sha256:1"}}, r"another protocol \(fid@clean\)"),
    ],
)
def test_another_run_does_not_take_its_place(tmp_path, changes, said):
    write_report(report(), tmp_path)
    with pytest.raises(UsageError, match=rf"out .*: it holds .*{said}; pass another .*--force"):
        again(tmp_path, **changes)
    again(tmp_path, force=True, **changes)


def test_five_results_are_not_lost_to_one(tmp_path):
    write_report(report(), tmp_path)
    found = json.loads((tmp_path / "results.json").read_text())
    name, *others = found["metrics"]
    with pytest.raises(UsageError, match=f"does not make again .{others[0]}"):
        check_same_run(tmp_path, found["inputs"], {name: found["metrics"][name]["fingerprint"]})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("results.json", "{}"),
        ("results.json", "half"),
        ("results.json", "[1]"),
        ("results.json", '{"schema": "other/1", "inputs": {}, "metrics": {}}'),
        ("report.html", "<p>mine"),
    ],
)
def test_files_of_somebody_else_stay(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=r"no results\.json of genmetrics; pass another folder"):
        check_same_run(tmp_path, {}, {})
    check_same_run(tmp_path, {}, {}, force=True)


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="root and Windows may write anyway"
)
def test_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(UsageError, match="may not be written"):
        check_out(tmp_path / "a")
    tmp_path.chmod(stat.S_IRWXU)


def test_disk_that_refuses_leaves_no_half_file(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        write_report(report(), tmp_path)
    assert list(tmp_path.iterdir()) == []
