"""What every metric of sets must do, whatever its formula."""

from __future__ import annotations

import json

import numpy as np
import pytest

import genmetrics as gm
from genmetrics.core.errors import InputError, ProtocolMismatchError, TooFewSamplesError
from genmetrics.core.registry import create, parse, registered
from genmetrics.metrics.base import SetMetric

IDS = sorted(name for name, metric in registered().items() if issubclass(metric, SetMetric))


def build(name):
    (request,) = parse([name])
    return create(request)


def filled(name, feed, two_sets):
    metric = build(name)
    real, fake = two_sets
    if metric.needs_reference:
        feed(metric, real, real=True)
    feed(metric, fake)
    return metric


@pytest.mark.parametrize("name", IDS)
def test_it_gives_a_value_an_interval_and_an_influence_an_image(name, feed, two_sets):
    result = filled(name, feed, two_sets).compute()
    assert result.status == "ok" and np.isfinite(result.value)
    lo, hi, level = result.interval
    assert lo <= result.value <= hi and level == 0.95
    assert lo < hi
    assert len(result.per_sample) == result.n == 90
    assert np.isfinite(list(result.per_sample.values())).all()
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", IDS)
def test_order_of_arrival_does_not_move_a_bit(name, feed, two_sets):
    real, fake = two_sets
    metric = build(name)
    for i in reversed(range(len(fake))):
        feed(metric, fake[i : i + 1], start=i)
    if metric.needs_reference:
        feed(metric, real, real=True)
    assert metric.compute() == filled(name, feed, two_sets).compute()


@pytest.mark.parametrize("name", IDS)
def test_compute_twice_gives_the_same_and_reset_forgets(name, feed, two_sets):
    metric = filled(name, feed, two_sets)
    assert metric.compute() == metric.compute()
    metric.reset()
    with pytest.raises(TooFewSamplesError, match="0 generated images"):
        metric.compute()


@pytest.mark.parametrize("name", IDS)
def test_the_state_goes_through_a_checkpoint_that_runs_no_code(name, feed, two_sets, tmp_path):
    import torch

    metric = filled(name, feed, two_sets)
    torch.save({"metric": metric.state_dict()}, tmp_path / "checkpoint.pt")
    again = build(name)
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["metric"]
    again.load_state_dict(state)
    assert again.compute() == metric.compute()


def test_a_state_of_another_protocol_is_refused():
    with pytest.raises(ProtocolMismatchError, match="build it with equal options"):
        gm.FID().load_state_dict(gm.FID(protocol="tf1").state_dict())


@pytest.mark.parametrize("name", IDS)
def test_the_global_random_state_is_left_alone(name, feed, two_sets):
    import torch

    np.random.seed(1)
    torch.manual_seed(1)
    before = (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    filled(name, feed, two_sets).compute()
    assert before == (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


@pytest.mark.parametrize("name", IDS)
def test_the_fingerprint_covers_the_backbone(name):
    protocol = build(name).protocol.to_dict()
    assert protocol["metric"].startswith(name)
    assert protocol["extractor"]["extractor"]


@pytest.mark.parametrize("name", ["is", "vendi@lite"])
def test_metrics_of_one_set_have_no_reference_side(name, feed, two_sets):
    with pytest.raises(InputError, match="no reference side"):
        feed(build(name), two_sets[0], real=True)


def test_prdc_by_hand(feed):
    metric = gm.PRDC(k=1)
    feed(metric, [[0.0], [1.0], [3.0]], real=True)
    feed(metric, [[0.5], [10.0]])
    parts = metric.compute().parts
    assert parts["precision"] == 0.5 and parts["recall"] == 1.0
    assert parts["density"] == 1.0 and parts["coverage"] == pytest.approx(2 / 3)


def test_prdc_of_equal_sets_is_one(feed, two_sets):
    metric = gm.PRDC()
    feed(metric, two_sets[0], real=True)
    feed(metric, two_sets[0])
    result = metric.compute()
    assert result.value == 1.0
    assert [result.parts[name] for name in ("precision", "recall", "coverage")] == [1, 1, 1]


def test_prdc_without_a_hit_still_has_an_interval(feed, two_sets):
    metric = gm.PRDC()
    feed(metric, two_sets[0], real=True)
    feed(metric, two_sets[1] + 100)
    result = metric.compute()
    assert result.value == 0.0
    assert result.interval.lo == 0.0 and 0.01 < result.interval.hi < 0.2


def test_neighbours_need_more_images_than_k(feed):
    metric = gm.PRDC(k=5)
    feed(metric, np.eye(5), real=True)
    feed(metric, np.eye(9, 5) + 1)
    with pytest.raises(TooFewSamplesError, match="5 reference images, needs at least 6"):
        metric.compute()


def test_inception_score_with_fewer_images_than_splits_says_so(feed):
    metric = gm.InceptionScore()
    feed(metric, np.random.default_rng(0).standard_normal((5, 20)))
    with pytest.raises(TooFewSamplesError, match="5 generated images, needs at least 10"):
        metric.compute()


def test_inception_score_does_not_depend_on_the_class_order_of_files(feed):
    """Files sorted by class made some tools print a score several times too small."""
    logits = np.repeat(np.eye(10) * 20, 30, axis=0)
    result = (metric := gm.InceptionScore()), feed(metric, logits)
    assert result[0].compute().value > 8


def test_cmmd_normalises_and_matches_the_pure_function(feed, two_sets):
    real, fake = two_sets
    metric = gm.CMMD()
    feed(metric, real + 3, real=True)
    feed(metric, fake + 3)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (real + 3, fake + 3)]
    assert metric.compute().value == pytest.approx(gm.stats.cmmd(*unit), rel=1e-6)


def test_vendi_counts_different_images(feed):
    metric = gm.Vendi("lite")
    feed(metric, np.repeat(np.eye(8), 5, axis=0))
    assert metric.compute().value == pytest.approx(8.0)


def test_authpct_finds_copies(feed):
    rng = np.random.default_rng(0)
    train = rng.standard_normal((50, 8))
    copies = train[:20] + 1e-3
    fresh = rng.standard_normal((20, 8)) * 3
    metric = gm.AuthPct("lite")
    feed(metric, train, real=True)
    feed(metric, np.concatenate([copies, fresh]))
    result = metric.compute()
    assert result.per_sample["s_0"] < 0 < result.per_sample["s_25"]
    assert 25 < result.value < 60
