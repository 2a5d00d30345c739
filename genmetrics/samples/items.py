"""From a sample to the decoded item extractors read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from genmetrics.core.errors import InputError
from genmetrics.core.fields import FIELDS, Field, field_of
from genmetrics.core.sample import Clip, Decoded, Item, Media, Sample
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
) -> Item:
    """Decode exactly what is asked for; of a clip no frame yet. Thread-safe.

    Args:
        sample: What to load.
        fields: Fields of the sample, such as ``("image", "prompt")``.
        decodes: Whose pixels of the image are wanted: ``"pil"``, ``"nvjpeg"``, or both. nvJPEG
            takes plain JPEGs (see :class:`genmetrics.samples.jpeg.JpegDecoder`), and all other
            files are Pillow's in either case.
        device: The CUDA device on which nvJPEG decodes.

    Returns:
        The item: pictures uint8 ``(3, H, W)``, masks bool ``(H, W)``, True where white, clips as
        what gives each frame; with the names of the conversions of its pictures. Pictures by nvJPEG
        are in ``decoded``, on the device.

    Raises:
        InputError: A field that is not optional is unset, or one cannot be decoded; the message
            names sample or file.
    """
    values: dict[str, Any] = {}
    conversions: list[str] = []
    decoded: dict[str, Tensor] = {}
    for name in fields:
        value: Any = sample.id if name == "id" else getattr(sample, field_of(name).name)
        if value is None and not FIELDS[name].optional:
            raise InputError(f"sample {sample.id!r} has no {name}")
        if value is None or name == "id":
            continue
        picture: Decoded | None = None
        if name == "image" and "nvjpeg" in decodes:
            decoded, picture = _load_with_nvjpeg(value, device)
            if decoded and "pil" not in decodes:
                continue
        values[name], done = _load(FIELDS[name], value, picture)
        conversions += done
    names = {name: getattr(sample, name).name for name in fields if _is_stored(name, sample)}
    return Item(
        id=sample.id, decoded=decoded, conversions=tuple(conversions), names=names, **values
    )


def _is_stored(name: str, sample: Sample) -> bool:
    return name in FIELDS and FIELDS[name].stored and getattr(sample, name) is not None


def _load(field: Field, value: Any, picture: Decoded | None) -> tuple[Any, tuple[str, ...]]:
    """Load what a field holds; also the conversions this took."""
    if field.kind == "picture":
        return _picture(picture or value.load())
    if field.kind == "mask":
        return _load_mask(value), ()
    if field.kind == "clip":
        return _frames(value), ()
    return value, ()


def _picture(decoded: Decoded) -> tuple[Tensor, tuple[str, ...]]:
    return to_tensor(decoded.pixels), decoded.conversions


def _frames(clip: Clip) -> list[Callable[[], tuple[Tensor, tuple[str, ...]]]]:
    """Give what decodes each frame."""
    return [partial(_frame, load) for load in clip.frames()]


def _frame(load: Callable[[], Decoded]) -> tuple[Tensor, tuple[str, ...]]:
    return _picture(load())


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
