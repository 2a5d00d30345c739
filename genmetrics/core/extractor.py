"""Extractors: frozen models with their own preprocessing. Items in, features out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from genmetrics.core.errors import FeatureError
from genmetrics.core.protocol import Protocol
from genmetrics.core.sample import Item

Rows = np.ndarray | list[Any]
"""One entry a sample: an array ``(n, ...)``, or a list of JSON values for records."""

Features = Mapping[str, Rows]
"""What an extractor gives for ``n`` samples: output name to rows."""

OutputKind = Literal["vector", "score", "record"]


@dataclass(frozen=True, kw_only=True)
class ExtractorSpec(Protocol):
    """Which model, which preprocessing: everything that moves the features, and how to build it.

    The planner recognises shared work by the fingerprint of this. A subclass adds its fields
    (weights id and sha256, resize, normalisation, layer) and says what it reads and gives.
    """

    inputs: ClassVar[tuple[str, ...]] = ("image",)
    """Fields of the sample that the extractor reads; their content keys the store."""

    outputs: ClassVar[Mapping[str, OutputKind]] = {}
    """Name of each output and its kind. Vectors are checked to be finite and not all zero."""

    extractor: str

    @abstractmethod
    def check(self) -> None:
        """Raise a one-line error if the extractor cannot be built here: no weights, no extra."""

    @abstractmethod
    def build(self, device: str) -> Extractor:
        """Load the model onto ``device``."""


class Extractor(ABC):
    """A frozen model: no gradients, always in evaluation mode, no random numbers.

    ``prepare`` runs on worker threads for one item at a time, on the CPU; ``forward`` runs on the
    device for a batch of prepared items.
    """

    fill: int | None = None
    """A short batch is filled up with copies to a multiple of this, or whole where it is None.

    Kernels, and so last digits, follow shapes. Where they do not, 1 spares the copies.
    """

    def __init__(self, spec: ExtractorSpec, device: str) -> None:
        self.spec = spec
        self.device = device

    @abstractmethod
    def prepare(self, item: Item) -> Any:
        """Turn one item into what :meth:`forward` stacks. Thread-safe."""

    @abstractmethod
    def forward(self, prepared: Sequence[Any]) -> Features:
        """Compute the features of a batch; arrays come back on the CPU as float32."""

    def extract(self, prepared: Sequence[Any], batch_size: int) -> Features:
        """Run :meth:`forward` in batches of ``batch_size`` and join what it gives.

        The last batch is filled up (see :attr:`fill`) with copies of its last entry, whose rows
        are dropped again.
        """
        pieces = []
        for start in range(0, len(prepared), batch_size):
            batch = list(prepared[start : start + batch_size])
            n = len(batch)
            step = self.fill or batch_size
            batch += [batch[-1]] * (min(-(-n // step) * step, batch_size) - n)
            pieces.append({name: rows[:n] for name, rows in self.forward(batch).items()})
        return concatenate(pieces)


def concatenate(pieces: Sequence[Features]) -> Features:
    """Join features of consecutive samples. At least one piece is needed."""
    if len(pieces) == 1:
        return pieces[0]
    joined: dict[str, Rows] = {}
    for name, first in pieces[0].items():
        if isinstance(first, np.ndarray):
            joined[name] = np.concatenate([piece[name] for piece in pieces])
        else:
            joined[name] = [row for piece in pieces for row in piece[name]]
    return joined


def take(features: Features, index: Sequence[int]) -> Features:
    """Select rows by position."""
    return {
        name: rows[np.asarray(index, dtype=np.intp)]
        if isinstance(rows, np.ndarray)
        else [rows[i] for i in index]
        for name, rows in features.items()
    }


def broken_rows(spec: ExtractorSpec, features: Features) -> dict[int, str]:
    """Find rows no working model gives: vectors that are not finite or all zero, NaN scores.

    Returns:
        Position in the batch to the reason, in one line.
    """
    found: dict[int, str] = {}
    for name, kind in spec.outputs.items():
        rows = features.get(name)
        if kind == "record" or not isinstance(rows, np.ndarray):
            continue
        flat = rows.reshape(len(rows), -1)
        for i in np.flatnonzero(np.isnan(flat).any(axis=1)):
            found.setdefault(int(i), f"{spec.extractor} gave NaN in {name!r}")
        if kind == "vector":
            norms = np.linalg.norm(flat.astype(np.float64), axis=1)
            for i in np.flatnonzero(~np.isfinite(norms) | (norms == 0)):
                found.setdefault(
                    int(i), f"{spec.extractor} gave a vector of norm {norms[i]} in {name!r}"
                )
    return found


def require_sound(spec: ExtractorSpec, features: Features, ids: Sequence[str]) -> None:
    """Raise :class:`FeatureError` naming the first sample whose features cannot be right."""
    for i, reason in broken_rows(spec, features).items():
        raise FeatureError(f"{reason} at sample {ids[i]!r}; check weights and preprocessing")


def in_bounds(values: np.ndarray, bounds: tuple[float | None, float | None]) -> bool:
    """Tell whether every value that is not NaN lies within the declared bounds."""
    lo, hi = (
        (-math.inf if bounds[0] is None else bounds[0]),
        (math.inf if bounds[1] is None else bounds[1]),
    )
    known = values[~np.isnan(values)]
    return bool(np.all((known >= lo) & (known <= hi)))
