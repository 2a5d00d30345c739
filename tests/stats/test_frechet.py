import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, TooFewSamplesError
from genmetrics.stats import (
    Moments,
    frechet_distance,
    frechet_distance_moments,
    frechet_estimate,
    frechet_infinity,
    frechet_influence,
)
from genmetrics.stats import frechet as module
from tests.stats.golden import golden_cases


def moments(x: np.ndarray) -> Moments:
    return Moments(x.shape[1]).update(x)


def gaussian(mean: list[float], variances: list[float]) -> Moments:
    return Moments.from_statistics(1000, np.array(mean), np.diag(variances))


@golden_cases
def test_golden_values(golden):
    expected = pytest.approx(golden.expected["frechet_distance"], rel=1e-9)
    real, fake = golden.real, golden.fake
    assert frechet_distance(real, fake) == expected
    assert frechet_distance_moments(moments(real), moments(fake)) == expected
    assert frechet_estimate(moments(real), fake).value == expected


def test_closed_forms_of_gaussians():
    assert frechet_distance_moments(gaussian([0], [4]), gaussian([3], [1])) == pytest.approx(10)
    a, b = gaussian([0, 0], [1, 4]), gaussian([1, 2], [9, 4])
    assert frechet_distance_moments(a, b) == pytest.approx(9)
    assert frechet_distance(np.array([[0.0], [2.0]]), np.array([[1.0], [3.0]])) == pytest.approx(1)
    shift = np.array([3.0, 4.0, 0.0])
    x = np.random.default_rng(0).standard_normal((30, 3))
    assert frechet_distance(x, x + shift) == pytest.approx(25)


def test_covariances_that_do_not_commute():
    # Two dimensions have a closed form: tr sqrt(AB) = sqrt(tr AB + 2 sqrt(det AB)).
    a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, -0.5], [-0.5, 4.0]])
    root = np.sqrt(np.trace(a @ b) + 2 * np.sqrt(np.linalg.det(a @ b)))
    got = frechet_distance_moments(
        Moments.from_statistics(9, np.zeros(2), a), Moments.from_statistics(9, np.zeros(2), b)
    )
    assert got == pytest.approx(np.trace(a) + np.trace(b) - 2 * root)


FEWER = """
import sys
if {blocked}:
    sys.modules["scipy"] = None
import warnings; warnings.simplefilter("error")
import numpy as np
from genmetrics.stats import frechet_distance
g = np.random.default_rng(7)
x = g.standard_normal((16, 64))
y = g.standard_normal((16, 64)) + 0.1
print(repr(frechet_distance(x, y)))
assert {blocked} or "scipy" not in sys.modules
"""


@pytest.mark.parametrize("blocked", [False, True])
def test_fewer_samples_than_dimensions_is_real_and_needs_no_scipy(blocked):
    code = FEWER.format(blocked=blocked)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(run.stdout) == pytest.approx(83.492469, abs=1e-6)


@pytest.mark.parametrize("n", [64, 256, 1000])
def test_a_set_against_itself_is_zero_and_never_minus_zero(n):
    x = np.random.default_rng(0).standard_normal((n, 256)).astype(np.float32)
    for value in (frechet_distance(x, x), frechet_distance_moments(moments(x), moments(x))):
        assert 0 <= value < 1e-9 * 256
        assert np.copysign(1, value) == 1


def test_only_negatives_within_rounding_become_zero():
    assert repr(module._settle(-1e-9, 1.0)) == "0.0"
    assert module._settle(1e-9, 1.0) == 1e-9
    with pytest.raises(InputError, match="negative beyond rounding"):
        module._settle(-2e-6, 1.0)


def test_a_covariance_with_a_negative_eigenvalue_is_refused():
    broken = Moments.from_statistics(10, np.zeros(2), np.diag([1.0, -1.0]))
    with pytest.raises(InputError, match="covariance of the fake side has the eigenvalue -1"):
        frechet_distance_moments(gaussian([0, 0], [1, 1]), broken)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_an_offset_of_the_features_costs_no_digits(offset):
    g = np.random.default_rng(1)
    x = g.standard_normal((1000, 8)) + offset
    y = g.standard_normal((1000, 8)) * 1.1 + offset
    a, b = Moments(8), Moments(8)
    for start in range(0, 1000, 64):
        a.update(x[start : start + 64])
        b.update(y[start : start + 64])
    assert frechet_distance_moments(a, b) == pytest.approx(0.129205, rel=1e-5)
    assert frechet_distance(x, y) == pytest.approx(0.129205, rel=1e-5)


