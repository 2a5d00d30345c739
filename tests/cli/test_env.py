"""``genmetrics env``: the block for bug reports."""

from __future__ import annotations

import importlib.metadata
import json
import platform

import pytest
import torch
import typer
from typer.testing import CliRunner

import genmetrics
from genmetrics.cli.env import env

app = typer.Typer()
app.command("env")(env)


def test_it_says_versions_devices_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENMETRICS_WEIGHTS", "/data/weights")
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy:3128")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    result = CliRunner().invoke(app, ["--json"])
    assert result.exit_code == 0, result.exception
    facts = json.loads(result.stdout)
    assert facts["genmetrics"] == genmetrics.__version__
    assert facts["python"].startswith(platform.python_version())
    assert facts["packages"]["torch"] == importlib.metadata.version("torch")
    assert facts["devices"]["cpu"] == f"{torch.get_num_threads()} threads"
    assert facts["cores"] >= 1
    assert facts["memory_gib"] > 0
    assert facts["directories"]["weights"] == "/data/weights"
    assert facts["variables"]["GENMETRICS_WEIGHTS"] == "/data/weights"
    assert facts["variables"]["https_proxy"] == "http://***@proxy:3128"
    assert "secret" not in result.stdout


def test_text_has_a_line_for_each_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genmetrics.cli.env._PACKAGES", ("torch", "no-such-package"))
    lines = CliRunner().invoke(app, []).stdout.splitlines()
    assert f"genmetrics: {genmetrics.__version__}" in lines
    assert "  no-such-package: not installed" in lines
    assert "packages:" in lines
