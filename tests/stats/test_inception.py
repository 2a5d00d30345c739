import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, TooFewSamplesError
from genmetrics.stats import inception_influence, inception_score


def probabilities(n: int, classes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(classes, 0.3), size=n)


def test_closed_forms():
    assert inception_score(np.full((20, 8), 1 / 8)) == pytest.approx((1.0, 0.0))
    assert inception_score(np.tile(np.eye(5), (4, 1)), splits=1) == pytest.approx((5.0, 0.0))
    p = np.array([[0.9, 0.1], [0.3, 0.7]])
    q = p.mean(axis=0)
    assert inception_score(p, splits=1).mean == pytest.approx(
        np.exp((p * np.log(p / q)).sum(axis=1).mean())
    )


@pytest.mark.parametrize("n", [50, 57])
@pytest.mark.parametrize("splits", [1, 10])
def test_equals_torch_fidelity_with_the_same_seed(n, splits):
    from torch_fidelity.metric_isc import isc_features_to_metric

    logits = torch.from_numpy(np.random.default_rng(n).standard_normal((n, 12)) * 3)
    theirs = isc_features_to_metric(logits, splits=splits, rng_seed=2020)
    ours = inception_score(logits.softmax(dim=1), splits=splits, seed=2020)
    assert ours.mean == pytest.approx(theirs["inception_score_mean"], rel=1e-9)
    assert ours.spread == pytest.approx(theirs["inception_score_std"], rel=1e-9, abs=1e-12)


def test_files_sorted_by_class_are_shuffled_before_they_are_split():
    p = np.repeat(np.eye(10) * 0.9 + 0.01, 100, axis=0)
    p /= p.sum(axis=1, keepdims=True)
    assert inception_score(p).mean == pytest.approx(inception_score(p, splits=1).mean, rel=0.05)


def test_fewer_images_than_splits_names_both():
    with pytest.raises(TooFewSamplesError, match="5 samples for splits=10; .* splits=5 or fewer"):
        inception_score(np.full((5, 4), 0.25))
    with pytest.raises(InputError, match="splits=0"):
        inception_score(np.full((5, 4), 0.25), splits=0)


def test_logits_are_not_taken_for_probabilities():
    with pytest.raises(InputError, match="row 1 .* sum 1.5; pass softmax outputs"):
        inception_score(np.array([[0.5, 0.5], [0.75, 0.75]]), splits=1)
    with pytest.raises(InputError, match="row 0 .* minimum -0.5"):
        inception_score(np.array([[-0.5, 1.5]]), splits=1)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), classes=st.integers(2, 9))
def test_between_one_and_the_number_of_classes(seed, n, classes):
    p = probabilities(n, classes, seed)
    score = inception_score(p, splits=1).mean
    assert 1 - 1e-9 <= score <= classes + 1e-9
    shuffled = np.random.default_rng(seed).permutation(p)
    assert inception_score(shuffled, splits=1).mean == pytest.approx(score, rel=1e-12)


def test_influence_is_the_derivative_in_the_weight_of_a_sample():
    p = probabilities(60, 6)
    influence = inception_influence(p, splits=1)

    def weighted(i: int, step: float) -> float:
        w = np.full(60, (1 - step) / 60)
        w[i] += step
        return float(np.exp(w @ (p * np.log(p / (w @ p))).sum(axis=1)))

    for i in (0, 31):
        slope = (weighted(i, 1e-6) - weighted(i, -1e-6)) / 2e-6
        assert influence[i] == pytest.approx(slope, rel=1e-5)
    parts = inception_influence(p, splits=10)
    assert parts.shape == (60,)
    assert parts.mean() == pytest.approx(0, abs=1e-12)
