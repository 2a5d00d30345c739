from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def write_images(folder: Path, count: int, *, seed: int = 0, suffix: str = ".png") -> Path:
    """Write small random images of different sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for i in range(count):
        h, w = rng.integers(8, 20, 2)
        pixels = rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}{suffix}")
    return folder


@pytest.fixture
def images(tmp_path: Path) -> tuple[Path, Path]:
    """13 generated and 9 reference images."""
    return write_images(tmp_path / "gen", 13), write_images(tmp_path / "ref", 9, seed=1)
