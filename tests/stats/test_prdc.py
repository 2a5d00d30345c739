import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, TooFewSamplesError
from genmetrics.stats import prdc
from tests.stats.golden import golden_cases


def four(real: np.ndarray, fake: np.ndarray, k: int = 5) -> tuple[float, float, float, float]:
    got = prdc(real, fake, k=k)
    return got.precision, got.recall, got.density, got.coverage


def plain(real: np.ndarray, fake: np.ndarray, k: int) -> tuple[float, float, float, float]:
    """The definition on whole matrices."""

    def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=-1))

    at_real = np.sort(distances(real, real), axis=1)[:, k]
    at_fake = np.sort(distances(fake, fake), axis=1)[:, k]
    across = distances(real, fake)
    inside = across < at_real[:, None]
    return (
        inside.any(axis=0).mean(),
        (across < at_fake).any(axis=1).mean(),
        inside.sum(axis=0).mean() / k,
        (across.min(axis=1) < at_real).mean(),
    )


@golden_cases
@pytest.mark.parametrize("k", [3, 5])
def test_golden_values(golden, k):
    expected = golden.expected[f"prdc_k{k}"]
    assert four(golden.real, golden.fake, k) == pytest.approx(tuple(expected.values()), rel=1e-12)


def test_worked_example():
    got = prdc(np.array([[0.0], [1.0], [3.0]]), np.array([[0.5], [10.0]]), k=1)
    assert (got.precision, got.recall, got.density) == (0.5, 1.0, 1.0)
    assert got.coverage == pytest.approx(2 / 3)
    assert got.inside.tolist() == [True, False]
    assert got.density_counts.tolist() == [2, 0]
    assert got.recalled.tolist() == [True, True, True]
    assert got.covered.tolist() == [True, True, False]


@pytest.mark.parametrize(("n", "d"), [(200, 8), (1500, 8), (1500, 64), (1100, 2048)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_sets_give_exactly_one_four_times(n, d, dtype):
    x = np.random.default_rng(n).standard_normal((n, d)).astype(dtype)
    assert four(x, x.copy()) == (1.0, 1.0, 1.0, 1.0)
    assert four(x, np.random.default_rng(1).permutation(x)) == (1.0, 1.0, 1.0, 1.0)


def test_identical_features_have_empty_balls():
    still = np.ones((20, 3))
    assert four(still, still) == (0.0, 0.0, 0.0, 0.0)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(4, 40), m=st.integers(4, 40), k=st.integers(1, 3))
def test_equals_the_definition_and_swaps_precision_and_recall(seed, n, m, k):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, 3)), rng.standard_normal((m, 3)) * 1.2
    got = four(x, y, k)
    assert got == pytest.approx(plain(x, y, k), rel=1e-12)
    assert four(y, x, k)[:2] == got[1::-1]
    assert four(rng.permutation(x), rng.permutation(y), k) == pytest.approx(got, rel=1e-12)
    assert four(x * 2.0**40, y * 2.0**40, k) == got


@pytest.mark.slow
def test_published_example_of_ten_thousand_normals():
    """The README of clovaai/prdc prints these four values for two random sets of 10,000 x 1000."""
    real, fake = np.random.default_rng(0).standard_normal((2, 10_000, 1000), dtype=np.float32)
    assert four(real, fake) == pytest.approx((0.4772, 0.4705, 1.0555, 0.9735), abs=0.02)


def test_counts_and_options_are_checked():
    x = np.zeros((5, 2))
    with pytest.raises(TooFewSamplesError, match="fake side has 5 samples, the 5-th .* at least 6"):
        prdc(np.zeros((6, 2)), x)
    with pytest.raises(InputError, match="k=0"):
        prdc(x, x, k=0)
