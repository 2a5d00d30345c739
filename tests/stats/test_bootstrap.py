import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError
from genmetrics.stats import bootstrap, mean_interval, mean_of_groups, normal_interval


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


def plain_interval(x, clusters, groups, draws, seed):
    """The definition without any shortcut, with the same draws."""
    order = np.argsort(x, kind="stable")
    x, clusters, groups = x[order], clusters[order], groups[order]
    labels = sorted(set(groups))
    mean = {g: x[groups == g][0] + (x[groups == g] - x[groups == g][0]).mean() for g in labels}
    table = np.array(
        [
            [*(sums[:, 0]), *(sums[:, 1])]
            for c in sorted(set(clusters))
            for sums in [
                np.array(
                    [
                        [(x[own] - mean[g]).sum(), own.sum()]
                        for g in labels
                        for own in [(clusters == c) & (groups == g)]
                    ]
                )
            ]
        ]
    )
    table = table[np.lexsort(table.T[::-1])]
    rng, totals = np.random.default_rng(seed), np.zeros((draws, table.shape[1]))
    feeds = table[:, len(labels) :] > 0
    for pattern in np.unique(feeds, axis=0):
        rows = table[(feeds == pattern).all(axis=1)]
        totals += rows[rng.integers(0, len(rows), size=(draws, len(rows)))].sum(axis=1)
    offsets = (totals[:, : len(labels)] / totals[:, len(labels) :]).mean(axis=1)
    return np.mean(list(mean.values())) + np.quantile(offsets, [0.025, 0.975])


@pytest.mark.parametrize("seed", range(5))
def test_every_cluster_is_drawn_among_those_that_feed_the_same_groups(seed):
    rng = np.random.default_rng(seed)
    n = 200
    x, clusters, groups = rng.standard_normal(n), rng.integers(0, 90, n), rng.integers(0, 3, n)
    expected = plain_interval(x, clusters, groups, 50, seed)
    got = mean_interval(x, clusters=clusters, groups=groups, draws=50, seed=seed)[:2]
    assert got == pytest.approx(tuple(expected), rel=1e-12)


@pytest.mark.parametrize(
    ("clusters", "groups", "expected"),
    [
        (None, None, (-0.10929686835038505, 0.1314611303288159)),
        (60, None, (-0.11530652340457567, 0.126634930380176)),
        (None, 11, (-0.1135084015973018, 0.1290750273588086)),
        (60, 3, (-0.11010402328711279, 0.13808010385381977)),
    ],
)
def test_recorded_intervals(clusters, groups, expected):
    labels = [None if n is None else np.arange(200) * 7 % n for n in (clusters, groups)]
    got = mean_interval(normals(200), clusters=labels[0], groups=labels[1], draws=300)
    assert got[:2] == pytest.approx(expected, rel=1e-12)


def test_many_groups_cost_what_their_values_cost():
    """A table of clusters by groups would take 16 GB, and a pass over all values for each group
    hours."""
    n = 100_000
    x, groups = normals(n), [f"task {i % 10_000}" for i in range(n)]
    lo, hi, _ = mean_interval(x, groups=groups, draws=100)
    half = 1.96 * np.sqrt(0.9 / n)  # ten values a group vary by 9/10 around their own mean
    assert (lo, hi) == pytest.approx((x.mean() - half, x.mean() + half), abs=0.5 * half)
    assert mean_of_groups(x, groups) == pytest.approx(x.mean(), abs=1e-12)


def test_the_mean_of_groups_has_the_bits_of_each_groups_own_mean():
    x = normals(5000) * 1e3
    labels = [f"{i * i % 37}" for i in range(5000)]
    array = np.asarray(labels)
    expected = float(np.mean([x[array == label].mean() for label in sorted(set(labels))]))
    assert mean_of_groups(x, labels) == expected
    with pytest.raises(InputError, match="1 groups for 2 values"):
        mean_of_groups(np.ones(2), ["a"])


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
    with pytest.raises(InputError, match="level=95; pass a finite number above 0 and below 1"):
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


@pytest.mark.parametrize("shape", ["normal", "skewed", "clusters"])
def test_many_clusters_are_drawn_as_their_limit(monkeypatch, shape):
    """The bounds of both ways agree within the noise of the draws: 3 % of the half width."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal(6000) if shape == "normal" else rng.exponential(size=6000)
    labels = (np.arange(6000) + rng.integers(0, 2, 6000)).tolist() if shape == "clusters" else None
    groups = ["a" if i % 3 else "b" for i in range(6000)] if shape == "skewed" else None
    drawn = mean_interval(values, clusters=labels, groups=groups)
    monkeypatch.setattr(bootstrap, "MANY", 1000)
    limit = mean_interval(values, clusters=labels, groups=groups)
    half = (drawn[1] - drawn[0]) / 2
    assert limit != drawn
    assert limit[:2] == pytest.approx(drawn[:2], abs=0.03 * half)
    constant = mean_interval(np.full(6000, 0.3))
    assert constant[0] == constant[1] == 0.3
