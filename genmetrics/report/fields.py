"""JSON values read field by field: a wrong one is an error of one line with its place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from genmetrics.core.errors import InputError, shown

_NEEDED: Any = object()


class Fields:
    """A JSON object of a file.

    Args:
        value: What should be an object.
        file: Name of the file, for messages.
        place: Where in the file, such as ``"metrics.fid@clean"``.
        fix: What to do about a file that is wrong.
    """

    __slots__ = ("file", "fix", "place", "values")

    def __init__(self, value: Any, file: str, place: str, fix: str) -> None:
        self.file, self.place, self.fix = file, place, fix
        if not isinstance(value, dict):
            raise self.fault(place, value, "an object")
        self.values: dict[str, Any] = value

    def fault(self, place: str, value: Any, expected: str) -> InputError:
        """The error that says what is where, and what should be."""
        found = "missing" if value is _NEEDED else f"{value!r:.60}"
        where = f"{self.file}: {place}" if place else self.file
        return InputError(f"{where} is {found}; expected {expected}: {self.fix}")

    def wrong(self, key: str, expected: str) -> InputError:
        """The error about one field."""
        return self.fault(self._at(key), self.values.get(key, _NEEDED), expected)

    def _at(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key

    def text(self, key: str, default: Any = _NEEDED) -> str:
        """A text."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def text_or_none(self, key: str, default: Any = None) -> str | None:
        """A text, or null."""
        return None if self.values.get(key, default) is None else self.text(key)

    def flag(self, key: str, default: Any = _NEEDED) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def count(self, key: str, default: Any = _NEEDED) -> int:
        """A whole number from 0."""
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.wrong(key, "a whole number of at least 0")
        return value

    def number(self, key: str) -> float:
        """A number; what stood for NaN or infinity was put back before."""
        value = as_number(self.values.get(key, _NEEDED))
        if value is None:
            raise self.wrong(key, "a number")
        return value

    def object(self, key: str, default: Any = _NEEDED) -> Fields:
        """An object."""
        value = self.values.get(key, default)
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Fields(value, self.file, self._at(key), self.fix)

    def objects(self, key: str, default: Any = _NEEDED) -> list[Fields]:
        """A list of objects."""
        return [
            Fields(each, self.file, f"{self._at(key)}[{i}]", self.fix)
            for i, each in enumerate(self.list(key, default))
        ]

    def each(self) -> Mapping[str, Fields]:
        """An object of objects, by their names."""
        return {key: self.object(key) for key in self.values}

    def list(self, key: str, default: Any = _NEEDED) -> list[Any]:
        """A list."""
        value = self.values.get(key, default)
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def texts(self, key: str, default: Any = _NEEDED) -> tuple[str, ...]:
        """A list of texts."""
        value = self.list(key, default)
        if not all(isinstance(each, str) for each in value):
            raise self.wrong(key, "a list of texts")
        return tuple(value)


def as_number(value: Any) -> float | None:
    """Return a JSON number as a float; None for anything else, also if it is too large."""
    if type(value) is float:
        return value
    if type(value) is not int:
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def refuse_twice(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object; of a key that comes twice nobody knows which value is meant.

    Raises:
        ValueError: Names the key.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise ValueError(f"it holds the key {shown(twice)!r} twice")
    return found


def put_back(not_finite: Mapping[str, Any], value: Any) -> str | None:
    """Put NaN and infinities in their places.

    Args:
        not_finite: JSON Pointers to ``"nan"``, ``"inf"`` or ``"-inf"``.
        value: What they point into; changed in place.

    Returns:
        The first pointer that leads to no null, or says something else; None if all is well.
    """
    for pointer, text in not_finite.items():
        found = float(text) if text in ("nan", "inf", "-inf") else 0.0
        parent, key = _follow(pointer, value)
        if math.isfinite(found) or parent is None or parent[key] is not None:
            return pointer
        parent[key] = found
    return None


def _follow(pointer: str, value: Any) -> tuple[Any, Any]:
    """Return the container and the key that a pointer names; None where it leads nowhere."""
    parent: Any = None
    key: Any = None
    for part in pointer.split("/")[1:]:
        parent = value
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(parent, list):
            key = int(key) if key.isdecimal() and len(key) < 10 else -1
            if not 0 <= key < len(parent):
                return None, None
        elif not isinstance(parent, dict) or key not in parent:
            return None, None
        value = parent[key]
    return parent, key
