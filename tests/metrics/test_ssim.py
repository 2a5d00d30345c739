"""SSIM as a metric: parity with scikit-image, masks, the mean over pairs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.data import astronaut
from skimage.metrics import structural_similarity

import genmetrics as gm


def pictures(seed: int, sizes) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 256, (3, h, w), dtype=torch.uint8, generator=g) for h, w in sizes]


def noisy(images: list[torch.Tensor], seed: int, spread: int = 40) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [
        (i.int() + torch.randint(-spread, spread + 1, i.shape, generator=g))
        .clamp(0, 255)
        .to(torch.uint8)
        for i in images
    ]


def skimage_wang(x: torch.Tensor, y: torch.Tensor) -> float:
    return structural_similarity(
        x.numpy(),
        y.numpy(),
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        data_range=255,
        channel_axis=0,
    )


def test_pairs_of_several_sizes_equal_scikit_image():
    x = pictures(0, [(32, 32), (48, 40), (64, 64)])
    x.append(torch.from_numpy(astronaut()[:200, :300].copy()).permute(2, 0, 1))
    y = noisy(x, 1)
    metric = gm.SSIM(protocol="wang")
    metric.update(x, references=y)
    result = metric.compute()
    expected = [skimage_wang(a, b) for a, b in zip(x, y, strict=True)]
    assert list(result.per_sample.values()) == pytest.approx(expected, abs=1e-11)
    assert result.value == pytest.approx(sum(expected) / 4, abs=1e-11)
    assert result.id == "ssim@wang"


def test_the_mean_of_ten_equal_pairs_is_their_score():
    # two constants whose SSIM is 0.9: only the luminance term counts
    c1 = (0.01 * 255) ** 2
    a = 100.0
    # (2ab + c1) / (a^2 + b^2 + c1) = 0.9, solved for b
    b = (2 * a + math.sqrt(4 * a * a - 4 * 0.9 * (0.9 * (a * a + c1) - c1))) / 1.8
    expected = (2 * a * round(b) + c1) / (a * a + round(b) ** 2 + c1)
    assert expected == pytest.approx(0.9, abs=2e-3)
    x = torch.full((10, 3, 16, 16), 100, dtype=torch.uint8)
    y = torch.full((10, 3, 16, 16), round(b), dtype=torch.uint8)
    metric = gm.SSIM()
    metric.update(x, references=y)
    result = metric.compute()
    assert result.value == pytest.approx(expected, abs=1e-9)
    assert min(result.per_sample.values()) <= result.value <= max(result.per_sample.values())


def test_identical_pairs_are_one_and_anti_correlated_ones_negative():
    x = pictures(3, [(192, 192)])
    same, opposite = gm.SSIM(), gm.SSIM()
    same.update(x, references=x)
    opposite.update(x, references=[255 - x[0]])
    assert same.compute().value == 1.0
    assert opposite.compute().value == pytest.approx(-0.97, abs=0.01)


def test_only_windows_outside_the_mask_count():
    x = pictures(0, [(40, 40)])
    y = noisy(x, 1)
    mask = torch.zeros(1, 40, 40, dtype=torch.bool)
    mask[:, :15] = True
    masked, cropped = gm.SSIM(), gm.SSIM()
    masked.update(x, references=y, masks=mask)
    cropped.update([x[0][:, 15:]], references=[y[0][:, 15:]])
    result = masked.compute()
    assert result.value == pytest.approx(cropped.compute().value, abs=1e-12)
    assert result.parts["outside"] == 15 / 30
    assert "outside" not in cropped.compute().parts


def test_a_mask_that_every_window_touches_leaves_no_score():
    x = pictures(0, [(20, 20)] * 2)
    mask = torch.zeros(2, 20, 20, dtype=torch.bool)
    mask[0, 10, 10] = True
    metric = gm.SSIM()
    metric.update(x, references=noisy(x, 1), masks=mask, ids=["touched", "b"])
    result = metric.compute()
    assert math.isnan(result.per_sample["touched"])
    assert result.n == 1
    assert "'touched'" in result.warnings[0]


def test_a_picture_below_the_window_is_named_with_its_size():
    x = pictures(0, [(10, 64)])
    with pytest.raises(gm.InputError, match=r"'tiny'.*64x10"):
        gm.SSIM().update(x, references=x, ids=["tiny"])


def test_unknown_protocols_are_refused():
    with pytest.raises(gm.UsageError, match="there is ssim@wang"):
        gm.SSIM(protocol="skimage")  # type: ignore[arg-type]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), cut=st.integers(1, 4), order=st.permutations(range(5)))
def test_merge_and_order_do_not_move_a_bit(seed, cut, order):
    x = pictures(seed, [(12, 12 + i) for i in range(5)])
    y, ids = noisy(x, seed + 1), [f"r_{i}" for i in (10, 9, 1, 2, 11)]
    whole = gm.SSIM()
    whole.update(x, references=y, ids=ids)
    left, right = gm.SSIM(), gm.SSIM()
    for k, i in enumerate(order):
        metric = left if k < cut else right
        metric.update([x[i]], references=[y[i]], ids=[ids[i]])
    assert left.merge(right).compute() == whole.compute()


def test_state_does_not_grow_with_pixels_and_round_trips():
    small, large = gm.SSIM(), gm.SSIM()
    for metric, side in ((small, 16), (large, 256)):
        x = pictures(0, [(side, side)])
        metric.update(x, references=noisy(x, 1))
    rows = [metric.state_dict()["rows"]["features"]["pair"]["ssim"] for metric in (small, large)]
    assert rows[0].nbytes == rows[1].nbytes == 8
    loaded = gm.SSIM()
    loaded.load_state_dict(large.state_dict())
    assert loaded.compute() == large.compute()
