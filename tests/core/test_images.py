"""The range contract: what is declared counts, nothing is guessed, nothing is cut off."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError
from genmetrics.core.images import as_masks, as_uint8

LEVELS = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(1, 3, 16, 16)
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


# -- casting generated floats to bytes shifted levels, and with them FID ---------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value_range", [(0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)])
def test_all_256_levels_survive_in_every_dtype(dtype, value_range):
    lo, hi = value_range
    floats = (LEVELS.double() / 255 * (hi - lo) + lo).to(dtype)
    (image,) = as_uint8(floats, value_range)
    assert image.dtype == torch.uint8
    assert torch.equal(image, LEVELS[0])


def test_truncation_would_have_lost_levels():
    """The fault this guards against, so that the test above is known to bite."""
    floats = LEVELS.double().div(255).to(torch.float16)
    assert (floats.float().mul(255).to(torch.uint8) != LEVELS).sum() > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_pixels_raise(dtype):
    images = torch.rand(2, 3, 4, 4).to(dtype)
    images[1, 0, 0, 0] = float("nan")
    with pytest.raises(InputError, match="image 1 holds NaN"):
        as_uint8(images)


# -- floats were refused although announced, bytes divided twice -----------------------------------


def test_bytes_and_declared_floats_agree_and_undeclared_ones_raise():
    g = np.random.default_rng(0)
    levels = torch.from_numpy(g.integers(0, 256, (4, 3, 8, 8), np.uint8))
    levels[2, 1, 5, 5] = 255
    as_bytes = as_uint8(levels)
    as_floats = as_uint8(levels.float() / 255)
    assert all(torch.equal(a, b) for a, b in zip(as_bytes, as_floats, strict=True))
    with pytest.raises(InputError, match=r"outside the declared range \(0, 1\)"):
        as_uint8(levels.float())
    with pytest.raises(InputError, match=r"image 0 holds the value 255,"):
        as_uint8([levels[2].float()])
    with pytest.raises(InputError, match=r"holds the value -0\.5,"):
        as_uint8([torch.full((3, 2, 2), -0.5)])
    assert all(torch.equal(a, b) for a, b in zip(as_bytes, as_uint8(levels, (-1, 1)), strict=True))


def test_infinity_is_out_of_any_range():
    with pytest.raises(InputError, match="holds the value inf"):
        as_uint8([torch.full((3, 2, 2), float("inf"))])


@pytest.mark.parametrize("value_range", [(1.0, 0.0), (0.0, 0.0), (float("nan"), 1.0)])
def test_a_range_must_be_one(value_range):
    with pytest.raises(InputError, match="value_range"):
        as_uint8(LEVELS, value_range)


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        (torch.zeros(3, 8, 8, dtype=torch.uint8), r"shape \(3, 8, 8\)"),
        (torch.zeros(2, 2, 8, 8, dtype=torch.uint8), r"shape \(2, 8, 8\).*or \(1, H, W\), grey"),
        (torch.zeros(2, 4, 8, 8, dtype=torch.uint8), r"shape \(4, 8, 8\)"),
        (
            torch.zeros(8, 8, dtype=torch.uint8),
            r"shape \(8, 8\); expected \(N, 3, H, W\), or \(N, 1",
        ),
        (torch.zeros(2, 8, 8, 3, dtype=torch.uint8), "channels first"),
        (torch.zeros(1, 3, 0, 8, dtype=torch.uint8), r"shape \(3, 0, 8\)"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.int64), "dtype torch.int64"),
        ([np.zeros((3, 8, 8), np.uint8)], "is a ndarray"),
        (["a.png"], "gm.load_image"),
    ],
)
def test_other_inputs_are_refused_with_what_they_are(images, reason):
    with pytest.raises(InputError, match=reason):
        as_uint8(images)


@pytest.mark.parametrize("as_list", [False, True])
def test_grey_is_replicated_as_from_a_file(as_list):
    grey = LEVELS[:, :1]
    for images in (grey, grey.float() / 255):
        (found,) = as_uint8(list(images) if as_list else images)
        assert found.is_contiguous()
        assert torch.equal(found, LEVELS[0])


def test_images_of_several_sizes_pass_as_a_list():
    images = [torch.zeros(3, h, w, dtype=torch.uint8) for h, w in ((4, 5), (6, 7))]
    assert [tuple(image.shape) for image in as_uint8(images)] == [(3, 4, 5), (3, 6, 7)]
    assert as_uint8([]) == []


# -- colour order ----------------------------------------------------------------------------------


def test_channels_stay_in_order():
    red = torch.tensor([1.0, 0.0, 0.0]).reshape(1, 3, 1, 1).expand(1, 3, 2, 2)
    assert as_uint8(red)[0][:, 0, 0].tolist() == [255, 0, 0]


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1, width=32), st.sampled_from(DTYPES))
def test_rounding_goes_to_the_nearest_level(value, dtype):
    image = torch.full((3, 1, 1), value).to(dtype)
    level = as_uint8([image])[0][0, 0, 0].item()
    assert abs(level - image.double()[0, 0, 0].item() * 255) <= 0.5 + 1e-4


def test_masks_must_fit_their_images():
    images = as_uint8(LEVELS)
    good = torch.ones(1, 16, 16, dtype=torch.bool)
    assert torch.equal(as_masks(good, images)[0], good[0])
    with pytest.raises(InputError, match="2 masks for 1 images"):
        as_masks(torch.ones(2, 16, 16, dtype=torch.bool), images)
    with pytest.raises(InputError, match=r"torch\.uint8"):
        as_masks(torch.ones(1, 16, 16, dtype=torch.uint8), images)
    with pytest.raises(InputError, match=r"\(16, 15\)"):
        as_masks(torch.ones(1, 16, 15, dtype=torch.bool), images)
