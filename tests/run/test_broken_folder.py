"""Hundreds of broken files among good ones: each named with a reason, the rest scored."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import genmetrics as gm
from genmetrics.core.errors import InputError
from tests.samples.make import broken

from .conftest import write_images
from .toys import ToyBrightness, ToySpec


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """10 good images and every broken or odd file, under image names."""
    root = write_images(tmp_path_factory.mktemp("mixed") / "gen", 10)
    files = broken()
    assert len(files) > 200
    for i, data in enumerate(files.values()):
        (root / f"odd{i}.png").write_bytes(data)
    return root


@pytest.mark.slow
def test_each_bad_file_is_named_and_the_rest_is_scored(folder):
    report = gm.evaluate(folder, None, [ToyBrightness(ToySpec())], cache=False, on_error="skip")
    result = report["toy-brightness"]
    total = len(list(folder.iterdir()))
    assert result.n + len(report.failures) == total
    assert len(report.failures) > 200
    for failure in report.failures:
        assert failure.reason and "\n" not in failure.reason
        assert failure.who.sample.path
    # some odd files are sound pictures after all; the ten good ones are always there
    assert {str(i) for i in range(10)} <= {
        name for name, value in result.per_sample.items() if value == value
    }


@pytest.mark.slow
def test_strict_runs_list_them_in_one_line(folder):
    with pytest.raises(InputError, match="samples cannot be used") as caught:
        gm.evaluate(folder, None, [ToyBrightness(ToySpec())], cache=False)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_command_line_survives_them_too(folder, tmp_path):
    command = [
        sys.executable, "-m", "genmetrics", "eval", str(folder), "--pair-with", str(folder),
        "-m", "psnr", "--no-cache", "--on-error", "skip", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 1, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert document["metrics"]["psnr"]["n"] + len(document["skipped"]) == len(
        list(folder.iterdir())
    )
    assert all(entry["reason"] for entry in document["skipped"])
