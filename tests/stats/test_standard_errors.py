"""Standard errors from influences against the spread over repeated draws, the reference fixed.

Every simulation draws 200 sets, so the observed spread is itself known to 5 %.
"""

from collections.abc import Callable

import numpy as np
import pytest

from genmetrics.stats import (
    Moments,
    authpct_estimate,
    cmmd_estimate,
    frechet_estimate,
    inception_influence,
    inception_score,
    kernel_distance,
    kernel_influence,
    prdc,
    standard_error,
    vendi_estimate,
)
from tests.stats.golden import unit

DRAWS = 200
Measure = Callable[[np.random.Generator], tuple[float, float]]


def ratio(measure: Measure) -> float:
    """Predicted over observed standard error of a measure of random sets."""
    rng = np.random.default_rng(0)
    values, errors = np.array([measure(rng) for _ in range(DRAWS)]).T
    return float(np.sqrt(np.mean(errors**2)) / values.std(ddof=1))


def frechet_ratio(d: int, n: int, power: float) -> float:
    scale = np.arange(1, d + 1.0) ** (-power / 2)
    reference = Moments(d).update(np.random.default_rng(1).standard_normal((50 * d, d)) * scale)

    def measure(rng: np.random.Generator) -> tuple[float, float]:
        fake = (rng.standard_normal((n, d)) * 1.3 + 0.2) * scale
        got = frechet_estimate(reference, fake)
        return got.value, got.standard_error

    return ratio(measure)


@pytest.mark.parametrize(("d", "n"), [(4, 200), (8, 300)])
def test_frechet(d, n):
    assert frechet_ratio(d, n, power=0) == pytest.approx(1, abs=0.15)


def test_frechet_with_fewer_samples_than_dimensions():
    """Right for spectra that decay as those of images do, on the safe side for flat ones."""
    assert frechet_ratio(24, 16, power=1.5) == pytest.approx(1.1, abs=0.2)
    assert 1 < frechet_ratio(24, 16, power=0) < 1.6


def test_frechet_over_fifty_draws():
    reference = Moments(8).update(np.random.default_rng(1).standard_normal((2000, 8)))
    got = []
    for seed in range(50):
        fake = np.random.default_rng(seed).standard_normal((500, 8)) * 1.2
        got.append(frechet_estimate(reference, fake))
    observed = np.std([g.value for g in got], ddof=1)
    assert np.mean([g.standard_error for g in got]) == pytest.approx(observed, rel=0.15)


def test_kernel():
    real = np.random.default_rng(1).standard_normal((300, 6))

    def measure(rng: np.random.Generator) -> tuple[float, float]:
        fake = rng.standard_normal((200, 6)) * 1.2 + 0.3
        value = kernel_distance(real, fake, subsets=None).value
        return value, standard_error(kernel_influence(real, fake))

    assert ratio(measure) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_cmmd(estimator):
    real = unit(np.random.default_rng(1).standard_normal((300, 6)) + 0.5)

    def measure(rng: np.random.Generator) -> tuple[float, float]:
        fake = unit(rng.standard_normal((200, 6)) + 1.0)
        got = cmmd_estimate(real, fake, estimator=estimator)
        return got.value, got.standard_error

    assert ratio(measure) == pytest.approx(1, abs=0.15)


def test_vendi():
    def measure(rng: np.random.Generator) -> tuple[float, float]:
        got = vendi_estimate(rng.standard_normal((300, 5)) + 0.7)
        return got.value, got.standard_error

    assert ratio(measure) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("splits", [1, 5])
def test_inception(splits):
    def measure(rng: np.random.Generator) -> tuple[float, float]:
        p = rng.dirichlet(np.array([0.2, 0.4, 0.8, 0.3]), size=400)
        value = inception_score(p, splits=splits).mean
        return value, standard_error(inception_influence(p, splits=splits))

    assert ratio(measure) == pytest.approx(1, abs=0.15)


def test_precision_and_authpct():
    real = np.random.default_rng(1).standard_normal((200, 4))

    def precision(rng: np.random.Generator) -> tuple[float, float]:
        got = prdc(real, rng.standard_normal((100, 4)) * 1.4)
        return got.precision, standard_error(got.inside.astype(float))

    def authentic(rng: np.random.Generator) -> tuple[float, float]:
        got = authpct_estimate(real, rng.standard_normal((100, 4)))
        return got.value, got.standard_error

    assert ratio(precision) == pytest.approx(1, abs=0.15)
    assert ratio(authentic) == pytest.approx(1, abs=0.15)
