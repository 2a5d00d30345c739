"""Metrics in a training loop: images in memory, one pass of each extractor for all that ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from genmetrics.core.batching import Batches, run_items
from genmetrics.core.errors import FeatureError, InputError, shown
from genmetrics.core.extractor import Extractor, ExtractorSpec, require_sound
from genmetrics.core.fields import FIELDS, Field
from genmetrics.core.images import as_masks, as_uint8
from genmetrics.core.outputs import plain_records
from genmetrics.core.rows import Features
from genmetrics.core.sample import Item
from genmetrics.core.state import require_own_ids

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 32
"""Largest batch of one update; more images are run in pieces of this size."""


class Loop:
    """Extractors of metrics that are given images directly, each built once.

    Where the device's memory ends, batches are halved from then on.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._built: dict[str, Extractor] = {}
        self._sizes: dict[str, int] = {}

    def extract(self, spec: ExtractorSpec, items: Sequence[Item]) -> Features:
        """Return the features of items.

        Raises:
            FeatureError: Features that cannot be right; names the item.
        """
        key = spec.fingerprint
        if key not in self._built:
            spec.check()
            self._built[key] = spec.build(self.device)
        size = self._sizes.get(key, BATCH)
        if spec.lane == "remote":
            size = 1  # an endpoint is asked about one sample at a time, as in a run
        elif spec.view == "whole":
            size = min(len(items), size)
        batches = Batches(self._built[key], size, halved=partial(self._sizes.__setitem__, key))
        ids = [item.id for item in items]
        try:
            found, wrong = plain_records(spec, run_items(batches, items))
        except Exception as error:
            error.add_note(f"{spec.extractor}, samples {ids[0]!r} to {ids[-1]!r} ({len(ids)})")
            raise
        for i, reason in wrong.items():
            raise FeatureError(f"{reason} at sample {ids[i]!r}; give plain values")
        require_sound(spec, found, ids)
        return found


def as_items(
    given: Mapping[str, Any],
    *,
    ids: Sequence[str] | None,
    numbered: Callable[[int], list[str]],
    value_range: tuple[float, float] = (0.0, 1.0),
) -> list[Item]:
    """Zip what ``update`` was given into items.

    Args:
        given: Plural of a field to one entry an item; None is left out.
        ids: Names, if the caller has some.
        numbered: Makes names.
        value_range: Declared range of float pictures.

    Raises:
        InputError: Lists of unequal length, or something that is not what its field holds.
    """
    columns: dict[str, Sequence[Any]] = {}
    for field in FIELDS.values():
        values = given.get(field.plural)
        if values is not None:
            columns[field.name] = _column(field, values, columns, value_range)
    count = len(next(iter(columns.values()), ()))
    require_own_ids(ids or ())
    names = numbered(count) if ids is None else _texts("ids", ids)
    for name, column in {"id": names, **columns}.items():
        if len(column) != count:
            raise InputError(f"{len(column)} {name}s for {count} images; pass one an image")
    return [
        Item(id=id_, **dict(zip(columns, row, strict=True)))
        for id_, row in zip(names, zip(*columns.values(), strict=True), strict=True)
    ]


def _column(
    field: Field,
    values: Any,
    columns: Mapping[str, Sequence[Any]],
    value_range: tuple[float, float],
) -> Sequence[Any]:
    """Check what was given of one field."""
    if field.kind == "picture":
        return as_uint8(values, value_range)
    if field.kind == "mask":
        return as_masks(values, columns.get("image", ()))
    if field.kind == "clip":
        return [_clip(clip, value_range) for clip in values]
    if field.kind == "text":
        return _texts(field.plural, values)
    if isinstance(values, str | Mapping):
        raise InputError(f"{field.plural} is one value; pass a list with one entry an image")
    entries = list(values)
    for i, entry in enumerate(entries):
        if not (isinstance(entry, Mapping | list | tuple) or (entry is None and field.optional)):
            raise InputError(
                f"{field.plural} holds {shown(entry)} at {i}; expected a mapping or a list"
            )
    return entries


def _clip(frames: Any, value_range: tuple[float, float]) -> list[Callable[[], Any]]:
    """Check the frames of a clip; each is handed out without conversions."""

    def give(picture: Tensor) -> tuple[Tensor, tuple[str, ...]]:
        return picture, ()

    return [partial(give, picture) for picture in as_uint8(frames, value_range)]


def _texts(name: str, values: Sequence[str]) -> Sequence[str]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{name} must be a list of texts, one an image, not {shown(values)}")
    return values
