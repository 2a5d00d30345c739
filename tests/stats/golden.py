"""Golden values of every statistic (made by float64 numpy, dgm-eval and cmmd-pytorch)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_FILE = Path(__file__).parents[1] / "golden" / "numeric.json"
_CASES = json.loads(_FILE.read_text(encoding="utf-8"))["cases"]


class Golden:
    """One pair of feature sets and its expected values."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.expected = case
        made = case["generator"]
        rng = np.random.default_rng(made["seed"])
        self.real = rng.standard_normal((made["n_real"], made["dim"]))
        self.fake = rng.standard_normal((made["n_fake"], made["dim"]))
        self.fake = self.fake * made["fake_scale"] + made["fake_shift"]

    @property
    def unit(self) -> tuple[np.ndarray, np.ndarray]:
        return unit(self.real + 0.5), unit(self.fake + 0.5)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


golden_cases = pytest.mark.parametrize(
    "golden", [pytest.param(Golden(case), id=str(case["generator"]["seed"])) for case in _CASES]
)
