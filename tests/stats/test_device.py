"""Every statistic on a CUDA device equals the one on the CPU."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from genmetrics import stats
from tests.stats.golden import unit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((2300, 40))
FAKE = RNG.standard_normal((2100, 40)) * 1.1 + 0.2
Measure = Callable[[torch.Tensor, torch.Tensor], float | np.ndarray]


def on_unit(measure: Callable[..., float]) -> Measure:
    return lambda x, y: measure(*(v / v.norm(dim=1, keepdim=True) for v in (x + 0.5, y + 0.5)))


def streamed(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    reference = stats.Moments(x.shape[1], device=x.device).update(x)
    return stats.frechet_influence(reference, y)


MEASURES: dict[str, Measure] = {
    "frechet": stats.frechet_distance,
    "frechet below the dimension": lambda x, y: stats.frechet_distance(x[:30], y[:25]),
    "influence": streamed,
    "kernel": lambda x, y: stats.kernel_distance(x, y, subset_size=500).value,
    "kernel of all": lambda x, y: stats.kernel_distance(x, y, subsets=None).value,
    "kernel influence": stats.kernel_influence,
    "cmmd": on_unit(stats.cmmd),
    "cmmd of all pairs": on_unit(stats.cmmd_exact),
    "cmmd influence": on_unit(lambda x, y: stats.cmmd_estimate(x, y).influence),
    "density": lambda x, y: stats.prdc(x, y).density,
    "covered": lambda x, y: stats.prdc(x, y).covered,
    "authpct": stats.authpct,
    "vendi": lambda x, y: stats.vendi_estimate(y).influence,
    "inception": lambda x, y: stats.inception_score(y.softmax(dim=1)).mean,
}


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_device_does_not_move_the_number(name, dtype):
    x, y = (torch.from_numpy(v).to(dtype) for v in (REAL, FAKE))
    here, there = MEASURES[name](x, y), MEASURES[name](x.cuda(), y.cuda())
    assert isinstance(there, float | np.ndarray)
    assert np.allclose(here, there, rtol=1e-6, atol=1e-9)


def test_a_reference_on_the_cpu_and_features_on_the_device():
    reference = stats.Moments(40).update(REAL)
    got = stats.frechet_estimate(reference, torch.from_numpy(FAKE).cuda())
    assert got.value == pytest.approx(stats.frechet_distance(REAL, FAKE), rel=1e-9)
    assert stats.cmmd(unit(REAL), torch.from_numpy(unit(FAKE)).cuda()) == pytest.approx(
        stats.cmmd(unit(REAL), unit(FAKE)), rel=1e-9
    )
