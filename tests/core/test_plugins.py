"""A package whose metrics cannot be loaded costs its own metrics and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import genmetrics as gm
import genmetrics.metrics
from genmetrics.core import registry
from genmetrics.core.errors import PluginWarning, UsageError

GOOD = """
from genmetrics.core.metric import Metric
from genmetrics.core.registry import register

@register
class {name}(Metric):
    '''A metric.'''
    id = "{id}"
    summary = "a metric"
    inputs = ("image",)
    higher_is_better = True
"""
FAULTS = {
    "an import": "import a_module_that_is_not_there\n",
    "an exit": "import sys\nsys.exit(3)\n",
    "a syntax error": "def f(:\n",
    "an id that is taken": GOOD.format(name="Mine", id="fid"),
    "a class without facts": GOOD.format(name="Mine", id="mine").replace("    inputs", "    other"),
    "several lines": "raise ValueError('one\\ntwo')\n",
}


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_METRICS", dict(registry._METRICS))
    monkeypatch.setattr(registry, "_BROKEN", {})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a module that can be imported, and return its entry point."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, text: str) -> EntryPoint:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return EntryPoint(name, name, "genmetrics.metrics")

    return write


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_package_is_one_warning_and_the_others_are_there(fault, module):
    entries = [module("broken_one", FAULTS[fault]), module("fine", GOOD.format(name="F", id="f"))]
    with pytest.warns(PluginWarning, match="metrics of broken_one cannot be loaded") as seen:
        registry.load_plugins(entries)
    assert len(seen) == 1 and "\n" not in str(seen[0].message)
    assert {"f", "fid", "psnr"} <= registry.registered().keys()
    assert registry.registered()["fid"] is gm.FID
    assert "mine" not in registry.registered()


def test_half_a_package_is_not_there(module):
    entry = module("half", GOOD.format(name="Half", id="half-metric") + "1 / 0\n")
    with pytest.warns(PluginWarning):
        registry.load_plugins([entry])
    assert "half-metric" not in registry.registered()
    for name in ("half-metric", "half", "half-metric@x"):
        with pytest.raises(UsageError, match=r"not there: metrics of half.*ZeroDivisionError"):
            registry.find(name)


def test_an_unknown_id_says_what_could_not_be_loaded(module):
    with pytest.warns(PluginWarning):
        registry.load_plugins([module("broken_two", "1 / 0\n")])
    with pytest.raises(UsageError, match=r"unknown metric 'sharpness'.*metrics of broken_two"):
        registry.find("sharpness")
    with pytest.raises(AttributeError, match="metrics of broken_two"):
        gm.Sharpness  # noqa: B018


def test_an_entry_point_may_be_the_metric_itself(module):
    entry = module("bare", GOOD.format(name="Bare", id="bare").replace("@register", ""))
    registry.load_plugins([EntryPoint("bare", f"{entry.value}:Bare", entry.group)])
    assert "bare" in registry.registered()


def test_an_interrupt_is_no_fault_of_a_package(module):
    with pytest.raises(KeyboardInterrupt):
        registry.load_plugins([module("stopped", "raise KeyboardInterrupt\n")])


def test_the_command_says_it_once_and_works(tmp_path: Path):
    """Two entry points of one package, installed the way an index would deliver it."""
    site = tmp_path / "site"
    info = site / "my_metrics-0.1.dist-info"
    info.mkdir(parents=True)
    (site / "my_metrics.py").write_text("import a_module_that_is_not_there\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-metrics\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(
        "[genmetrics.metrics]\nsharpness = my_metrics\nblur = my_metrics\n"
    )
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "genmetrics", *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            cwd=Path(__file__).parents[2],
        )

    done = call("list", "--json")
    assert done.returncode == 0
    assert {"fid", "psnr"} <= {row["id"] for row in json.loads(done.stdout)["metrics"]}
    (line,) = done.stderr.splitlines()
    assert line.startswith("genmetrics: warning: metrics of my-metrics cannot be loaded (my_metr")
    assert line.count("a_module_that_is_not_there") == 1
    done = call("show", "sharpness")
    assert done.returncode == 2
    assert "a_module_that_is_not_there" in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith("genmetrics: error: metric 'sharpness' is not")
