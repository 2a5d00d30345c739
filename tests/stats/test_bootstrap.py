import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError
from genmetrics.stats import mean_interval, normal_interval


def normals(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n)


def test_the_interval_of_a_mean_is_about_two_standard_errors_wide():
    x = normals(400) + 3
    lo, hi, level = mean_interval(x)
    assert level == 0.95
    half = 1.96 * x.std() / 20
    assert (lo, hi) == pytest.approx((x.mean() - half, x.mean() + half), abs=0.1 * half)
    narrow = mean_interval(x, level=0.5)
    assert lo < narrow[0] < x.mean() < narrow[1] < hi


def test_right_or_wrong_scores_have_the_binomial_interval():
    x = np.repeat([0.0, 1.0], [300, 700])  # few values: drawn by how often each comes
    lo, hi, _ = mean_interval(x)
    half = 1.96 * math.sqrt(0.3 * 0.7 / 1000)
    assert (lo, hi) == pytest.approx((0.7 - half, 0.7 + half), abs=0.05 * half)


def test_images_of_one_prompt_stay_together():
    prompts = np.repeat(np.arange(50), 4)
    x = normals(50)[prompts]  # four images of a prompt all alike
    together, apart = mean_interval(x, clusters=prompts), mean_interval(x)
    assert together[1] - together[0] == pytest.approx(2 * (apart[1] - apart[0]), rel=0.1)
    once = mean_interval(x[::4])
    assert together[:2] == pytest.approx(once[:2], abs=0.1 * (once[1] - once[0]))


def test_clusters_of_unequal_size_weigh_by_their_images():
    x = np.array([1.0, 1, 1, 1, 0, 0, 0.5])
    lo, hi, _ = mean_interval(x, clusters=["a"] * 4 + ["b"] * 2 + ["c"])
    assert (lo, hi) == (0.0, 1.0)  # only a, or only b, is drawn often enough


def test_groups_weigh_the_same_and_keep_their_number_of_prompts():
    many, few = normals(900) * 0.1, normals(100, seed=1) * 3 + 10
    x, groups = np.concatenate([many, few]), ["many"] * 900 + ["few"] * 100
    lo, hi, _ = mean_interval(x, groups=groups)
    half = 1.96 * 0.5 * math.hypot(many.std() / 30, few.std() / 10)
    centre = (many.mean() + few.mean()) / 2
    assert (lo, hi) == pytest.approx((centre - half, centre + half), abs=0.1 * half)


def test_a_group_of_one_prompt_has_no_interval():
    """How much that group would vary is not known; zero would be a guess."""
    lo, hi, _ = mean_interval([1.0, 2.0, 3.0, 50.0], groups=["a", "a", "a", "b"])
    assert math.isnan(lo)
    assert math.isnan(hi)


def test_a_cluster_may_feed_several_groups():
    prompt = np.arange(60)
    score = normals(60)
    x = np.concatenate([score, -score])
    groups = ["up"] * 60 + ["down"] * 60
    lo, hi, _ = mean_interval(x, clusters=np.concatenate([prompt, prompt]), groups=groups)
    # The two groups move against each other exactly when prompts stay together.
    assert (lo, hi) == pytest.approx((0, 0), abs=1e-12)
    lo, hi, _ = mean_interval(x, groups=groups)
    assert hi - lo > 0.1


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e8 + 0.1])
def test_exact_when_constant(value):
    lo, hi, _ = mean_interval([value] * 7, clusters=[0, 0, 1, 1, 1, 2, 3])
    assert lo == hi == value
    lo, hi, _ = mean_interval([value, value, 0.7, 0.7], groups=["a", "a", "b", "b"])
    assert lo == hi == pytest.approx((value + 0.7) / 2)


def test_failed_samples_are_left_out():
    x = [1.0, 2.0, math.nan, 3.0, math.nan]
    clusters = ["a", "b", "b", "c", "d"]
    got = mean_interval(x, clusters=clusters)
    assert got == mean_interval([1.0, 2.0, 3.0], clusters=["a", "b", "c"])


def test_fewer_than_two_clusters_have_no_interval():
    for x, clusters in (([], None), ([math.nan], None), ([1.0], None), ([1.0, 0.0], ["a", "a"])):
        lo, hi, level = mean_interval(x, clusters=clusters)
        assert math.isnan(lo)
        assert math.isnan(hi)
        assert level == 0.95


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 40))
def test_independent_of_order(seed, n):
    rng = np.random.default_rng(seed)
    x, clusters, groups = rng.random(n), rng.integers(0, 9, n), rng.integers(0, 3, n)
    got = mean_interval(x, clusters=clusters, groups=groups, draws=200)
    order = rng.permutation(n)
    again = mean_interval(
        x[order], clusters=list(clusters[order]), groups=list(groups[order]), draws=200
    )
    assert np.array_equal(got, again, equal_nan=True)
    assert not got[0] > x.max()
    assert not got[1] < x.min()


def test_seeded():
    x = normals(30)
    assert mean_interval(x, seed=1) == mean_interval(x, seed=1)
    assert mean_interval(x, seed=1) != mean_interval(x, seed=2)


def test_coverage_of_the_interval():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(300):
        lo, hi, _ = mean_interval(rng.exponential(size=60), draws=500, level=0.9)
        hits += lo <= 1 <= hi
    assert 0.84 <= hits / 300 <= 0.94  # 0.9 less the few per cent a skewed set costs


def test_normal_interval():
    assert normal_interval(2.0, 0.5) == pytest.approx((1.02001801, 2.97998199, 0.95))
    assert normal_interval(2.0, 0.0, 0.5) == (2.0, 2.0, 0.5)
    assert math.isnan(normal_interval(2.0, math.nan)[0])


def test_options_are_checked():
    with pytest.raises(InputError, match="level=95; pass a probability"):
        mean_interval([1, 2], level=95)
    with pytest.raises(InputError, match="level=0"):
        normal_interval(1, 1, 0)
    with pytest.raises(InputError, match="1 clusters for 2 values"):
        mean_interval([1, 2], clusters=["a"])
    with pytest.raises(InputError, match="draws=0"):
        mean_interval([1, 2], draws=0)
    with pytest.raises(InputError, match="one number a sample"):
        mean_interval(np.ones((2, 2)))
    with pytest.raises(InputError, match="value 1 is inf"):
        mean_interval([1, math.inf])