def test_one_image_on_a_side_names_side_count_and_minimum():
    one, two = np.ones((1, 8)), np.random.default_rng(0).standard_normal((2, 8))
    with pytest.raises(TooFewSamplesError, match="real side has 1 samples, .* at least 2"):
        frechet_distance(one, two)
    with pytest.raises(TooFewSamplesError, match="fake side has 1 samples, .* at least 2"):
        frechet_estimate(moments(two), one)
    with pytest.raises(TooFewSamplesError, match="real side has 1 samples, .* at least 2"):
        frechet_distance_moments(moments(one), moments(two))
    with pytest.raises(ValueError, match="fake side has 1 samples"):
        frechet_distance(two, one)


def test_dimensions_that_differ_are_named():
    with pytest.raises(InputError, match="8 dimensions but fake features have 16"):
        frechet_distance_moments(gaussian([0] * 8, [1] * 8), gaussian([0] * 16, [1] * 16))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 30),
    m=st.integers(2, 30),
    d=st.integers(1, 12),
)
def test_symmetric_independent_of_order_and_shift_and_zero_on_itself(seed, n, m, d):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, d)), rng.standard_normal((m, d)) * 1.3 + 0.2
    value = frechet_distance(x, y)
    close = pytest.approx(value, rel=1e-8, abs=1e-9)
    assert frechet_distance(y, x) == close
    assert frechet_distance(rng.permutation(x), rng.permutation(y)) == close
    assert frechet_distance(x + 7, y + 7) == close
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-9 * d)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("n", [40, 300])
def test_eigenvalues_and_singular_values_agree(power, n, monkeypatch):
    """Spectra from flat to steep: the fast path is taken only where it is as good."""
    rng = np.random.default_rng(0)
    scale = np.arange(1, 101.0) ** (-power / 2)
    x, y = rng.standard_normal((n, 100)) * scale, rng.standard_normal((n, 100)) * scale * 1.1
    fast = frechet_distance(x, y)
    monkeypatch.setattr(module, "_accurate", lambda values: False)
    assert frechet_distance(x, y) == pytest.approx(fast, rel=1e-8)


@pytest.mark.parametrize("n", [30, 400])
def test_dead_and_repeated_features_are_no_trouble(n):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((n, 10)), rng.standard_normal((n, 10)) + 0.3
    value = frechet_distance(x, y)
    wide = [np.hstack([v, v, np.zeros((n, 5)), np.ones((n, 5))]) for v in (x, y)]
    assert frechet_distance(*wide) == pytest.approx(2 * value, rel=1e-8)
    assert frechet_estimate(moments(wide[0]), wide[1]).value == pytest.approx(2 * value, rel=1e-8)


def test_constant_features():
    still = np.ones((5, 3))
    assert frechet_distance(still, still) == 0.0
    estimate = frechet_estimate(moments(still), still + 2)
    assert estimate.value == pytest.approx(12)
    assert estimate.standard_error == 0.0


