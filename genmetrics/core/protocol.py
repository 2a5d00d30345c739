"""Protocols: every choice that moves a number, as a frozen dataclass with a fingerprint."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

LOCAL: Mapping[str, bool] = {"local": True}
"""``field(metadata=LOCAL)`` marks a field that moves no number, such as a path."""


def canonical_json(value: Any) -> str:
    """Serialise to the one JSON text that is hashed: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint_of(value: Any) -> str:
    """Return ``"sha256:..."`` of the canonical JSON of ``value``."""
    return "sha256:" + hashlib.sha256(canonical_json(value).encode()).hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
    """Every choice that moves the number. Its hash is printed beside each value.

    Subclasses add fields holding strings, numbers, booleans, None, tuples of these, or protocols.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values, without those marked ``LOCAL``."""
        return {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if not field.metadata.get("local")
        }

    @property
    def fingerprint(self) -> str:
        """``"sha256:..."`` of the canonical JSON of :meth:`to_dict`."""
        return fingerprint_of(self.to_dict())


def _plain(value: Any) -> Any:
    if isinstance(value, Protocol):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if not isinstance(value, int | float) and isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)  # numpy's, say
    return value


def differences(mine: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the fields in which two protocol dictionaries differ.

    Args:
        mine: One protocol, as :meth:`Protocol.to_dict` gives it.
        other: The other.
        prefix: Put before each field name (used for nested protocols).

    Returns:
        One text a field, such as ``"extractor.resize: 'clean' against 'tf1'"``, in field order.
    """
    found: list[str] = []
    for key in [*mine, *(key for key in other if key not in mine)]:
        a, b = mine.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, f"{prefix}{key}.")
        elif a != b or (key in mine) != (key in other):
            found.append(f"{prefix}{key}: {a!r} against {b!r}")
    return found
