from __future__ import annotations

import numpy as np
import pytest

import genmetrics as gm
from genmetrics.core.errors import InputError, ProtocolMismatchError, TooFewSamplesError


def test_the_default_is_the_2048_wide_pool_of_the_2015_network():
    protocol = gm.FID().protocol.to_dict()
    assert protocol["metric"] == "fid@clean"
    assert protocol["output"] == "2048"
    assert protocol["extractor"]["weights"] == "inception-2015-12-05"
    assert protocol["extractor"]["sha256"].startswith("6726825d")


def test_the_value_is_the_pure_function_and_the_interval_is_about_it(feed, two_sets):
    real, fake = two_sets
    metric = gm.FID()
    feed(metric, real, real=True)
    feed(metric, fake)
    result = metric.compute()
    assert result.value == pytest.approx(gm.stats.frechet_distance(real, fake), rel=1e-9)
    assert result.interval.lo < result.value < result.interval.hi
    assert (result.n, result.n_reference, result.id) == (90, 120, "fid@clean")
    influence = np.array(list(result.per_sample.values()))
    moments = gm.stats.Moments(16)
    moments.update(real)
    assert influence == pytest.approx(gm.stats.frechet_influence(moments, fake), rel=1e-9)
    assert result.parts["standard_error"] == pytest.approx(np.std(influence, ddof=1) / np.sqrt(90))


def test_fewer_images_than_features_is_real_finite_and_warned_of(feed):
    rng = np.random.default_rng(7)
    real = rng.standard_normal((16, 64))
    fake = rng.standard_normal((16, 64)) + 0.1
    metric = gm.FID()
    feed(metric, real, real=True)
    feed(metric, fake)
    result = metric.compute()
    assert result.value == pytest.approx(83.492469, abs=1e-4)
    assert "n=16 is below the feature dimension 64" in result.warnings
    assert "n_reference=16 is below the feature dimension 64" in result.warnings


@pytest.mark.parametrize(("n_real", "n_fake", "side"), [(1, 5, "reference"), (5, 1, "generated")])
def test_one_image_on_a_side_is_named_before_any_algebra(feed, n_real, n_fake, side):
    metric = gm.FID()
    feed(metric, np.ones((n_real, 4)), real=True)
    feed(metric, np.ones((n_fake, 4)))
    with pytest.raises(TooFewSamplesError, match=f"1 {side} images, needs at least 2"):
        metric.compute()


def test_shards_merge_to_the_single_pass_in_any_order(feed):
    rng = np.random.default_rng(11)
    real, fake = rng.standard_normal((10, 4)), rng.standard_normal((10, 4))
    for world in (1, 2, 3, 4):
        ranks = []
        for rank in range(world):
            metric = gm.FID()
            for i in range(rank, 10, world):
                feed(metric, real[i : i + 1], real=True, start=i)
                feed(metric, fake[i : i + 1], start=i)
            ranks.append(metric)
        first = ranks[-1]
        for other in ranks[:-1]:
            first.merge(other)
        assert first.compute().value == pytest.approx(1.109895, abs=1e-6)


def test_metrics_of_unlike_protocols_do_not_merge():
    with pytest.raises(ProtocolMismatchError, match="extractor.resize"):
        gm.FID().merge(gm.FID(protocol="tf1"))


def test_the_state_goes_through_a_checkpoint(feed, two_sets):
    real, fake = two_sets
    metric = gm.FID()
    feed(metric, real, real=True)
    feed(metric, fake)
    again = gm.FID()
    again.load_state_dict(metric.state_dict())
    assert again.compute() == metric.compute()


def test_the_extrapolation_to_infinite_n_is_below_the_value(feed):
    rng = np.random.default_rng(5)
    metric = gm.FID()
    feed(metric, rng.standard_normal((2000, 16)), real=True)
    feed(metric, rng.standard_normal((400, 16)))
    result = metric.compute()
    assert result.parts["infinity"] < result.value / 2


def test_reset_keeps_loaded_statistics_and_forgets_images(feed, two_sets, tmp_path):
    from genmetrics.samples.statistics import StatisticsEntry, write_statistics

    real, fake = two_sets
    metric = gm.FID()
    feed(metric, real, real=True)
    feed(metric, fake)
    value = metric.compute().value
    n, arrays = metric.reference_arrays()
    path = tmp_path / "reference.safetensors"
    write_statistics(path, [StatisticsEntry(metric.spec.to_dict(), n, arrays, "")])

    loaded = gm.FID(reference=path)
    for _ in range(2):
        feed(loaded, fake)
        assert loaded.compute().value == pytest.approx(value, rel=1e-9)
        loaded.reset()
    with pytest.raises(InputError, match="already has its reference"):
        feed(loaded, real, real=True)
    with pytest.raises(ProtocolMismatchError, match=r"extractor.*resize|resize"):
        gm.FID(protocol="tf1", reference=path)


def test_dimensions_that_do_not_fit_show_both_numbers(feed):
    metric = gm.FID()
    feed(metric, np.random.default_rng(0).standard_normal((9, 8)), real=True)
    feed(metric, np.random.default_rng(0).standard_normal((9, 16)))
    with pytest.raises(InputError, match="8 features, the images 16"):
        metric.compute()
