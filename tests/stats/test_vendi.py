import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, TooFewSamplesError
from genmetrics.stats import vendi, vendi_estimate
from tests.stats.golden import golden_cases, unit


@golden_cases
def test_golden_values(golden):
    assert vendi(golden.fake) == pytest.approx(golden.expected["vendi_fake"], rel=1e-9)
    assert vendi_estimate(golden.fake).value == pytest.approx(vendi(golden.fake), rel=1e-12)


def test_closed_forms():
    assert vendi(np.eye(7)) == pytest.approx(7)
    assert vendi(np.ones((7, 3))) == pytest.approx(1)
    # Three of one direction, one of another: exp of the entropy of (3/4, 1/4).
    rows = np.array([[1.0, 0], [2, 0], [5, 0], [0, 3]])
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert vendi(rows) == pytest.approx(np.exp(entropy))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 25), d=st.integers(1, 25))
def test_bounded_and_independent_of_order_length_and_repetition(seed, n, d):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) + 0.3
    value = vendi(x)
    assert 1 - 1e-9 <= value <= min(n, d) + 1e-9
    same = pytest.approx(value, rel=1e-9)
    assert vendi(rng.permutation(x)) == same
    assert vendi(x * rng.uniform(0.1, 9, (n, 1))) == same
    assert vendi(np.vstack([x, x, x])) == same


@pytest.mark.parametrize(("n", "d"), [(120, 6), (40, 90)])
def test_influence_is_the_derivative_in_the_weight_of_a_sample(n, d):
    x = np.random.default_rng(0).standard_normal((n, d)) + 0.3
    influence = vendi_estimate(x).influence
    assert influence.mean() == pytest.approx(0, abs=1e-9)
    directions = unit(x)

    def weighted(i: int, step: float) -> float:
        w = np.full(n, (1 - step) / n)
        w[i] += step
        scaled = directions * np.sqrt(w)[:, None]
        values = np.linalg.svd(scaled, compute_uv=False) ** 2
        return float(np.exp(-(values * np.log(values)).sum()))

    for i in (0, n - 1):
        slope = (weighted(i, 1e-5) - weighted(i, -1e-5)) / 2e-5
        assert influence[i] == pytest.approx(slope, rel=1e-5)


def test_rows_without_direction_are_named():
    with pytest.raises(InputError, match="row 1 of the features is all zero"):
        vendi(np.array([[1.0, 0.0], [0.0, 0.0]]))
    with pytest.raises(TooFewSamplesError, match="0 samples, the Vendi score needs at least 1"):
        vendi(np.ones((0, 3)))
