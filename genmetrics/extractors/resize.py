"""Published ways to bring an image to a network's square input.

Each takes one uint8 image ``(3, H, W)`` and the side of the square, and gives float32 levels
``(3, size, size)`` in 0..255. Those named after a protocol compute on the image's device; the ones
whose convention is Pillow on bytes run Pillow itself, and so give its bytes exactly. Antialiasing
is always passed, never left to a library's default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

if TYPE_CHECKING:
    from PIL.Image import Image


def clean(image: Tensor, size: int) -> Tensor:
    """Bicubic with antialiasing on floats, clipped to 0..255, not rounded (Parmar et al., 2022).

    Equals Pillow's resize of mode ``"F"``, as clean-fid calls it, to 0.003 of a level.
    """
    return _interpolate(image, size, mode="bicubic", antialias=True).clamp_(0, 255)


def torchmetrics(image: Tensor, size: int) -> Tensor:
    """Bilinear with antialiasing on floats: the default of torchmetrics' FID since 1.8."""
    return _interpolate(image, size, mode="bilinear", antialias=True)


def pytorch_fid(image: Tensor, size: int) -> Tensor:
    """Bilinear with half-pixel centres and no antialiasing, as pytorch-fid does."""
    return _interpolate(image, size, mode="bilinear", antialias=False)


def tf1(image: Tensor, size: int) -> Tensor:
    """Bilinear as TensorFlow 1 did it, which FID's first code, torch-fidelity and ADM share.

    Output i reads the source at ``i * in / out`` (no half-pixel shift), between ``lo = floor`` and
    ``min(lo + 1, in - 1)``; no antialiasing.
    """
    rows = _tf1_axis(image, 1, size)
    return _tf1_axis(rows, 2, size)


def short_side_crop(image: Tensor, size: int) -> Tensor:
    """Short side to ``size`` by Pillow bicubic, then the centre: CLIP's published transform.

    The long side is ``int(size * long / short)`` and the crop starts at half the surplus rounded
    half to even, as in torchvision. Bit-equal to its ``Resize`` and ``CenterCrop`` on pictures.
    """
    return _short_side_crop(image, size, lambda surplus: round(surplus / 2))


