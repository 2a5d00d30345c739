"""PSNR and SSIM as pure functions: closed forms, public cases, parity with scikit-image."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from genmetrics.core.errors import InputError, PairingError
from genmetrics.stats import pairs
from genmetrics.stats.pairs import mean_squared_error, psnr, ssim


def levels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def constant(value: float, *shape: int, dtype: type = np.float64) -> np.ndarray:
    return np.full(shape or (32, 32), value, dtype=dtype)


def skimage_wang(x: np.ndarray, y: np.ndarray, data_range: float) -> float:
    return float(
        structural_similarity(
            x,
            y,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=data_range,
            channel_axis=0 if x.ndim == 3 else None,
        )
    )


# -- the peak is a constant of the range, never guessed --------------------------------------------


def test_ssim_of_float_constants_depends_on_the_declared_range() -> None:
    x, y = constant(0.2), constant(0.4)
    assert ssim(x, y, data_range=1.0) == pytest.approx(0.800100, abs=5e-7)
    assert ssim(x, y, data_range=2.0) == pytest.approx(0.800399, abs=5e-7)
    assert ssim(x, y, data_range=255.0) == pytest.approx(0.994, abs=5e-4)


def test_ssim_of_a_noisy_float_image_is_the_one_over_valid_windows() -> None:
    g = np.random.default_rng(3)
    x = g.random((32, 32))
    y = np.clip(x + 0.1 * g.standard_normal((32, 32)), 0, 1)
    assert ssim(x, y, data_range=1.0) == pytest.approx(0.947036, abs=5e-7)
    assert ssim(x, y, data_range=2.0) == pytest.approx(0.947951, abs=5e-7)


@pytest.mark.parametrize("measure", [ssim, psnr])
def test_floats_without_a_declared_range_are_refused(measure) -> None:
    with pytest.raises(InputError, match=r"float64 and data_range is not given"):
        measure(constant(0.2), constant(0.4))


@pytest.mark.parametrize("measure", [ssim, psnr])
def test_a_range_narrower_than_the_values_is_refused_and_shows_them(measure) -> None:
    with pytest.raises(InputError, match=r"from 0 to 200, wider than data_range=1"):
        measure(constant(0.0), constant(200.0), data_range=1.0)
    with pytest.raises(InputError, match="data_range=0; pass a finite number above 0"):
        measure(constant(0.0), constant(0.0), data_range=0)


@pytest.mark.parametrize("measure", [ssim, psnr])
def test_not_finite_values_are_refused(measure) -> None:
    broken = constant(0.5)
    broken[3, 4] = np.nan
    with pytest.raises(InputError, match="nan"):
        measure(constant(0.5), broken, data_range=1.0)


# -- PSNR ------------------------------------------------------------------------------------------


def test_psnr_of_white_against_black_on_rgb_and_both_lumas() -> None:
    white, black = constant(255, 3, 16, 16, dtype=np.uint8), constant(0, 3, 16, 16, dtype=np.uint8)
    assert psnr(white, black) == 0.0
    assert psnr(white, black, channel="y-full") == 0.0
    assert psnr(white, black, channel="y-studio") == pytest.approx(1.322, abs=5e-4)
    assert psnr(white, black, channel="y-studio") == pytest.approx(20 * math.log10(255 / 219))


def test_psnr_on_luma_weighs_the_channels_by_bt601() -> None:
    black = constant(0, 3, 8, 8, dtype=np.uint8)
    for i, weight in enumerate((0.299, 0.587, 0.114)):
        primary = black.copy()
        primary[i] = 100
        error = mean_squared_error(primary, black, channel="y-full").value
        assert error == pytest.approx((100 * weight) ** 2, rel=1e-12)


def test_bytes_do_not_wrap_on_subtraction() -> None:
    low, high = constant(10, 3, 8, 8, dtype=np.uint8), constant(250, 3, 8, 8, dtype=np.uint8)
    expected = 20 * math.log10(255 / 240)
    assert psnr(low, high) == pytest.approx(expected, abs=1e-12)
    assert psnr(high, low) == pytest.approx(expected, abs=1e-12)


def test_identical_pictures_have_infinite_psnr() -> None:
    x = levels(0, 3, 16, 16)
    assert psnr(x, x.copy()) == math.inf


@pytest.mark.parametrize("shape", [(3, 40, 56), (33, 47), (1, 12, 90)])
def test_psnr_equals_scikit_image(shape) -> None:
    x, y = levels(1, *shape), levels(2, *shape)
    assert psnr(x, y) == pytest.approx(peak_signal_noise_ratio(x, y, data_range=255), abs=1e-12)
    a, b = x / 255, y / 255
    expected = peak_signal_noise_ratio(a, b, data_range=1)
    assert psnr(a, b, data_range=1) == pytest.approx(expected, abs=1e-9)


# -- SSIM ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 40, 56), (3, 11, 11), (33, 147), (3, 150, 12), (1, 64, 64)])
def test_ssim_equals_scikit_image(shape) -> None:
    x = levels(3, *shape)
    noise = np.random.default_rng(4).normal(0, 30, shape)
    y = np.clip(x + noise, 0, 255).astype(np.uint8)
    assert ssim(x, y) == pytest.approx(skimage_wang(x, y, 255), abs=1e-11)
    a, b = x / 255, y / 255
    assert ssim(a, b, data_range=1) == pytest.approx(skimage_wang(a, b, 1), abs=1e-11)


def test_ssim_of_constants_follows_the_formula() -> None:
    x, y = constant(100, dtype=np.uint8), constant(120, dtype=np.uint8)
    assert ssim(x, y) == pytest.approx(0.983611, abs=5e-7)


def test_ssim_of_anti_correlated_pictures_is_negative_and_not_clamped() -> None:
    x = np.random.default_rng(0).random((192, 192))
    assert ssim(x, 1 - x, data_range=1) == pytest.approx(-0.97, abs=0.01)


def test_ssim_names_the_size_of_a_picture_smaller_than_its_window() -> None:
    x = levels(0, 3, 40, 10)
    with pytest.raises(InputError, match="11x11 pixels and the image is 10x40"):
        ssim(x, x)


def test_ssim_does_not_depend_on_how_rows_are_cut_into_strips(monkeypatch) -> None:
    x, y = levels(5, 3, 90, 40), levels(6, 3, 90, 40)
    whole = ssim(x, y)
    monkeypatch.setattr(pairs, "_STRIP", 7)
    assert ssim(x, y) == pytest.approx(whole, abs=1e-14)


# -- masks: what lies outside is judged ------------------------------------------------------------


def edited() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A 4x4 edit: the corner that might change went to 180, one pixel outside leaked by 4."""
    before = constant(100, 4, 4, dtype=np.uint8)
    after = before.copy()
    after[:2, :2] = 180
    after[3, 3] = 104
    mask = np.zeros((4, 4), dtype=bool)
    mask[:2, :2] = True
    return after, before, mask


