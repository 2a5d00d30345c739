"""The table for a GPU runs on a CPU too, where its speeds mean nothing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks import gpu


@pytest.mark.slow
def test_everything_runs_without_a_gpu(
    tmp_path: Path,
    inception_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(inception_file, tmp_path / "inception.pth")
    words = ["--device", "cpu", "--images", "16", "--size", "48", "--only", "efficientnet-lite0"]
    files = ["--data", str(tmp_path), "--out", str(tmp_path / "out.json")]
    monkeypatch.setattr(sys, "argv", ["gpu", *words, *files])
    # so few images take no time that a busy machine could measure
    monkeypatch.setattr(gpu, "_rate", lambda sets, small, large: 100.0)
    assert gpu.main() == 0
    about, *_, row, _, _ = capsys.readouterr().out.splitlines()
    assert about.startswith("No GPU: ")
    assert row.startswith("| genmetrics | efficientnet-lite0 | pil | 100 |")
    (line,) = json.loads((tmp_path / "out.json").read_text())["lines"]
    assert line["in_model"] > 0


def test_a_rate_is_of_differences(tmp_path: Path) -> None:
    for name, count in (("few", 2), ("many", 12)):
        (tmp_path / name).mkdir()
        for i in range(count):
            (tmp_path / name / str(i)).touch()
    sets = [(tmp_path / name, tmp_path / name) for name in ("few", "many")]
    assert gpu._rate(sets, measurement(9.0), measurement(11.0)) == 2 * 10 / 2.0
    with pytest.raises(SystemExit, match="raise --images"):
        gpu._rate(sets, measurement(9.0), measurement(9.0))


def measurement(wall: float) -> gpu.Measurement:
    return gpu.Measurement(
        benchmark="", side="", round=1, wall=wall, cpu=0, peak_mib=0, load=0, output={}
    )


def test_nvjpeg_without_a_device_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--decode", "pil", "nvjpeg"])
    assert gpu.main() == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