def short_side_crop_floor(image: Tensor, size: int) -> Tensor:
    """:func:`short_side_crop` with half the surplus rounded down, as in transformers."""
    return _short_side_crop(image, size, lambda surplus: surplus // 2)


def square_crop(image: Tensor, size: int) -> Tensor:
    """The largest centred square (start: half the surplus, rounded down), by Pillow bicubic.

    The transform of the public CMMD code (Jayasumana et al., 2024).
    """
    _, height, width = image.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return squash(image[:, top : top + side, left : left + side], size)


def squash(image: Tensor, size: int) -> Tensor:
    """Whatever the shape, to the square by Pillow bicubic: dgm-eval's transform before DINOv2."""
    return _from_pil(_bicubic(_to_pil(image), size, size))


def timm_crop_875(image: Tensor, size: int) -> Tensor:
    """:func:`short_side_crop` that keeps the central 7/8: timm's transform for ``crop_pct`` 0.875.

    The short side becomes ``floor(size / 0.875)``.
    """
    return _short_side_crop(image, size, lambda surplus: round(surplus / 2), short=size * 8 // 7)


RESIZES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "clean": clean,
    "tf1": tf1,
    "pytorch-fid": pytorch_fid,
    "torchmetrics": torchmetrics,
    "short_side_crop": short_side_crop,
    "short_side_crop_floor": short_side_crop_floor,
    "timm_crop_875": timm_crop_875,
    "square_crop": square_crop,
    "squash": squash,
}


ON_DEVICE = frozenset({"clean", "tf1", "pytorch-fid", "torchmetrics"})
"""Those that compute where the image lies, on a GPU too; the others are Pillow on bytes."""


def _interpolate(image: Tensor, size: int, *, mode: str, antialias: bool) -> Tensor:
    # Decoders give height x width x 3; interpolating that layout takes three times as long.
    levels = image.to(torch.float32, memory_format=torch.contiguous_format)[None]
    return interpolate(
        levels, size=(size, size), mode=mode, align_corners=False, antialias=antialias
    )[0]


def _tf1_axis(image: Tensor, axis: int, size: int) -> Tensor:
    length = image.shape[axis]
    where = torch.arange(size, dtype=torch.float32, device=image.device) * (length / size)
    lo = where.floor().to(torch.int64).clamp_(max=length - 1)
    hi = (lo + 1).clamp_(max=length - 1)
    weight = (where - lo).view(-1, 1) if axis == 1 else where - lo
    below = image.index_select(axis, lo).to(torch.float32)
    above = image.index_select(axis, hi).to(torch.float32)
    return below.add_((above - below).mul_(weight))


def _short_side_crop(
    image: Tensor, size: int, half: Callable[[int], int], *, short: int | None = None
) -> Tensor:
    """Resize the short side to ``short`` (default ``size``), then cut at ``half`` the surplus."""
    _, height, width = image.shape
    short = short or size
    longer = int(short * max(height, width) / min(height, width))
    resized = (longer, short) if height < width else (short, longer)
    left, top = half(resized[0] - size), half(resized[1] - size)
    if longer > _EXTREME * short:
        return _kept_only(image, resized, (left, top), size)
    picture = _bicubic(_to_pil(image), *resized)
    return _from_pil(picture.crop((left, top, left + size, top + size)))


_EXTREME = 16
"""Ratio of sides beyond which the part that the crop drops is not computed: it could be gigabytes,
and below it Pillow is faster."""


def _kept_only(
    image: Tensor, resized: tuple[int, int], corner: tuple[int, int], size: int
) -> Tensor:
    """Resize to ``(width, height)`` and cut at ``(left, top)``, bit for bit, of a long picture.

    Pillow goes over columns first, rounds to bytes, then over rows, and the results along an axis
    do not depend on each other. So the kept ones of the long axis are computed here.
    """
    (width, height), (left, top) = resized, corner
    if width > height:
        taps = [_taps(image.shape[2], width, left + i) for i in range(size)]
        picture = _bicubic(_to_pil(_along_rows(image, taps)), size, height)
        return _from_pil(picture.crop((0, top, size, top + size)))
    taps = [_taps(image.shape[1], height, top + i) for i in range(size)]
    first, last = taps[0][0], max(start + len(weights) for start, weights in taps)
    rows = _bicubic(_to_pil(image[:, first:last]), width, last - first)
    rows = rows.crop((left, 0, left + size, last - first))
    turned = torch.from_numpy(np.asarray(rows).transpose(2, 1, 0).copy())
    cut = _along_rows(turned, [(start - first, weights) for start, weights in taps])
    return cut.mT.to(torch.float32).contiguous()


def _along_rows(image: Tensor, taps: list[tuple[int, np.ndarray]]) -> Tensor:
    """Compute columns of a resized image: uint8 ``(3, H, W)`` to ``(3, H, len(taps))``."""
    levels = image.cpu().numpy()
    out = np.empty((*levels.shape[:2], len(taps)), np.uint8)
    for column, (start, weights) in enumerate(taps):
        seen = levels[:, :, start : start + len(weights)].astype(np.int64)
        rounded = ((seen * weights).sum(axis=2) + (1 << _BITS - 1)) >> _BITS
        out[:, :, column] = rounded.clip(0, 255)
    return torch.from_numpy(out)


_BITS = 22  # of the fraction in Pillow's weights


def _taps(length: int, resized: int, index: int) -> tuple[int, np.ndarray]:
    """Return which pixels make one of a resized axis: the first, and the weights from there on.

    Arithmetic and rounding are those of Pillow's ``Resample.c`` for bicubic on bytes.
    """
    scale = length / resized
    stretch = max(scale, 1.0)
    centre = (index + 0.5) * scale
    first = max(int(centre - 2.0 * stretch + 0.5), 0)
    last = min(int(centre + 2.0 * stretch + 0.5), length)
    x = np.abs((np.arange(last - first) + first - centre + 0.5) * (1.0 / stretch))
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    weights = np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))
    total = np.cumsum(weights)[-1]  # one after the other, as C adds them
    weights = weights / total * (1 << _BITS)
    return first, np.trunc(weights + np.copysign(0.5, weights)).astype(np.int64)


def _bicubic(picture: Image, width: int, height: int) -> Image:
    from PIL.Image import Resampling

    return picture.resize((width, height), resample=Resampling.BICUBIC)


def _to_pil(image: Tensor) -> Image:
    from PIL import Image

    # Decoders give planes, which Pillow joins ten times as fast as numpy does.
    return Image.merge("RGB", [Image.fromarray(plane) for plane in image.cpu().numpy()])


def _from_pil(picture: Image) -> Tensor:
    levels = torch.from_numpy(np.asarray(picture).transpose(2, 0, 1).astype(np.float32, order="C"))
    return levels
