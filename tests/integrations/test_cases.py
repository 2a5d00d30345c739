"""Faults that users of other tools met with several ranks, retold with their right answers."""

import itertools

import numpy as np
import pytest

import genmetrics as gm
from genmetrics.core.errors import InputError
from tests.integrations.toys import Frames, give, joined

SCORES = [0.1, 0.2, 0.3, 0.4, 1.0]


def spread(names, scores, world, batch):
    """Metrics of as many ranks; rank r takes every world-th sample from r on, in batches."""
    ranks = [Frames() for _ in range(world)]
    for rank, metric in enumerate(ranks):
        mine = range(rank, len(names), world)
        for start in range(0, len(mine), batch):
            chosen = mine[start : start + batch]
            give(metric, [names[i] for i in chosen], [scores[i] for i in chosen])
    return ranks


def test_five_scores_on_two_ranks_are_five_scores():
    """A sampler that pads counted the first one twice: 0.35 instead of 0.4."""
    result = joined(spread(list("abcde"), SCORES, 2, 2)).compute()
    assert (result.n, result.value) == (5, 0.4)


def test_the_samples_seen_are_the_samples_given():
    for world, n, batch in itertools.product(range(1, 5), range(1, 14), range(1, 6)):
        names = [f"s{i}" for i in range(n)]
        scores = np.random.default_rng(n).random(n)
        whole = Frames()
        give(whole, names, scores)
        result, expected = joined(spread(names, scores, world, batch)).compute(), whole.compute()
        assert sorted(result.per_sample) == sorted(names)
        assert result == expected, (world, n, batch)


def test_a_sample_that_a_sampler_repeated_is_named():
    ranks = spread(list("abcde"), SCORES, 2, 2)
    give(ranks[1], ["a"], [0.1])  # what padding to an even length does
    with pytest.raises(InputError, match="rank 1: sample id 'a' was given twice"):
        joined(ranks)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_a_frechet_distance_is_of_all_ranks(world):
    """Padding gave 1.130757, dropping the rest 1.670593, the mean of two ranks 2.584492."""
    rng = np.random.default_rng(11)
    real, fake = rng.standard_normal((10, 4)), rng.standard_normal((10, 4))
    sides = []
    for rows in (real, fake):
        total = gm.stats.Moments(4)
        for rank in range(world):
            total.merge(gm.stats.Moments(4).update(rows[rank::world]))
        sides.append(total)
    expected = pytest.approx(1.109895, abs=1e-6)
    whole = gm.stats.frechet_distance(real, fake)
    assert whole == expected
    assert gm.stats.frechet_distance_moments(*sides) == pytest.approx(whole, rel=1e-9)

    ranks = [gm.FDLite(device="cpu", infinity_points=0) for _ in range(world)]
    for rank, metric in enumerate(ranks):
        for rows, side in ((real, True), (fake, False)):
            mine = [gm.Sample(id=f"{i}") for i in range(rank, 10, world)]
            features = {metric.output: rows[rank::world]}
            metric.update_features(mine, {metric.role: features}, real=side)
    result = joined(ranks).compute()
    assert (result.n, result.n_reference) == (10, 10)
    assert result.value == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(("n", "batch"), [(512, 16), (97, 16), (99, 16)])
def test_a_full_last_batch_is_kept(n, batch):
    names = [f"s{i}" for i in range(n)]
    assert joined(spread(names, np.arange(n), 2, batch)).compute().n == n


def test_texts_and_nested_lists_travel_as_they_are():
    """Nine records of id, prompt and lists of boxes of different lengths, five a batch."""
    records = [
        gm.Sample(id=f"r{i}", prompt=f"prompt {i}", spec={"boxes": [[i, j, 0.5] for j in range(i)]})
        for i in range(9)
    ]
    ranks = [Frames() for _ in range(2)]
    for rank, metric in enumerate(ranks):
        mine = records[rank::2]
        metric.update_features(mine, {"toy": {"score": np.zeros(len(mine))}})
    ordered, _ = joined(ranks)._rows.ordered()
    assert ordered == records


@pytest.mark.parametrize("n", [1, 3])
def test_fewer_samples_than_ranks(n):
    names, scores = list("abc")[:n], SCORES[:n]
    one, four = (joined(spread(names, scores, world, 2)).compute() for world in (1, 4))
    assert four == one


@pytest.mark.parametrize("world", [1, 2])
def test_one_rank_and_many_aggregate_alike(world):
    """A path for several ranks took each video's last frame only: 0.7 instead of 0.5."""
    names = [f"{video}/{frame}" for video in "ab" for frame in range(3)]
    result = joined(spread(names, [0.2, 0.4, 0.9, 0.5, 0.5, 0.5], world, 2)).compute()
    assert result.value == pytest.approx(0.5, abs=1e-15)
    for video in "ab":
        frames = [result.per_sample[f"{video}/{frame}"] for frame in range(3)]
        assert np.mean(frames) == pytest.approx(0.5, abs=1e-15)


def test_rows_of_ragged_ranks_keep_their_type_and_count():
    ranks = [Frames() for _ in range(3)]
    for rank, count in ((0, 3), (1, 5)):
        mine = [gm.Sample(id=f"{rank}/{i}") for i in range(count)]
        ranks[rank].update_features(mine, {"toy": {"flags": np.ones((count, 4), bool)}})
    _, features = joined(ranks)._rows.ordered()
    flags = features["toy"]["flags"]
    assert flags.dtype == bool
    assert flags.shape == (8, 4) and flags.all()
