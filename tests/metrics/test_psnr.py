"""PSNR as a metric: pairs of any size, masks, infinite pairs."""

from __future__ import annotations

import math

import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio

import genmetrics as gm
from genmetrics.core.registry import create, parse

SIZES = [(32, 32), (48, 40), (64, 64)]


def pictures(seed: int, sizes=SIZES) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 256, (3, h, w), dtype=torch.uint8, generator=g) for h, w in sizes]


def shifted(images: list[torch.Tensor], by: int) -> list[torch.Tensor]:
    return [(image.int() + by).clamp(0, 255).to(torch.uint8) for image in images]


def test_pairs_of_several_sizes_in_one_update_equal_scikit_image():
    metric = gm.PSNR()
    x, y = pictures(0), pictures(1)
    metric.update(x, references=y, ids=["a", "b", "c"])
    result = metric.compute()
    expected = [
        peak_signal_noise_ratio(b.numpy(), a.numpy(), data_range=255)
        for a, b in zip(x, y, strict=True)
    ]
    assert list(result.per_sample.values()) == pytest.approx(expected, abs=1e-12)
    assert result.value == pytest.approx(sum(expected) / 3, abs=1e-12)
    assert (result.id, result.n, result.higher_is_better) == ("psnr", 3, True)
    assert result.interval.lo <= result.value <= result.interval.hi


@pytest.mark.parametrize("metric_class", [gm.PSNR, gm.SSIM])
def test_grey_pairs_give_what_the_function_gives_of_grey(metric_class):
    x, y = torch.stack(pictures(0, [(16, 16)] * 2)), torch.stack(pictures(1, [(16, 16)] * 2))
    metric = metric_class(device="cpu")
    metric.update(x[:, :1], references=y[:, :1])
    function = gm.stats.psnr if metric_class is gm.PSNR else gm.stats.ssim
    expected = [function(a[0].numpy(), b[0].numpy()) for a, b in zip(x, y, strict=True)]
    assert list(metric.compute().per_sample.values()) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("value_range", [(0, 1), (-1, 1)])
def test_bytes_meet_floats_of_a_declared_range(value_range):
    x, y = pictures(0), pictures(1)
    lo, hi = value_range
    floats = [image.float() / 255 * (hi - lo) + lo for image in y]
    mixed, plain = gm.PSNR(device="cpu"), gm.PSNR(device="cpu")
    mixed.update(x, references=floats, value_range=value_range)
    plain.update(x, references=y)
    assert mixed.compute().per_sample == plain.compute().per_sample
    with pytest.raises(gm.InputError, match="outside the declared range"):
        mixed.update(x, references=[image * 2 + 3 for image in floats], value_range=value_range)


def test_the_mean_is_over_pairs_and_not_over_pooled_errors():
    grey = torch.full((3, 16, 16), 100, dtype=torch.uint8)
    metric = gm.PSNR()
    metric.update([grey, grey], references=[grey + 1, grey + 50])
    each = [20 * math.log10(255), 20 * math.log10(255 / 50)]
    assert metric.compute().value == pytest.approx(sum(each) / 2, abs=1e-12)


def test_identical_pairs_are_counted_apart_and_stay_out_of_the_mean():
    metric = gm.PSNR()
    x = pictures(0)
    metric.update(x, references=[x[0], *shifted(x[1:], 1)], ids=["same", "b", "c"])
    result = metric.compute()
    assert math.isinf(result.per_sample["same"])
    assert result.parts["n_infinite"] == 1
    assert math.isfinite(result.value)
    assert result.value == pytest.approx(
        (result.per_sample["b"] + result.per_sample["c"]) / 2, abs=1e-12
    )


def test_when_all_pairs_are_identical_the_value_is_infinite_and_json_still_holds():
    metric = gm.PSNR()
    x = pictures(0)
    metric.update(x, references=x)
    result = metric.compute()
    assert result.value == math.inf
    assert result.to_dict()["value"] is None
    assert "inf" in result.to_dict()["reason"]


