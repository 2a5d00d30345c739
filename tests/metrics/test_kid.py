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
