"""Samples: one thing to judge and what belongs to it; and items, what extractors read of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from genmetrics.core.device import send_ahead
from genmetrics.core.errors import InputError
from genmetrics.core.fields import FIELDS, field_of
from genmetrics.core.protocol import canonical_json

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


class Decoded(NamedTuple):
    """An image as every metric sees it: uint8 RGB ``(H, W, 3)``, and what was done to get there."""

    pixels: np.ndarray
    conversions: tuple[str, ...]


class Content(Protocol):
    """Something in a file of its own that was not opened yet."""

    @property
    def name(self) -> str:
        """What errors and reports call it: a path, or archive and member."""

    def digest(self) -> str:
        """Hex sha256 of the stored content; equal content has equal digests wherever it lies."""

    def size(self) -> tuple[int, int]:
        """Width and height of the upright picture, read from the header alone."""


class Media(Content, Protocol):
    """A picture not decoded yet: a file, a member of an archive, a row of an array."""

    def load(self) -> Decoded:
        """Decode. Raises :class:`~genmetrics.core.errors.InputError` that names the file."""


class Clip(Content, Protocol):
    """A video not decoded yet."""

    def frames(self) -> Iterator[Callable[[], Decoded]]:
        """Yield a function for each frame in order that decodes it, on whichever thread calls it.

        Raises:
            InputError: The frames cannot be read; names the file.
        """


Frames = Sequence[Callable[[], tuple["Tensor", tuple[str, ...]]]]
"""A clip in an item: what gives each frame's picture, uint8 ``(3, H, W)``, and its conversions."""


_NAMES: dict[tuple[str, ...], tuple[str, ...]] = {}


class _Holder:
    """An id and the fields that are set, each an attribute; a field that is not set is None."""

    # two tuples and not a dictionary: there may be millions, and the names are one object for all
    __slots__ = ("_names", "_values", "id")

    def __init__(self, *, id: str, **fields: Any) -> None:
        for name in fields:
            if name not in FIELDS:
                field_of(name)
        names = tuple(name for name, value in fields.items() if value is not None)
        self.id = id
        self._names = _NAMES.setdefault(names, names)
        self._values = tuple(value for value in fields.values() if value is not None)

    def __getattr__(self, name: str) -> Any:
        if name in FIELDS:
            names = self._names
            return self._values[names.index(name)] if name in names else None
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def __eq__(self, other: object) -> bool:
        same = type(other) is type(self)
        return same and (self.id, self.fields) == (other.id, other.fields)  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = "".join(f", {name}={value!r}" for name, value in self.fields.items())
        return f"{type(self).__name__}(id={self.id!r}{fields})"

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields that are set."""
        return dict(zip(self._names, self._values, strict=True))


class Sample(_Holder):
    """One thing to judge, by handle: ``Sample(id="a", image=media, prompt="a cat")``.

    Only the fields that a metric declares in ``inputs`` must be set; they are the rows of
    :data:`genmetrics.core.fields.FIELDS`. Treat it as frozen: :meth:`having` makes another.

    ``mask`` is white (True) where the image was allowed to change; ``spec`` is the benchmark's own
    description of what the image should show (for GenEval, the metadata row).
    """

    __slots__ = ()

    def having(self, **fields: Any) -> Self:
        """Return the sample with other fields; ``id`` may be among them."""
        return type(self)(**{"id": self.id, **self.fields, **fields})

    @property
    def path(self) -> str | None:
        """Where the image or clip lies, as reports show it."""
        shown = self.image or self.video
        return None if shown is None else str(shown.name)

    def digest(self, fields: Sequence[str]) -> str:
        """Return the hex sha256 that stands for the content of ``fields`` together.

        An unset field that is optional, such as a mask, is content too; any other is an error.
        """
        if len(fields) == 1:
            return self._field_digest(fields[0])
        return _sha256("\n".join(map(self._field_digest, fields)))

    def _field_digest(self, field: str) -> str:
        if field in self._names:  # before anything else: of media this is asked very often
            value = self._values[self._names.index(field)]
            if hasattr(value, "digest"):
                return str(value.digest())
        else:
            value = self.id if field == "id" else getattr(self, field_of(field).name)
        if value is None and not FIELDS[field].optional:
            raise InputError(f"sample {self.id!r} has no {field}")
        return _sha256(value if isinstance(value, str) else canonical_json(value))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Item(_Holder):
    """What an extractor reads: a decoded sample, or a part of one, such as a frame.

    ``image`` and ``reference`` are uint8 ``(3, H, W)``, ``mask`` is bool ``(H, W)``, ``video`` is
    :data:`Frames`; texts and records are as in the sample.

    Attributes:
        decoded: The image as other decoders than Pillow give it, by their names, where one was
            asked for and took the file; if nobody asked for Pillow's then, ``image`` is None.
        conversions: What was done to pictures to reach RGB of 8 bit, by name.
        names: What the files of fields are called, for messages.
        part: Which part of its sample it is, from 0 on.
    """

    __slots__ = ("_sent", "conversions", "decoded", "names", "part", "question")

    def __init__(
        self,
        *,
        id: str,
        decoded: Mapping[str, Tensor] | None = None,
        conversions: tuple[str, ...] = (),
        names: Mapping[str, str] | None = None,
        part: int = 0,
        question: str | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(id=id, **fields)
        self.decoded = dict(decoded or {})
        self.conversions = conversions
        self.names = dict(names or {})
        self.part = part
        self.question = question
        self._sent: dict[tuple[str, str], Tensor] = {}

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
