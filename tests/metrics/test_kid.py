from __future__ import annotations

import numpy as np
import pytest

import genmetrics as gm


def test_it_equals_torch_fidelity_on_the_same_features(feed):
    import torch
    from torch_fidelity.metric_kid import kid_features_to_metric

    rng = np.random.default_rng(3)
    real = rng.standard_normal((150, 12)).astype(np.float32)
    fake = (rng.standard_normal((130, 12)) + 0.1).astype(np.float32)
    metric = gm.KID(protocol="tf1", subsets=20, subset_size=50)
    feed(metric, real, real=True)
    feed(metric, fake)
    peer = kid_features_to_metric(
        torch.from_numpy(fake).double(), torch.from_numpy(real).double(),
        kid_subsets=20, kid_subset_size=50, rng_seed=2020, verbose=False,
    )  # fmt: skip
    result = metric.compute()
    assert result.value == pytest.approx(
        peer["kernel_inception_distance_mean"], rel=1e-6, abs=1e-12
    )
    assert result.parts["spread"] == pytest.approx(peer["kernel_inception_distance_std"], rel=1e-6)


def test_a_subset_larger_than_the_set_is_cut_and_said(feed, two_sets):
    real, fake = two_sets
    metric = gm.KID()
    feed(metric, real[:30], real=True)
    feed(metric, fake[:30])
    result = metric.compute()
    assert result.parts["subset_size"] == 30
    assert "subset_size 1000 was cut to 30: n=30, n_reference=30" in result.warnings


def test_below_zero_is_explained_and_not_clamped(feed):
    metric = gm.KID()
    feed(metric, [[0.0], [1.0]], real=True)
    feed(metric, [[0.0], [1.0]])
    result = metric.compute()
    assert result.value == pytest.approx(-3.5)
    assert any("unbiased" in warning for warning in result.warnings)


def test_shards_merge_to_the_same_bits(feed, two_sets):
    real, fake = two_sets
    whole = gm.KID(subset_size=40)
    feed(whole, real, real=True)
    feed(whole, fake)
    parts = [gm.KID(subset_size=40) for _ in range(3)]
    for rank, metric in enumerate(parts):
        for i in range(rank, len(real), 3):
            feed(metric, real[i : i + 1], real=True, start=i)
        for i in range(rank, len(fake), 3):
            feed(metric, fake[i : i + 1], start=i)
    assert parts[2].merge(parts[0]).merge(parts[1]).compute() == whole.compute()


def test_large_sets_say_how_many_images_their_influences_are_from(feed, two_sets, monkeypatch):
    from genmetrics.stats import kernel

    real, fake = two_sets  # 120 and 90
    found = []
    for whole in (1000, 100):
        monkeypatch.setattr(kernel, "WITNESS_WHOLE", whole)
        monkeypatch.setattr(kernel, "WITNESS_SAMPLE", 60)
        metric = gm.KID(subset_size=50)
        feed(metric, real, real=True)
        feed(metric, fake)
        found.append(metric.compute())
    assert found[0].value == found[1].value
    assert [r.warnings for r in found] == [
        (),
        (
            "interval and per-sample values compare with a seeded subsample:"
            " 90 of 90 generated, 60 of 120 reference images",
        ),
    ]


@pytest.mark.parametrize("metric", [gm.KID, gm.PRDC, gm.AuthPct])
def test_a_long_decision_is_announced(feed, two_sets, monkeypatch, metric):
    from genmetrics.stats import effort

    real, fake = two_sets
    monkeypatch.setattr(effort, "LONG", 0.0)
    judge = metric()
    feed(judge, real, real=True)
    feed(judge, fake)
    with pytest.warns(UserWarning, match=f"^{judge.protocol.metric} compares") as told:
        judge.compute()
    assert len(told) == 1