def test_psnr_outside_the_region_that_was_allowed_to_change() -> None:
    after, before, mask = edited()
    assert psnr(after, before, mask=mask) == pytest.approx(46.8814, abs=5e-5)
    found = mean_squared_error(after, before, mask=mask)
    assert found.value == pytest.approx(16 / 12)
    assert found.share == 12 / 16
    inside = mean_squared_error(after, before, mask=~mask)
    assert inside.value == 80**2


def test_psnr_outside_counts_pixels_and_not_channels() -> None:
    after, before, mask = edited()
    stacked = psnr(np.stack([after] * 3), np.stack([before] * 3), mask=mask)
    assert stacked == pytest.approx(psnr(after, before, mask=mask), abs=1e-12)
    luma = psnr(np.stack([after] * 3), np.stack([before] * 3), mask=mask, channel="y-full")
    assert luma == pytest.approx(stacked, abs=1e-12)


def test_ssim_with_a_mask_is_the_mean_over_windows_that_touch_no_masked_pixel() -> None:
    x, y = levels(7, 40, 40), levels(8, 40, 40)
    mask = np.zeros((40, 40), dtype=bool)
    mask[:20, 15:18] = True
    _, full = structural_similarity(
        x,
        y,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        data_range=255,
        full=True,
    )
    kept = [
        full[r + 5, c + 5]
        for r in range(30)
        for c in range(30)
        if not mask[r : r + 11, c : c + 11].any()
    ]
    found = pairs.structural_similarity(x, y, mask=mask)
    assert found.value == pytest.approx(np.mean(kept), abs=1e-12)
    assert found.share == len(kept) / 900


def test_what_lies_under_the_mask_moves_nothing() -> None:
    x, y = levels(9, 3, 40, 40), levels(10, 3, 40, 40)
    mask = np.zeros((40, 40), dtype=bool)
    mask[5:12, 20:30] = True
    changed = x.copy()
    changed[:, mask] = 255
    assert ssim(changed, y, mask=mask) == pytest.approx(ssim(x, y, mask=mask), abs=1e-12)
    assert psnr(changed, y, mask=mask) == psnr(x, y, mask=mask)


