import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, TooFewSamplesError
from genmetrics.stats import Moments, frechet_distance_moments


def streamed(x: np.ndarray, batch: int) -> Moments:
    moments = Moments(x.shape[1])
    for start in range(0, len(x), batch):
        moments.update(x[start : start + batch])
    return moments


def test_mean_and_covariance_are_those_of_numpy():
    x = np.random.default_rng(0).standard_normal((50, 4)) * 3 + 7
    moments = Moments(4).update(x)
    assert moments.n == 50
    assert moments.mean == pytest.approx(x.mean(axis=0), rel=1e-12)
    assert moments.cov == pytest.approx(np.cov(x.T), rel=1e-12)


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
def test_batch_size_does_not_change_one_bit(batch):
    x = np.random.default_rng(1).standard_normal((1000, 8)) + 100
    whole = Moments(8).update(x)
    assert np.array_equal(streamed(x, batch).mean, whole.mean)
    assert np.array_equal(streamed(x, batch).cov, whole.cov)


def test_batch_size_does_not_change_one_bit_beyond_one_block():
    x = np.random.default_rng(2).standard_normal((9000, 3))
    parts = [streamed(x, batch) for batch in (999, 4096, 9000)]
    assert all(np.array_equal(part.cov, parts[0].cov) for part in parts)
    assert parts[0].cov == pytest.approx(np.cov(x.T), rel=1e-11)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(0, 60), max_size=3))
def test_merged_shards_equal_a_single_pass(seed, cuts):
    x = np.random.default_rng(seed).standard_normal((60, 5)) + 1e3
    merged = Moments(5)
    for shard in np.split(x, sorted(cuts)):
        merged.merge(Moments(5).update(shard))
    whole = Moments(5).update(x)
    assert merged.n == 60
    assert merged.mean == pytest.approx(whole.mean, rel=1e-12)
    assert merged.cov == pytest.approx(whole.cov, rel=1e-9, abs=1e-9)


def test_merging_into_nothing_moves_no_bit():
    x = np.random.default_rng(5).standard_normal((50, 4)) + 1e3
    whole = Moments(4).update(x)
    merged = Moments(4).merge(whole)
    assert np.array_equal(merged.cov, whole.cov)
    merged.update(x)
    assert whole.n == 50  # it is a copy
    assert np.array_equal(merged.cov, Moments(4).update(x).update(x).cov)


def test_reading_does_not_change_what_follows():
    x = np.random.default_rng(3).standard_normal((100, 4))
    watched = Moments(4)
    for row in x:
        watched.update(row[None])
        if watched.n > 1:
            watched.cov  # noqa: B018
    assert np.array_equal(watched.cov, Moments(4).update(x).cov)


def test_a_stored_and_resumed_stream_has_the_same_bits():
    x = np.random.default_rng(4).standard_normal((9000, 3))
    resumed = Moments(3)
    resumed.load_state_dict(Moments(3).update(x[:5000]).state_dict())
    resumed.update(x[5000:])
    whole = Moments(3).update(x)
    assert resumed.n == 9000
    assert np.array_equal(resumed.cov, whole.cov)
    assert {name: type(value) for name, value in whole.state_dict().items()} == {
        "n": int,
        "mean": np.ndarray,
        "scatter": np.ndarray,
        "pending": np.ndarray,
    }


def test_a_state_of_tensors_stays_as_it_is():
    x = np.random.default_rng(5).standard_normal((12000, 3))
    state = Moments(3).update(x[:5000]).state_dict()
    tensors = {name: torch.as_tensor(value) for name, value in state.items()}
    for _ in range(2):
        resumed = Moments(3)
        resumed.load_state_dict(tensors)
        resumed.update(x[5000:])
        assert np.array_equal(resumed.cov, Moments(3).update(x).cov)


def test_rows_may_be_overwritten_after_an_update():
    x = torch.ones(4, 2, dtype=torch.float64)
    moments = Moments(2).update(x)
    x.zero_()
    assert moments.mean.tolist() == [1.0, 1.0]


def test_published_statistics_are_taken_as_they_are():
    x = np.random.default_rng(5).standard_normal((200, 4))
    seen = Moments(4).update(x)
    rebuilt = Moments.from_statistics(seen.n, seen.mean, seen.cov.astype(np.float32))
    assert rebuilt.cov == pytest.approx(seen.cov, rel=1e-6)
    assert frechet_distance_moments(seen, rebuilt) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("n", "mean", "cov", "error", "message"),
    [
        (1, np.zeros(2), np.eye(2), TooFewSamplesError, "statistics of 1 samples"),
        (9, np.zeros(3), np.eye(2), InputError, r"shape \(3,\) does not fit cov of shape \(2, 2\)"),
        (9, np.array([0, np.nan]), np.eye(2), InputError, "not finite"),
        (9, np.zeros(2), np.array([[1.0, 5.0], [0.0, 1.0]]), InputError, "not symmetric"),
    ],
)
def test_statistics_that_cannot_be_right_are_refused(n, mean, cov, error, message):
    with pytest.raises(error, match=message):
        Moments.from_statistics(n, mean, cov)


def test_dimensions_and_counts_are_checked():
    with pytest.raises(InputError, match="features have 3 dimensions, these moments 4"):
        Moments(4).update(np.ones((2, 3)))
    with pytest.raises(InputError, match="4 dimensions but fake features have 3"):
        Moments(4).merge(Moments(3))
    with pytest.raises(TooFewSamplesError, match="1 samples; a covariance needs at least 2"):
        Moments(4).update(np.ones((1, 4))).cov  # noqa: B018
    with pytest.raises(InputError, match="state has 3 dimensions, these moments 4"):
        Moments(4).load_state_dict(Moments(3).state_dict())
