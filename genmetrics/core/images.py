"""The one range contract of images in memory. No metric has its own idea of range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from genmetrics.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


def as_uint8(
    images: Tensor | Sequence[Tensor], value_range: tuple[float, float] = (0.0, 1.0)
) -> list[Tensor]:
    """Turn what ``update`` accepts into uint8 images.

    Args:
        images: A uint8 tensor ``(N, 3, H, W)`` in 0..255; a list of tensors ``(3, H, W)`` of any
            sizes; or floats of the same shapes within ``value_range``. With one channel in place of
            three they are grey, which is replicated.
        value_range: The declared range of floats; uint8 input ignores it. Nothing is ever guessed
            from the values.

    Returns:
        N uint8 tensors ``(3, H, W)`` on the device of the input. Floats are scaled to 0..255 and
        rounded to the nearest level, so a level k stored as k/255 comes back as k in any dtype.

    Raises:
        InputError: Another shape or dtype, a NaN, or a value outside ``value_range`` (the message
            shows the extreme).
    """
    import torch

    lo, hi = value_range
    if not (hi > lo and math.isfinite(hi - lo)):
        raise InputError(f"value_range is ({lo}, {hi}); pass two finite numbers, the larger second")
    if isinstance(images, torch.Tensor):
        if images.ndim != 4:
            raise InputError(
                f"images have shape {tuple(images.shape)}; expected (N, 3, H, W), or (N, 1, H, W)"
                " for grey, or a list of (3, H, W)"
            )
        images = list(images)
    return [_one(image, i, lo, hi) for i, image in enumerate(images)]


def _one(image: Tensor, index: int, lo: float, hi: float) -> Tensor:
    import torch

    if not isinstance(image, torch.Tensor):
        raise InputError(
            f"image {index} is a {type(image).__name__}; pass tensors (3, H, W), for files use"
            " gm.load_image(path)"
        )
    if image.ndim != 3 or image.shape[0] not in (1, 3) or 0 in image.shape:
        raise InputError(
            f"image {index} has shape {tuple(image.shape)}; expected (3, H, W), channels first,"
            " RGB, or (1, H, W), grey"
        )
    if image.dtype == torch.uint8:
        return _rgb(image)
    if not image.is_floating_point():
        raise InputError(f"image {index} has dtype {image.dtype}; expected uint8 or float")
    low, high = image.amin().item(), image.amax().item()
    if low != low or high != high:
        raise InputError(f"image {index} holds NaN; fix the generator or drop the image")
    if low < lo or high > hi:
        extreme = high if high > hi else low
        raise InputError(
            f"image {index} holds the value {extreme:g}, outside the declared range"
            f" ({lo:g}, {hi:g}); pass value_range=(lo, hi) or clamp"
        )
    levels = (image.detach().to(torch.float32) - lo) * (255.0 / (hi - lo))
    return _rgb(levels.round_().clamp_(0, 255).to(torch.uint8))


def _rgb(image: Tensor) -> Tensor:
    """Replicate grey, as the loader of files does."""
    return image if image.shape[0] == 3 else image.repeat(3, 1, 1)


def as_masks(masks: Tensor | Sequence[Tensor], images: Sequence[Tensor]) -> list[Tensor]:
    """Check masks against images: bool ``(N, H, W)`` or N of ``(H, W)``, True = may change."""
    import torch

    given = list(masks)
    if len(given) != len(images):
        raise InputError(f"{len(given)} masks for {len(images)} images; pass one mask an image")
    for i, (mask, image) in enumerate(zip(given, images, strict=True)):
        if mask.dtype != torch.bool or mask.shape != image.shape[1:]:
            raise InputError(
                f"mask {i} is {mask.dtype} {tuple(mask.shape)}; expected torch.bool"
                f" {tuple(image.shape[1:])}, True where the image was allowed to change"
            )
    return given
