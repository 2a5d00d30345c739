"""From a sample to the decoded item extractors read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from genmetrics.core.errors import InputError, PairingError
from genmetrics.core.sample import Decoded, Item, Media, Sample
from genmetrics.samples.image import to_tensor
from genmetrics.samples.media import StoredMedia

if TYPE_CHECKING:
    from torch import Tensor

_WHITE = 128  # a mask's level from which a pixel counts as white


def load_item(
    sample: Sample,
    fields: Sequence[str],
    decodes: Collection[str] = ("pil",),
    device: str = "cpu",
) -> tuple[Item, tuple[str, ...]]:
    """Decode exactly what is asked for. Thread-safe.

    Args:
        sample: What to load.
        fields: Fields of the sample, such as ``("image", "prompt")``. Only ``mask`` may be unset.
        decodes: Whose pixels of the image are wanted: ``"pil"``, ``"nvjpeg"``, or both. nvJPEG
            takes plain JPEGs (see :class:`genmetrics.samples.jpeg.JpegDecoder`), and all other
            files are Pillow's in either case.
        device: The CUDA device on which nvJPEG decodes.

    Returns:
        The item (``image`` and ``reference`` uint8 ``(3, H, W)``, ``mask`` bool ``(H, W)``, True
        where white), and the names of the conversions of image and reference. Pictures by nvJPEG
        are in ``decoded``, on the device.

    Raises:
        InputError: A field is unset or cannot be decoded; the message names sample or file.
        PairingError: Reference or mask have another size than the image; both are named.
    """
    values: dict[str, Any] = {}
    conversions: list[str] = []
    for field in fields:
        value = getattr(sample, field)
        if value is None and field != "mask":
            raise InputError(f"sample {sample.id!r} has no {field}")
        if value is None:
            continue
        if field == "mask":
            value = _load_mask(value)
        elif field in ("image", "reference"):
            decoded: Decoded | None = None
            if field == "image" and "nvjpeg" in decodes:
                values["decoded"], decoded = _load_with_nvjpeg(value, device)
                if values["decoded"] and "pil" not in decodes:
                    continue
            decoded = decoded or value.load()
            conversions += decoded.conversions
            value = to_tensor(decoded.pixels)
        values[field] = value
    _check_sizes(sample, values)
    return Item(**{**values, "id": sample.id}), tuple(conversions)


def _load_with_nvjpeg(media: Media, device: str) -> tuple[dict[str, Tensor], Decoded | None]:
    """Decode a plain JPEG on the device; of other stored files give what Pillow makes of them."""
    from genmetrics.samples.jpeg import nvjpeg

    if not isinstance(media, StoredMedia):
        return {}, None
    found = media.load_with(nvjpeg(device))
    return ({}, found) if isinstance(found, Decoded) else ({"nvjpeg": found}, None)


def _load_mask(media: Media) -> Tensor:
    """Read a mask: True where every channel is 128 or more."""
    import torch

    levels = media.load().pixels.min(axis=2)
    high = int(levels.max())
    if 0 < high < _WHITE:
        raise InputError(
            f"mask {media.name} reaches level {high} of 255, so nothing in it is white; save masks"
            " with levels 0 and 255"
        )
    return torch.from_numpy(levels >= _WHITE)


def _check_sizes(sample: Sample, values: dict[str, Any]) -> None:
    image = values.get("image", values.get("decoded", {}).get("nvjpeg"))
    if image is None or sample.image is None:
        return
    height, width = image.shape[1:]
    for field in ("reference", "mask"):
        if field not in values:
            continue
        other = values[field].shape[-2:]
        if tuple(other) != (height, width):
            name = getattr(sample, field).name
            raise PairingError(
                f"{sample.image.name} is {width}×{height} but its {field} {name} is"
                f" {other[1]}×{other[0]}; resize or replace one of them"
            )
