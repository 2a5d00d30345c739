import json
import os
import stat
import sys

import pytest

from genmetrics.core.errors import InputError, UsageError
from genmetrics.report.files import FILES, check_out, write_report
from tests.report.fakes import record


def test_three_files_are_written(tmp_path):
    out = tmp_path / "runs" / "a"
    paths = write_report(record(), out)
    assert [path.name for path in paths] == list(FILES)
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    assert json.loads((out / "results.json").read_text())["schema"] == "genmetrics.results/2"
    lines = (out / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"img_{i}" for i in range(20)]
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_written_again_gives_the_same_bytes(tmp_path):
    paths = write_report(record(), tmp_path)
    before = [path.read_bytes() for path in paths]
    write_report(record(), tmp_path)
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
        write_report(record(), tmp_path)
    assert list(tmp_path.iterdir()) == []
