from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from genmetrics.core.sample import Sample


@pytest.fixture
def feed() -> Callable[..., None]:
    """Give a set metric feature rows under its own role and output, as the runner does."""

    def give(metric, rows, *, real=False, prefix="s", start=0):
        samples = [Sample(id=f"{prefix}_{start + i}") for i in range(len(rows))]
        features = {metric.role: {metric.output: np.asarray(rows, np.float32)}}
        metric.update_features(samples, features, real=real)

    return give


@pytest.fixture
def two_sets() -> tuple[np.ndarray, np.ndarray]:
    """Features of a reference and of a slightly different generated set."""
    rng = np.random.default_rng(0)
    real = rng.standard_normal((120, 16)).astype(np.float32)
    fake = (rng.standard_normal((90, 16)) * 1.1 + 0.2).astype(np.float32)
    return real, fake