@pytest.mark.parametrize(
    ("n", "m", "d"), [(500, 400, 6), (300, 20, 40), (15, 200, 40), (10, 12, 40)]
)
def test_influence_is_the_derivative_in_the_weight_of_a_sample(n, m, d):
    """More weight on one sample, by finite differences of the moments of a weighted set."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((n, d)), rng.standard_normal((m, d)) * 1.2 + 0.1
    reference = moments(x)
    influence = frechet_influence(reference, y)
    assert influence.shape == (m,)

    def weighted(i: int, step: float) -> float:
        w = np.full(m, (1 - step) / m)
        w[i] += step
        mean = w @ y
        cov = ((y - mean).T * w) @ (y - mean) * m / (m - 1)
        return frechet_distance_moments(reference, Moments.from_statistics(m, mean, cov))

    for i in (0, m // 2, m - 1):
        slope = (weighted(i, 1e-5) - weighted(i, -1e-5)) / 2e-5
        # n - 1 in the covariance moves the derivative by terms of order 1 / m.
        assert influence[i] == pytest.approx(slope, rel=0.02, abs=6 * np.abs(influence).max() / m)


def test_influence_finds_the_image_that_costs_most():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((100, 5))
    y[37] += 10
    assert int(np.argmax(frechet_influence(moments(rng.standard_normal((500, 5))), y))) == 37


def test_infinity_is_the_intercept_over_seeded_subsets():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5000, 16)), rng.standard_normal((600, 16))
    got = frechet_infinity(moments(x), y, seed=3)
    draw = np.random.RandomState(3)
    sizes = np.linspace(60, 600, 15).astype(np.int32)
    values = [frechet_distance(x, y[draw.choice(600, size, replace=False)]) for size in sizes]
    assert got == pytest.approx(np.polyfit(1 / sizes, values, 1)[1], rel=1e-6)
    assert abs(got) < frechet_distance(x, y) / 2  # the bias of the small set is gone
    assert got == frechet_infinity(moments(x), y, seed=3)
    assert got != frechet_infinity(moments(x), y, seed=4)


@pytest.mark.parametrize(
    ("reference", "n", "dim"), [(400, 60, 64), (30, 60, 64), (300, 64, 64), (300, 65, 64)]
)
def test_infinity_of_few_is_that_of_each_draw(reference, n, dim):
    """Up to as many rows as dimensions all draws share one product; beyond, each has its own."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((reference, dim)) + 3, rng.standard_normal((n, dim)) * 0.5 + 3
    draw = np.random.RandomState(0)
    sizes = np.linspace(max(n // 10, 2), n, 15).astype(np.int32)
    values = [frechet_distance(x, y[draw.choice(n, size, replace=False)]) for size in sizes]
    expected = np.polyfit(1 / sizes, values, 1)[1]
    assert frechet_infinity(moments(x), y) == pytest.approx(expected, rel=1e-9)


def test_infinity_of_equal_rows_is_their_distance():
    constant = np.full((9, 16), 0.1)
    assert frechet_infinity(moments(constant), constant) == pytest.approx(0, abs=1e-30)
    assert frechet_infinity(moments(constant), constant + 0.5) == pytest.approx(16 * 0.25)


def test_small_and_large_matrices_have_the_same_eigenvalues(monkeypatch):
    from genmetrics.stats import frechet

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 20)), rng.standard_normal((40, 20)) + 1
    values = []
    for small in (0, 512):
        monkeypatch.setattr(frechet, "_SMALL", small)
        values.append(frechet_distance(x, y))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_infinity_needs_three_samples():
    reference = moments(np.eye(4))
    with pytest.raises(
        TooFewSamplesError, match="fake side has 2 samples, FD-infinity needs at least 3"
    ):
        frechet_infinity(reference, np.eye(4)[:2])
    with pytest.raises(InputError, match="points=1"):
        frechet_infinity(reference, np.eye(4), points=1)
    assert np.isfinite(frechet_infinity(reference, np.eye(4)[:3]))


@pytest.mark.parametrize("seed", [0, 1])
def test_agrees_with_the_other_tools(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((400, 32)), rng.standard_normal((300, 32)) * 0.8 + 0.2
    value = frechet_distance(x, y)
    import torch
    from torch_fidelity.metric_fid import fid_statistics_to_metric
    from torchmetrics.image.fid import _compute_fid

    a, b = ({"mu": v.mean(axis=0), "sigma": np.cov(v.T)} for v in (x, y))
    theirs = fid_statistics_to_metric(a, b, verbose=False)["frechet_inception_distance"]
    assert value == pytest.approx(theirs, rel=1e-9)
    args = [torch.from_numpy(s[key]) for s in (a, b) for key in ("mu", "sigma")]
    assert value == pytest.approx(float(_compute_fid(*args)), rel=1e-9)
