"""The complete scripts of docs/training-loops.md print the same on one process and on two."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integrations.ranks import launch
from tests.ranks import one_thread
from tests.test_docs import DOCS, blocks


def scripts() -> dict[str, str]:
    """Name, as its first line gives it, to text."""
    page = blocks(DOCS / "training-loops.md")
    texts = [block.text for block in page if block.remark.startswith("only on ranks")]
    return {re.match(r"# (\w+\.py):", text)[1]: text for text in texts}


@pytest.fixture
def place(tmp_path: Path, reference: Path) -> Path:
    shutil.copy(reference, tmp_path / "real.safetensors")
    for name, text in scripts().items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def alone(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], str]]:
    """Run a script in this process: what it printed."""
    import torch
    from accelerate.state import AcceleratorState

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the ranks

    def run(name: str) -> str:
        monkeypatch.chdir(place)
        monkeypatch.setattr(sys, "argv", [name])
        AcceleratorState._reset_state(reset_partial_state=True)
        runpy.run_path(name, run_name="__main__")
        return capsys.readouterr().out

    yield run
    torch.set_num_threads(threads)
    AcceleratorState._reset_state(reset_partial_state=True)


def said(text: str, pattern: str) -> list[str]:
    found = re.findall(pattern, text, re.MULTILINE)
    assert found, text
    return found


def test_the_page_has_three_scripts():
    assert list(scripts()) == ["loop.py", "light.py", "train.py"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pattern", "lines"),
    [("loop.py", r"^[01] 16 .*Interval.*", 2), ("train.py", r"^best .*Interval.*", 1)],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of the frameworks, as their users see them
def test_a_script_prints_the_same_on_two_ranks(name, pattern, lines, place, alone):
    one, two = said(alone(name), pattern), said(launch(place / name, 2), pattern)
    assert one == two
    assert len(one) == lines


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Lightning on a newer torch
def test_lightning_prints_the_same_on_two_devices(place, alone):
    done = subprocess.run(
        [sys.executable, "light.py", "2"],
        capture_output=True, text=True, timeout=120, env=one_thread(), cwd=place,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    pattern = r"^7 .*Interval.*"
    assert said(alone("light.py"), pattern) == said(done.stdout, pattern)
