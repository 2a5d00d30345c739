from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from genmetrics.cli.main import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or fills the user's cache."""
    monkeypatch.setenv("GENMETRICS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def spawn(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command line as users do."""
    return subprocess.run(
        [sys.executable, "-m", "genmetrics", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def write_crops(folder: Path, count: int, *, seed: int, noise: float = 0.0) -> Path:
    """Write crops of scikit-image's photos."""
    rng = np.random.default_rng(seed)
    photos = [data.astronaut(), data.chelsea(), data.coffee()]
    folder.mkdir(parents=True)
    for i in range(count):
        photo = photos[i % len(photos)]
        side = int(rng.integers(80, 120))
        top = int(rng.integers(0, photo.shape[0] - side))
        left = int(rng.integers(0, photo.shape[1] - side))
        crop = photo[top : top + side, left : left + side]
        noisy = np.clip(crop + rng.normal(0, noise, crop.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"crop_{i}.png")
    return folder


@pytest.fixture
def pairs(tmp_path: Path) -> tuple[Path, Path]:
    """Noisy crops and their clean counterparts."""
    clean = write_crops(tmp_path / "clean", 4, seed=0)
    return write_crops(tmp_path / "noisy", 4, seed=0, noise=10.0).rename(tmp_path / "gen"), clean
