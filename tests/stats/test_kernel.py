import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, TooFewSamplesError
from genmetrics.stats import kernel, kernel_distance, kernel_estimate, kernel_influence
from tests.stats.golden import golden_cases


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


@golden_cases
def test_golden_values(golden):
    got = kernel_distance(golden.real, golden.fake, subsets=None)
    assert got.value == pytest.approx(golden.expected["kid_unbiased_full"], rel=1e-9)
    assert (got.spread, got.subsets, got.subset_size) == (0.0, None, None)


def test_the_unbiased_estimate_may_be_negative_and_is_not_clamped():
    options = {"subsets": 1, "subset_size": 2}
    assert kernel_distance(column(0, 1), column(0, 1), **options).value == -3.5
    assert kernel_distance(column(0, 1), column(1, 2), **options).value == 9.5


def test_a_subset_larger_than_the_sets_is_reduced_and_the_size_reported():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 8)), rng.standard_normal((40, 8))
    got = kernel_distance(x, y)
    assert (got.subsets, got.subset_size) == (100, 30)
    assert got == kernel_distance(x, y, subset_size=30)


def test_subsets_that_are_the_whole_set_are_computed_once():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 30, 8))
    got = kernel_distance(x, y)
    assert got.spread == 0.0
    assert got.value == pytest.approx(kernel_distance(x, y, subsets=None).value, rel=1e-12)


@pytest.mark.parametrize(
    ("n", "m", "d", "subsets", "size"),
    [
        (300, 250, 16, 100, 50),
        (300, 250, 16, 3, 200),
        (1500, 2100, 4, 20, 1000),
        (60, 60, 64, 5, 60),
    ],
)
@pytest.mark.parametrize("seed", [0, 2020])
def test_equals_torch_fidelity_with_the_same_seed(n, m, d, subsets, size, seed):
    from torch_fidelity.metric_kid import kid_features_to_metric

    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((n, d)), rng.standard_normal((m, d)) * 1.1 + 0.1
    theirs = kid_features_to_metric(
        torch.from_numpy(x),
        torch.from_numpy(y),
        kid_subsets=subsets,
        kid_subset_size=size,
        rng_seed=seed,
        verbose=False,
    )
    ours = kernel_distance(x, y, subsets=subsets, subset_size=size, seed=seed)
    assert ours.value == pytest.approx(theirs["kernel_inception_distance_mean"], rel=1e-9)
    spread = theirs["kernel_inception_distance_std"]
    assert ours.spread == pytest.approx(spread, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("subsets", [2, 50])
def test_both_ways_of_summing_subsets_agree(subsets, monkeypatch):
    """A few small subsets are cut out; many are columns of one pass over the kernel matrix."""
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((1300, 64)), rng.standard_normal((400, 64))
    drawn = kernel._draws(1300, 400, subsets, 300, 0)
    a, b = kernel.as_pair(x, y)
    cubic = kernel._Polynomial.of(64, 3, None, 1.0)
    passes = []
    original = kernel._distances
    monkeypatch.setattr(
        kernel, "_distances", lambda real, *rest: passes.append(len(real)) or original(real, *rest)
    )
    got = kernel._subset_values(a, b, cubic, drawn)
    assert passes == ([300, 300] if subsets == 2 else [1300])
    direct = [kernel_distance(x[i], y[j], subsets=None).value for i, j in drawn]
    assert got == pytest.approx(direct, rel=1e-9)


def test_other_kernels():
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((20, 4)), rng.standard_normal((25, 4)) + 0.5
    # The kernel x.y alone has the squared distance of means, less what each side's noise adds.
    linear = kernel_distance(x, y, degree=1, gamma=1.0, coef0=0.0, subsets=None).value
    noise = x.var(axis=0, ddof=1).sum() / 20 + y.var(axis=0, ddof=1).sum() / 25
    assert linear == pytest.approx(((x.mean(axis=0) - y.mean(axis=0)) ** 2).sum() - noise)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 20), m=st.integers(2, 20))
