"""Two pictures of one thing, compared pixel by pixel: mean squared error, PSNR, SSIM.

Pictures are arrays or tensors ``(C, H, W)`` or ``(H, W)``, uint8 or float, or one of each in the
same units where ``data_range`` is declared. The peak is a constant of the declared range, never
taken from the data. A mask is bool ``(H, W)``, True where the picture
was allowed to change; only what lies outside counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from genmetrics.core.errors import InputError, PairingError, require_choice, require_real

if TYPE_CHECKING:
    from torch import Tensor

Picture: TypeAlias = "np.ndarray | Tensor"
Channel = Literal["rgb", "y-studio", "y-full"]

_LUMA = (299, 587, 114)  # BT.601, in thousandths so that sums over 8-bit levels are exact
_STUDIO = 219 / 255  # studio swing holds luma in 16..235

WINDOW = 11
"""Side of the window of SSIM: a Gaussian of sigma 1.5 out to 3.5 sigma."""

_TAPS = np.exp(-0.5 * (np.arange(WINDOW) - WINDOW // 2) ** 2 / 1.5**2)
_TAPS /= _TAPS.sum()
_K1, _K2 = 0.01, 0.03
_STRIP = 64  # rows at a time: stays in the cache, and memory does not grow with the height


class Outside(NamedTuple):
    """A mean over what lies outside the mask.

    Attributes:
        value: The mean, NaN when nothing lies outside.
        share: The part of the picture (of its windows, for SSIM) that lies outside, 1 without mask.
    """

    value: float
    share: float


def mean_squared_error(
    image: Picture,
    reference: Picture,
    *,
    data_range: float | None = None,
    mask: Picture | None = None,
    channel: Channel = "rgb",
) -> Outside:
    """Mean squared difference over all channels and pixels outside the mask, in float64.

    ``channel="y-full"`` compares the luma 0.299 R + 0.587 G + 0.114 B (BT.601) and ``"y-studio"``
    the same in studio swing, 219/255 as wide; neither is rounded to levels.

    Args:
        image: Picture to judge.
        reference: What it should look like, same shape.
        data_range: Width of the range of values, such as 1.0; 255 for uint8, required otherwise.
        mask: True where the picture was allowed to change.
        channel: What is compared.

    Returns:
        The mean, in squared units of the input, and the share of pixels that entered it.

    Raises:
        PairingError: The two differ in shape.
        InputError: Another shape or dtype, values wider apart than ``data_range``, not finite, or
            an option out of range.
    """
    require_choice("a comparison of pictures", "channel", channel, get_args(Channel))
    x, y, _ = _pair(image, reference, data_range)
    outside = None if mask is None else ~_mask(mask, x)
    difference = (_keep(a, outside) - _keep(b, outside) for a, b in zip(x, y, strict=True))
    n = x[0].size if outside is None else int(outside.sum())
    share = n / x[0].size
    if n == 0:
        return Outside(np.nan, share)
    if channel == "rgb":
        total = sum(float(np.square(d).sum()) for d in difference)
        return Outside(total / (n * len(x)), share)
    if len(x) != 3:
        raise InputError(f"channel={channel!r} needs 3 channels (RGB), found {len(x)}")
    luma = sum(weight * d for weight, d in zip(_LUMA, difference, strict=True))
    value = float(np.square(luma).sum()) / 1e6 / n
    return Outside(value * (_STUDIO**2 if channel == "y-studio" else 1.0), share)


def decibels(squared_error: np.ndarray | float, data_range: float) -> np.ndarray:
    """Turn mean squared errors into ``10 log10(data_range^2 / error)``; infinite at zero."""
    with np.errstate(divide="ignore"):
        return np.asarray(
            10.0 * np.log10(data_range**2 / np.asarray(squared_error, dtype=np.float64))
        )


def psnr(
    image: Picture,
    reference: Picture,
    *,
    data_range: float | None = None,
    mask: Picture | None = None,
    channel: Channel = "rgb",
) -> float:
    """Peak signal-to-noise ratio ``10 log10(R^2 / MSE)`` in dB, R = ``data_range``.

    Arguments and errors are those of :func:`mean_squared_error`. Identical pictures give infinity,
    a mask over everything NaN. White against black is 0 dB, and 1.322 dB on studio-swing luma.

    Examples:
        >>> white = np.full((3, 8, 8), 255, dtype=np.uint8)
        >>> round(psnr(white, white - 16), 4)
        24.0484
    """
    error = mean_squared_error(
        image, reference, data_range=data_range, mask=mask, channel=channel
    ).value
    return float(decibels(error, _range_of(_array(image), data_range)))


def structural_similarity(
    image: Picture,
    reference: Picture,
    *,
    data_range: float | None = None,
    mask: Picture | None = None,
) -> Outside:
    """SSIM by Wang et al. (2004) and the share of windows that entered it; see :func:`ssim`."""
    x, y, width = _pair(image, reference, data_range)
    _, height, breadth = x.shape
    if min(height, breadth) < WINDOW:
        raise InputError(
            f"SSIM looks through windows of {WINDOW}x{WINDOW} pixels and the image is"
            f" {breadth}x{height}; use larger images"
        )
    rows, columns = height - WINDOW + 1, breadth - WINDOW + 1
    outside = np.ones((rows, columns), dtype=bool)
    if mask is not None:
        outside = ~_touched(_mask(mask, x))
    n = int(outside.sum())
    share = n / outside.size
    if n == 0:
        return Outside(np.nan, share)
    total = 0.0
    for top in range(0, rows, _STRIP):
        inside = slice(top, min(top + _STRIP, rows) + WINDOW - 1)
        kept = outside[top : top + _STRIP]
        if kept.any():
            for a, b in zip(x[:, inside], y[:, inside], strict=True):
                found = _similarity(a.astype(np.float64), b.astype(np.float64), width)
                total += float(found.sum() if kept.all() else found[kept].sum())
    # exactly 1 at most; the last digit of a sum may say otherwise
    return Outside(min(total / (n * len(x)), 1.0), share)


def ssim(
    image: Picture,
    reference: Picture,
    *,
    data_range: float | None = None,
    mask: Picture | None = None,
) -> float:
    """Structural similarity (Wang, Bovik, Sheikh and Simoncelli, 2004), between -1 and 1.

    Gaussian window of sigma 1.5 and 11 taps, K1 = 0.01, K2 = 0.03, population covariance, windows
    wholly within the picture, a map for each channel, then the mean. With a mask, the mean over
    windows that touch no masked pixel. Negative values stay negative.

    Args:
        image: Picture to judge.
        reference: What it should look like, same shape.
        data_range: Width of the range of values, such as 1.0; 255 for uint8, required otherwise.
        mask: True where the picture was allowed to change.

    Returns:
        The mean, NaN where every window touches the mask.

    Raises:
        PairingError: The two differ in shape.
        InputError: A side below 11 pixels, another dtype, values wider apart than ``data_range``.

    Examples:
        >>> a, b = np.full((32, 32), 100, np.uint8), np.full((32, 32), 120, np.uint8)
        >>> round(ssim(a, b), 6)
        0.983611

    Matches scikit-image 0.26 with ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False``
    to 1e-12.
    """
    return structural_similarity(image, reference, data_range=data_range, mask=mask).value


def _similarity(x: np.ndarray, y: np.ndarray, data_range: float) -> np.ndarray:
    """Map of SSIM of two planes ``(h, w)``, shape ``(h - 10, w - 10)``."""
    c1, c2 = (_K1 * data_range) ** 2, (_K2 * data_range) ** 2
    mean_x, mean_y = _smooth(x), _smooth(y)
    product = 2 * mean_x * mean_y
    squares = mean_x * mean_x + mean_y * mean_y
    covariance = 2 * _smooth(x * y) - product
    variances = _smooth(x * x + y * y) - squares
    found: np.ndarray = (product + c1) * (covariance + c2) / ((squares + c1) * (variances + c2))
    return found


def _smooth(plane: np.ndarray) -> np.ndarray:
    """Gaussian mean over the windows that fit: two passes, each tap pair added once."""
    for axis in (0, 1):
        n = plane.shape[axis] - WINDOW + 1
        shifted = [plane[i : i + n] if axis == 0 else plane[:, i : i + n] for i in range(WINDOW)]
        half = WINDOW // 2
        total = shifted[half] * _TAPS[half]
        term = np.empty_like(total)
        for i in range(half):
            np.add(shifted[i], shifted[WINDOW - 1 - i], out=term)
            term *= _TAPS[i]
            total += term
        plane = total
    return plane


def _touched(mask: np.ndarray) -> np.ndarray:
    """Which windows hold at least one masked pixel."""
    windows = np.lib.stride_tricks.sliding_window_view
    across = windows(mask, WINDOW, axis=1).any(axis=-1)
    return np.asarray(windows(across, WINDOW, axis=0).any(axis=-1))


def _keep(plane: np.ndarray, outside: np.ndarray | None) -> np.ndarray:
    return (plane if outside is None else plane[outside]).astype(np.float64)


def _array(picture: Any) -> np.ndarray:
    """Any device and dtype; half precisions widen, numpy has no bfloat16."""
    if isinstance(picture, np.ndarray):
        return picture
    tensor = picture.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.double()
    return np.asarray(tensor)


def _range_of(picture: np.ndarray, data_range: float | None) -> float:
    if data_range is None:
        if picture.dtype != np.uint8:
            raise InputError(
                f"the image is {picture.dtype} and data_range is not given; pass the width of its"
                " range, such as data_range=1.0"
            )
        return 255.0
    require_real("a comparison of pictures", "data_range", data_range, above=0)
    return float(data_range)


def _pair(
    image: Picture, reference: Picture, data_range: float | None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Check two pictures; both as ``(C, H, W)``, and the width of their range."""
    x, y = _array(image), _array(reference)
    if x.shape != y.shape:
        raise PairingError(
            f"the image has shape {x.shape} and its reference {y.shape}; give both the same size"
        )
    if x.ndim == 2:
        x, y = x[None], y[None]
    if x.ndim != 3 or x.shape[0] > 4 or 0 in x.shape:
        raise InputError(f"the image has shape {x.shape}; expected (C, H, W) or (H, W)")
    numbers = x.dtype.kind in "uif" and y.dtype.kind in "uif"
    # of unlike kinds only a declared range says that both count in the same units
    if not numbers or (x.dtype.kind != y.dtype.kind and data_range is None):
        fix = ", or pass data_range=, the range of both" if numbers else ""
        raise InputError(
            f"the image is {x.dtype} and its reference {y.dtype}; give both as uint8 or as"
            f" floats{fix}"
        )
    width = _range_of(x, data_range)
    low, high = np.minimum(x.min(), y.min()), np.maximum(x.max(), y.max())
    if not float(high) - float(low) <= width * (1 + 1e-6):  # also catches NaN
        raise InputError(
            f"values reach from {low:g} to {high:g}, wider than data_range={width:g}; pass the"
            " range the images really have"
        )
    return x, y, width


def _mask(mask: Picture, picture: np.ndarray) -> np.ndarray:
    found = _array(mask)
    if found.dtype != np.bool_ or found.shape != picture.shape[1:]:
        raise InputError(
            f"the mask is {found.dtype} {found.shape}; expected bool {picture.shape[1:]}, True"
            " where the image was allowed to change"
        )
    return found
