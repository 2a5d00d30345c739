"""Samples: one thing to judge and what belongs to it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from genmetrics.core.device import send_ahead
from genmetrics.core.errors import InputError
from genmetrics.core.protocol import canonical_json

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


class Decoded(NamedTuple):
    """An image as every metric sees it: uint8 RGB ``(H, W, 3)``, and what was done to get there."""

    pixels: np.ndarray
    conversions: tuple[str, ...]


class Media(Protocol):
    """A picture not decoded yet: a file, a member of an archive, a row of an array."""

    @property
    def name(self) -> str:
        """What errors and reports call it: a path, or archive and member."""

    def digest(self) -> str:
        """Hex sha256 of the stored content; equal content has equal digests wherever it lies."""

    def size(self) -> tuple[int, int]:
        """Width and height of the upright image, read from the header alone."""

    def load(self) -> Decoded:
        """Decode. Raises :class:`~genmetrics.core.errors.InputError` that names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One thing to judge, by handle. Only the fields a metric declares in ``inputs`` must be set.

    ``mask`` is white (True) where the image was allowed to change; ``spec`` is the benchmark's own
    description of what the image should show (for GenEval, the metadata row).
    """

    id: str
    image: Media | None = None
    prompt: str | None = None
    reference: Media | None = None
    mask: Media | None = None
    spec: Mapping[str, Any] | None = None

    @property
    def path(self) -> str | None:
        """Where the image lies, as reports show it."""
        return self.image.name if self.image is not None else None

    def digest(self, fields: Sequence[str]) -> str:
        """Return the hex sha256 that stands for the content of ``fields`` together.

        An unset ``mask`` is content too ("no mask"); any other unset field is an error.
        """
        parts = [self._field_digest(field) for field in fields]
        return parts[0] if len(parts) == 1 else _sha256("\n".join(parts))

    def _field_digest(self, field: str) -> str:
        value = getattr(self, field)
        if value is None and field != "mask":
            raise InputError(f"sample {self.id!r} has no {field}")
        if isinstance(value, str):
            return _sha256(value)
        if value is None or isinstance(value, Mapping):
            return _sha256(canonical_json(value))
        return str(value.digest())


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A decoded sample: what extractors read.

    ``image`` and ``reference`` are uint8 ``(3, H, W)``, ``mask`` is bool ``(H, W)``. ``decoded``
    holds the image as other decoders than Pillow give it, by their names, where one was asked for
    and took the file; if nobody asked for Pillow's then, ``image`` is None.
    """

    id: str
    image: Tensor | None = None
    prompt: str | None = None
    reference: Tensor | None = None
    mask: Tensor | None = None
    spec: Mapping[str, Any] | None = None
    decoded: Mapping[str, Tensor] = field(default_factory=dict)
    _sent: dict[tuple[str, str], Tensor] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def picture(self, decode: str, device: str = "cpu") -> Tensor:
        """Give the image as a decoder made it, on a CUDA device if that is the device.

        It is copied there once, however many extractors ask. For other devices it stays where it
        lies. Not for several threads at a time.

        Args:
            decode: ``"pil"``, or the name of another decoder; where that one did not take the file,
                the image is Pillow's.
            device: Where it is going to be used.

        Raises:
            InputError: The sample has no image.
        """
        found = self.decoded.get(decode, self.image)
        if found is None:
            raise InputError(f"sample {self.id!r} has no image")
        if (decode, device) not in self._sent:
            self._sent[decode, device] = send_ahead(found, device)
        return self._sent[decode, device]