def test_symmetric_and_independent_of_order(seed, n, m):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, 3)), rng.standard_normal((m, 3)) + 0.3
    value = pytest.approx(kernel_distance(x, y, subsets=None).value, rel=1e-9, abs=1e-12)
    assert kernel_distance(y, x, subsets=None).value == value
    assert kernel_distance(rng.permutation(x), rng.permutation(y), subsets=None).value == value


def test_influence_is_the_derivative_in_the_weight_of_a_sample():
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((1100, 3)), rng.standard_normal((1200, 3)) + 0.4
    influence = kernel_influence(x, y)
    assert influence.shape == (1200,)
    assert influence.mean() == pytest.approx(0, abs=1e-12)
    k_yy, k_xy = (y @ y.T / 3 + 1) ** 3, (x @ y.T / 3 + 1) ** 3
    np.fill_diagonal(k_yy, 0)
    witness = k_yy.sum(axis=1) / 1199 - k_xy.mean(axis=0)
    assert np.allclose(influence, 2 * (witness - witness.mean()), rtol=1e-9, atol=1e-12)
    # Leaving a sample out takes its influence / (n - 1) off the value.
    value = kernel_distance(x, y, subsets=None).value
    for i in (0, 600):
        without = kernel_distance(x, np.delete(y, i, axis=0), subsets=None).value
        assert (value - without) * 1199 == pytest.approx(influence[i], rel=1e-2)


def witness_of(x: np.ndarray, y: np.ndarray, in_x: np.ndarray, in_y: np.ndarray) -> np.ndarray:
    k_yy, k_xy = ((v @ y.T / y.shape[1] + 1) ** 3 for v in (y, x))
    np.fill_diagonal(k_yy, 0)
    others = len(in_y) - np.isin(np.arange(len(y)), in_y)
    return k_yy[:, in_y].sum(axis=1) / others - k_xy[in_x].mean(axis=0)


@pytest.mark.parametrize(("n", "m"), [(1500, 2600), (1500, 900), (900, 2600), (900, 800)])
def test_large_sides_enter_the_witness_by_a_seeded_subsample(n, m, monkeypatch):
    monkeypatch.setattr(kernel, "WITNESS_WHOLE", 1000)
    monkeypatch.setattr(kernel, "WITNESS_SAMPLE", 700)
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((n, 4)), rng.standard_normal((m, 4)) + 0.4
    got = kernel_estimate(x, y, seed=3)
    assert (got.real_used, got.fake_used) == tuple(700 if v > 1000 else v for v in (n, m))
    draw = np.random.RandomState(3)
    drawn = [draw.choice(v, 700, replace=False) if v > 1000 else np.arange(v) for v in (n, m)]
    witness = witness_of(x, y, *drawn)
    assert np.allclose(got.influence, 2 * (witness - witness.mean()), rtol=1e-9, atol=1e-12)
    assert np.array_equal(got.influence, kernel_influence(x, y, seed=3))
    assert np.array_equal(got.influence, kernel_influence(x, y)) == (max(n, m) <= 1000)


def test_a_subsample_finds_the_influences_and_the_error_of_all_rows(monkeypatch):
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((2500, 64)), rng.standard_normal((2500, 64)) * 1.1 + 0.2
    whole = kernel_estimate(x, y)
    assert (whole.real_used, whole.fake_used) == (2500, 2500)
    monkeypatch.setattr(kernel, "WITNESS_WHOLE", 2000)
    monkeypatch.setattr(kernel, "WITNESS_SAMPLE", 1000)
    part = kernel_estimate(x, y)
    assert np.corrcoef(whole.influence, part.influence)[0, 1] > 0.97
    assert part.standard_error == pytest.approx(whole.standard_error, rel=0.06)


def test_counts_and_options_are_checked():
    x = np.ones((3, 2))
    with pytest.raises(TooFewSamplesError, match="real side has 1 samples, .* at least 2"):
        kernel_distance(x[:1], x)
    with pytest.raises(InputError, match="subsets=0"):
        kernel_distance(x, x, subsets=0)
    with pytest.raises(InputError, match="subset_size=1"):
        kernel_distance(x, x, subset_size=1)
    with pytest.raises(InputError, match="degree=0"):
        kernel_distance(x, x, degree=0)
