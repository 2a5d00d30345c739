"""Extractors: frozen models with their own preprocessing. Items in, features out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from genmetrics.core.errors import FeatureError, require_number, require_real
from genmetrics.core.protocol import LOCAL, Protocol
from genmetrics.core.rows import UNANSWERED
from genmetrics.core.rows import Features as Features  # part of what extractors are written with
from genmetrics.core.sample import Item
from genmetrics.core.views import view_of

OutputKind = Literal["vector", "score", "record"]

Lane = Literal["shared", "alone", "remote"]
"""How a model is run. ``shared``: with others on one decoded batch. ``alone``: a large model, in a
pass of its own over the devices of a rank, and freed afterwards. ``remote``: an endpoint, asked by
several threads; it needs no device, and each answer is kept as it comes."""


@dataclass(frozen=True, kw_only=True)
class ExtractorSpec(Protocol):
    """Which model, which preprocessing: everything that moves the features, and how to build it.

    The planner recognises shared work by the fingerprint of this. A subclass adds its fields
    (weights id and sha256, resize, normalisation, layer) and says what it reads and gives.
    """

    inputs: ClassVar[tuple[str, ...]] = ("image",)
    """Fields of an item that the extractor reads."""

    outputs: ClassVar[Mapping[str, OutputKind]] = {}
    """Name of each output and its kind. Vectors are checked to be finite and not all zero."""

    lane: ClassVar[Lane] = "shared"

    same_size: ClassVar[tuple[str, ...]] = ()
    """Fields whose pictures must be as large as the image; looked at before a model loads."""

    extractor: str

    view: str = "whole"
    """Which parts of a sample are its items: a row of :data:`genmetrics.core.views.VIEWS`."""

    requests: int = field(default=8, metadata=LOCAL)
    """In lane ``remote``, how many samples are asked about at a time."""

    per_minute: float | None = field(default=None, metadata=LOCAL)
    """In lane ``remote``, how many questions an endpoint takes a minute; None for any number."""

    def __post_init__(self) -> None:
        """Check the options of lane ``remote``."""
        require_number(self.extractor, "requests", self.requests, 1)
        if self.per_minute is not None:
            require_real(self.extractor, "per_minute", self.per_minute, least=1e-3)

    @property
    def reads(self) -> tuple[str, ...]:
        """Fields of the sample that the items are made of; their content keys the store."""
        return view_of(self.view).fields(self.inputs)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values; ``view`` only where it is not the whole sample.

        So fingerprints made before there was a choice still hold.
        """
        fields = super().to_dict()
        if self.view == "whole":
            del fields["view"]
        return fields

    @abstractmethod
    def check(self) -> None:
        """Raise a one-line error if the extractor cannot be built here: no weights, no extra."""

    @abstractmethod
    def build(self, device: str) -> Extractor:
        """Load the model onto ``device``."""

    def build_over(self, devices: Sequence[str]) -> Extractor:
        """Load a model of lane ``alone`` over all devices of a rank; by default onto the first.

        A spec whose model does not fit one device spreads it, as by ``device_map`` in transformers.
        """
        return self.build(devices[0])


class Extractor(ABC):
    """A frozen model: no gradients, always in evaluation mode, no random numbers.

    ``prepare`` runs on worker threads for one item at a time, on the CPU; ``forward`` runs on the
    device for a batch of prepared items. Who cuts the batches is :mod:`genmetrics.core.batching`.
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

    def bucket(self, prepared: Any) -> Hashable:
        """Say which inputs may share a batch: those of equal buckets; by default all may.

        For inputs of unequal size, such as pairs of pictures, or texts by their length.
        """
        return None


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


def unanswered_rows(features: Features) -> dict[int, str]:
    """Find rows that the extractor has no answer for: position in the batch to its reason."""
    reasons = enumerate(features.get(UNANSWERED, ()))
    return {i: " ".join(str(why).split()) or "no reason" for i, why in reasons if why is not None}


def require_sound(spec: ExtractorSpec, features: Features, ids: Sequence[str]) -> None:
    """Raise :class:`FeatureError` naming the first sample whose features cannot be right.

    A sample that the model has no answer for has none that could be wrong.
    """
    silent = unanswered_rows(features)
    for i, reason in broken_rows(spec, features).items():
        if i in silent:
            continue
        raise FeatureError(f"{reason} at sample {ids[i]!r}; check weights and preprocessing")


def in_bounds(values: np.ndarray, bounds: tuple[float | None, float | None]) -> bool:
    """Tell whether every value that is not NaN lies within the declared bounds."""
    lo, hi = (
        (-math.inf if bounds[0] is None else bounds[0]),
        (math.inf if bounds[1] is None else bounds[1]),
    )
    known = values[~np.isnan(values)]
    return bool(np.all((known >= lo) & (known <= hi)))
