import numpy as np
import pytest

from genmetrics.core.errors import TooFewSamplesError
from genmetrics.stats import authpct, authpct_estimate
from tests.stats.golden import golden_cases


@golden_cases
def test_golden_values(golden):
    got = authpct(golden.real, golden.fake)
    assert got == pytest.approx(golden.expected["authpct"], rel=1e-6)


def test_worked_example():
    # 0.1 is nearer to 0 than 0's nearest training sample is; 6 is further from 3 than 1 is.
    got = authpct_estimate(np.array([[0.0], [1.0], [3.0]]), np.array([[0.1], [6.0]]))
    assert got.value == 50.0
    assert got.authentic.tolist() == [False, True]
    assert got.nearest_train.tolist() == [0, 2]
    assert got.influence.tolist() == [-50.0, 50.0]
    assert got.standard_error == 50.0


def test_copies_are_not_authentic_and_far_samples_are():
    train = np.random.default_rng(0).standard_normal((300, 8))
    assert authpct(train, train[:50]) == 0.0
    assert authpct(train, train[:50] + 100) == 100.0


def test_a_tie_is_not_authentic():
    assert authpct(np.array([[0.0], [2.0]]), np.array([[-2.0]])) == 0.0


def test_counts_are_checked():
    with pytest.raises(
        TooFewSamplesError, match="train side has 1 samples, AuthPct needs at least 2"
    ):
        authpct(np.ones((1, 2)), np.ones((4, 2)))
