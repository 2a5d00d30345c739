import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, TooFewSamplesError
from genmetrics.stats import UnitMoments, cmmd, cmmd_estimate, cmmd_exact
from tests.stats.golden import golden_cases, unit

module = sys.modules["genmetrics.stats.cmmd"]  # the function of this name hides it


def direct(x: np.ndarray, y: np.ndarray, sigma: float = 10.0) -> float:
    """The definition, pair by pair."""

    def mean(a: np.ndarray, b: np.ndarray) -> float:
        squared = ((a[:, None] - b[None]) ** 2).sum(axis=-1)
        return float(np.expm1(-squared / (2 * sigma**2)).mean())

    return 1000 * (mean(x, x) + mean(y, y) - 2 * mean(x, y))


def sphere(n: int, d: int, seed: int, shift: float = 0.5) -> np.ndarray:
    return unit(np.random.default_rng(seed).standard_normal((n, d)) + shift)


@golden_cases
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_golden_values(golden, estimator):
    expected = golden.expected[f"cmmd_{estimator}"]
    assert cmmd(*golden.unit, estimator=estimator) == pytest.approx(expected, rel=1e-9)
    assert cmmd_exact(*golden.unit, estimator=estimator) == pytest.approx(expected, rel=1e-9)
    # cmmd-pytorch computes in float32, which is worth about 1e-4 of the factor 1000.
    if estimator == "biased":
        float32 = golden.expected["cmmd_reference_float32"]
        assert cmmd(*golden.unit) == pytest.approx(float32, abs=3e-4)


@golden_cases
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_golden_values_by_moments(golden, estimator, monkeypatch):
    x, y = golden.unit
    monkeypatch.setattr(module, "SUBSAMPLE", min(len(x), len(y)) // 3)
    expected = golden.expected[f"cmmd_{estimator}"]
    got = cmmd_estimate(x, y, estimator=estimator)
    assert got.value == pytest.approx(expected, rel=1e-5)
    assert abs(got.value - expected) <= got.remainder_bound + 1e-9 * abs(expected)
    assert cmmd(x, y, estimator=estimator) == got.value


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
def test_moments_equal_all_pairs(estimator, shift):
    x, y = sphere(2300, 24, 0), sphere(2600, 24, 1, shift)
    got = cmmd_estimate(x, y, estimator=estimator)
    exact = cmmd_exact(x, y, estimator=estimator)
    assert not got.exact
    assert got.value == pytest.approx(exact, rel=1e-5)
    assert abs(got.value - exact) <= got.remainder_bound <= 1e-4 * abs(exact)
    assert 0 < got.third_order < 0.01 * cmmd(x, y)


def test_alike_sets_take_a_larger_subsample_before_all_pairs(monkeypatch):
    monkeypatch.setattr(module, "SUBSAMPLE", 50)
    x, y = sphere(900, 24, 0), sphere(1000, 24, 1)
    sizes = []
    tail = module._tail
    monkeypatch.setattr(module, "_tail", lambda *args: sizes.append(args[-1]) or tail(*args))
    got = cmmd_estimate(x, y)
    assert (sizes, got.exact) == ([50, 200], False)
    assert abs(got.value - cmmd_exact(x, y)) <= got.remainder_bound <= 1e-4 * got.value


@pytest.mark.parametrize("sigma", [0.3, 1.0, 1.5, 3.0, 10.0, 1000.0])
def test_other_widths_use_whatever_is_good_enough(sigma):
    x, y = sphere(2100, 6, 0), sphere(2200, 6, 1, 1.0)
    got = cmmd_estimate(x, y, sigma=sigma)
    assert got.value == pytest.approx(cmmd_exact(x, y, sigma=sigma), rel=1e-4)
    if sigma <= 1.0:
        assert got.exact
    if sigma >= 10:
        assert not got.exact
    small = x[:60], y[:70]
    assert cmmd(*small, sigma=sigma) == pytest.approx(direct(*small, sigma=sigma), rel=1e-7)


def test_scale_and_closed_form():
    x, y = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    # One vector a side: k(x, x) = 1 and |x - y|^2 = 2.
    assert cmmd(x, y) == pytest.approx(2000 * (1 - np.exp(-0.01)), rel=1e-12)
    assert cmmd(x, y, scale=1.0) == pytest.approx(2 * (1 - np.exp(-0.01)), rel=1e-12)
    assert cmmd(x, x) == 0.0


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 20), m=st.integers(1, 20))
def test_symmetric_independent_of_order_and_zero_on_itself(seed, n, m):
    rng = np.random.default_rng(seed)
    x, y = sphere(n, 4, seed), sphere(m, 4, seed + 1)
    value = pytest.approx(cmmd(x, y), rel=1e-9, abs=1e-12)
    assert cmmd(y, x) == value
    assert cmmd(rng.permutation(x), rng.permutation(y)) == value
    assert cmmd(x, x) == pytest.approx(0, abs=1e-12)
    assert direct(x, y) == value


def test_float32_rows_are_scaled_to_length_one_in_float64():
    x, y = sphere(50, 16, 0), sphere(60, 16, 1, 0.6)
    coarse = cmmd(x.astype(np.float32) * np.float32(1.0005), y.astype(np.float32))
    assert coarse == pytest.approx(cmmd(x, y), rel=1e-5)


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("n", [300, 2500])
def test_influence_is_the_derivative_in_the_weight_of_a_sample(n, estimator):
    x, y = sphere(400, 12, 0), sphere(n, 12, 1, 0.7)
    estimate = cmmd_estimate(x, y, estimator=estimator)
    assert estimate.exact == (n == 300)
    assert estimate.influence.mean() == pytest.approx(0, abs=1e-9)
    assert estimate.standard_error == pytest.approx(estimate.influence.std(ddof=1) / n**0.5)
    for i in (0, n // 2):
        without = cmmd_exact(x, np.delete(y, i, axis=0), estimator=estimator)
        full = cmmd_exact(x, y, estimator=estimator)
        slope = (full - without) * (n - 1)
        assert estimate.influence[i] == pytest.approx(slope, rel=0.03, abs=0.06)


def test_unit_moments_merge_and_store():
    x = sphere(90, 7, 0)
    whole = UnitMoments(7).update(x)
    assert whole.n == 90
    assert whole.mean == pytest.approx(x.mean(axis=0), abs=1e-14)
    assert whole.second == pytest.approx(x.T @ x / 90, abs=1e-14)
    merged = UnitMoments(7).update(x[:31]).merge(UnitMoments(7).update(x[31:]))
    assert merged.second == pytest.approx(whole.second, abs=1e-14)
    resumed = UnitMoments(7)
    resumed.load_state_dict(merged.state_dict())
    assert np.array_equal(resumed.second, merged.second)
    with pytest.raises(InputError, match="row 1 of the new features has length 2"):
        whole.update(np.diag([1.0, 2.0]))


def test_rows_that_are_no_unit_vectors_and_bad_options_are_refused():
    x = sphere(5, 3, 0)
    with pytest.raises(InputError, match="row 2 of the fake features has length 2, not 1"):
        cmmd(x, x * np.array([1, 1, 2, 1, 1])[:, None])
    with pytest.raises(InputError, match="sigma=0"):
        cmmd(x, x, sigma=0)
    with pytest.raises(InputError, match="estimator='other'"):
        cmmd(x, x, estimator="other")
    with pytest.raises(TooFewSamplesError, match="fake side has 1 samples, CMMD"):
        cmmd(x, x[:1], estimator="unbiased")