def test_a_mask_over_everything_leaves_nothing_to_judge() -> None:
    x, y = levels(0, 3, 20, 20), levels(1, 3, 20, 20)
    everything = np.ones((20, 20), dtype=bool)
    assert math.isnan(psnr(x, y, mask=everything))
    assert math.isnan(ssim(x, y, mask=everything))
    nothing = ~everything
    assert psnr(x, y, mask=nothing) == psnr(x, y)
    assert ssim(x, y, mask=nothing) == ssim(x, y)


def test_a_mask_that_is_not_bool_or_has_another_size_is_refused() -> None:
    x = levels(0, 3, 20, 20)
    with pytest.raises(InputError, match=r"the mask is uint8 \(20, 20\)"):
        psnr(x, x, mask=np.zeros((20, 20), dtype=np.uint8))
    with pytest.raises(InputError, match=r"expected bool \(20, 20\)"):
        ssim(x, x, mask=np.zeros((20, 21), dtype=bool))


# -- input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", [ssim, psnr])
def test_shapes_that_differ_are_a_pairing_error_with_both(measure) -> None:
    with pytest.raises(PairingError, match=r"\(3, 64, 64\).*\(3, 65, 64\)"):
        measure(levels(0, 3, 64, 64), levels(0, 3, 65, 64))


@pytest.mark.parametrize("measure", [psnr, ssim])
def test_levels_as_bytes_and_as_floats_are_one_picture_where_the_range_is_declared(measure) -> None:
    x, y = levels(1, 3, 24, 20), levels(2, 3, 24, 20)
    expected = measure(x, y)
    for a, b in ((x, y.astype(np.float32)), (x.astype(np.float64), y), (x, y.astype(np.int64))):
        assert measure(a, b, data_range=255) == expected
    assert measure(torch.from_numpy(x), torch.from_numpy(y).half(), data_range=255) == expected


@pytest.mark.parametrize("measure", [psnr, ssim])
def test_bytes_against_floats_of_another_range_are_refused(measure) -> None:
    x = levels(1, 3, 24, 20)
    with pytest.raises(InputError, match="wider than data_range=1"):
        measure(x, x / 255, data_range=1)
    with pytest.raises(InputError, match=r"uint8 and its reference float64.*or pass data_range="):
        measure(x, x / 255)
    with pytest.raises(InputError, match="the image is bool"):
        measure(x > 9, x, data_range=255)


@pytest.mark.parametrize("measure", [ssim, psnr])
def test_channels_last_and_mixed_kinds_are_refused(measure) -> None:
    with pytest.raises(InputError, match=r"expected \(C, H, W\)"):
        measure(levels(0, 64, 64, 3), levels(1, 64, 64, 3))
    with pytest.raises(InputError, match="the image is uint8 and its reference float64"):
        measure(levels(0, 3, 64, 64), levels(1, 3, 64, 64) / 255)


def test_luma_needs_three_channels() -> None:
    with pytest.raises(InputError, match="needs 3 channels"):
        psnr(levels(0, 20, 20), levels(1, 20, 20), channel="y-full")


def test_tensors_of_any_precision_give_what_arrays_give_and_keep_no_graph() -> None:
    x, y = levels(0, 3, 20, 20), levels(1, 3, 20, 20)
    assert psnr(torch.from_numpy(x), torch.from_numpy(y)) == psnr(x, y)
    a = torch.rand(3, 20, 20, dtype=torch.bfloat16)
    b = torch.rand(3, 20, 20, dtype=torch.bfloat16, requires_grad=True)
    expected = ssim(a.double().numpy(), b.detach().double().numpy(), data_range=1)
    found = ssim(a, b, data_range=1)
    assert isinstance(found, float)
    assert found == expected


# -- properties ------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    height=st.integers(11, 30),
    width=st.integers(11, 30),
    spread=st.sampled_from([0, 1, 20, 300]),
)
def test_symmetric_bounded_and_one_for_the_same_picture(seed, height, width, spread) -> None:
    g = np.random.default_rng(seed)
    x = g.integers(0, 256, (3, height, width), dtype=np.uint8)
    y = np.clip(x + g.integers(-spread, spread + 1, x.shape), 0, 255).astype(np.uint8)
    assert ssim(x, y) == ssim(y, x)
    assert psnr(x, y) == psnr(y, x)
    assert -1 <= ssim(x, y) <= 1
    assert psnr(x, y) >= 0
    assert ssim(x, x.copy()) == 1
    flipped = ssim(x[..., ::-1], y[..., ::-1])
    assert flipped == pytest.approx(ssim(x, y), abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(row=st.integers(0, 10), column=st.integers(0, 10), level=st.integers(0, 255))
def test_one_changed_pixel_never_lifts_ssim_above_one(row, column, level) -> None:
    x = constant(128, 11, 11, dtype=np.uint8)
    y = x.copy()
    y[row, column] = level
    assert ssim(x, y) <= 1