@pytest.mark.parametrize(
    ("channel", "expected"), [("rgb", 0.0), ("y-full", 0.0), ("y-studio", 1.3219213)]
)
def test_white_against_black_by_channel(channel, expected):
    metric = create(parse([f"psnr:channel={channel}"])[0])
    metric.update(
        torch.full((1, 3, 16, 16), 255, dtype=torch.uint8),
        references=torch.zeros(1, 3, 16, 16, dtype=torch.uint8),
    )
    result = metric.compute()
    assert result.value == pytest.approx(expected, abs=1e-6)
    assert result.protocol["pair"]["channel"] == channel


def test_preservation_is_measured_outside_the_mask():
    before = torch.full((1, 3, 4, 4), 100, dtype=torch.uint8)
    after, mask = before.clone(), torch.zeros(1, 4, 4, dtype=torch.bool)
    after[..., :2, :2] = 180
    after[..., 3, 3] = 104
    mask[:, :2, :2] = True
    metric = gm.PSNR()
    metric.update(after, references=before, masks=mask)
    result = metric.compute()
    assert result.value == pytest.approx(46.8814, abs=5e-5)
    assert result.parts["outside"] == 0.75


def test_a_pair_with_nothing_outside_the_mask_has_no_score_and_says_so():
    x, y = pictures(0, [(16, 16)] * 2), pictures(1, [(16, 16)] * 2)
    masks = torch.zeros(2, 16, 16, dtype=torch.bool)
    masks[1] = True
    metric = gm.PSNR()
    metric.update(x, references=y, masks=masks, ids=["a", "covered"])
    result = metric.compute()
    assert math.isnan(result.per_sample["covered"])
    assert result.n == 1
    assert result.value == result.per_sample["a"]
    assert "1 of 2 pairs have no score" in result.warnings[0]
    assert "'covered'" in result.warnings[0]


def test_when_every_pair_is_covered_the_result_is_unavailable():
    metric = gm.PSNR()
    masks = torch.ones(1, 16, 16, dtype=torch.bool)
    metric.update(pictures(0, [(16, 16)]), references=pictures(1, [(16, 16)]), masks=masks)
    result = metric.compute()
    assert (result.value, result.status, result.n) == (None, "unavailable", 0)


def test_sizes_that_differ_are_a_pairing_error_with_both_sizes():
    metric = gm.PSNR()
    with pytest.raises(gm.PairingError, match=r"'a' is 64x64 but its reference is 65x64"):
        metric.update(pictures(0, [(64, 64)]), references=pictures(1, [(64, 65)]), ids=["a"])
    with pytest.raises(gm.InputError, match="psnr needs references="):
        metric.update(pictures(0))
    with pytest.raises(gm.InputError, match="2 references for 3 images"):
        metric.update(pictures(0), references=pictures(0)[:2])


def test_floats_with_a_declared_range_score_as_their_levels():
    x, y = pictures(0), pictures(1)
    plain, scaled = gm.PSNR(), gm.PSNR()
    plain.update(x, references=y)
    scaled.update(
        [i / 127.5 - 1 for i in x], references=[i / 127.5 - 1 for i in y], value_range=(-1, 1)
    )
    assert scaled.compute().value == plain.compute().value


def test_merge_order_and_state_do_not_move_a_bit():
    x, y, ids = pictures(0), pictures(1), ["r_2", "r_10", "r_1"]
    whole = gm.PSNR()
    whole.update(x, references=y, ids=ids)
    expected = whole.compute()

    parts = [gm.PSNR() for _ in x]
    for metric, a, b, name in zip(parts, x, y, ids, strict=True):
        metric.update([a], references=[b], ids=[name])
    merged = parts[2].merge(parts[0]).merge(parts[1])
    assert merged.compute() == expected

    loaded = gm.PSNR()
    loaded.load_state_dict(whole.state_dict())
    assert loaded.compute() == expected
    loaded.reset()
    with pytest.raises(gm.TooFewSamplesError):
        loaded.compute()


def test_metrics_of_another_channel_do_not_merge():
    with pytest.raises(gm.ProtocolMismatchError, match="channel"):
        gm.PSNR().merge(gm.PSNR(channel="y-full"))
