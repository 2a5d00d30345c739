"""Feature rows keyed by sample id: the state of metrics, and how states merge."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from genmetrics.core.errors import InputError
from genmetrics.core.fields import FIELDS
from genmetrics.core.rows import Features, Ragged, Rows, StoredRows, concatenate, take
from genmetrics.core.sample import Item, Sample

_AUTO = re.compile(r"#\d{9}")  # ids that genmetrics gave itself; a merge renumbers them


def natural_key(text: str) -> tuple[Any, ...]:
    """Sort key in which ``r_2`` comes before ``r_10``; total, so equal keys mean equal texts."""
    parts = re.split(r"(\d+)", text)
    return (
        tuple(
            # a number by length and digits: int() refuses ids of thousands of digits
            (1, len(part.lstrip("0")), part.lstrip("0")) if i % 2 else (0, 0, part)
            for i, part in enumerate(parts)
        ),
        text,
    )


class FeatureRows:
    """Samples and their features by role, in any order of arrival.

    Reading them back sorts by sample id, so nothing depends on who added what when.
    """

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._ids: set[str] = set()
        self._numbered = 0
        self._pieces: dict[str, list[Features]] = {}
        self.missed: dict[str, str] = {}
        """Samples without a value, by id, and why."""

    def __len__(self) -> int:
        return len(self._samples)

    def next_ids(self, count: int) -> list[str]:
        """Ids for samples that came without."""
        return [f"#{self._numbered + i:09d}" for i in range(count)]

    def mark(self) -> Callable[[], None]:
        """Return what puts everything back as it is now.

        Rows are only ever added, or replaced whole, so their number is all that has to be kept.
        """
        kept, count = dict(vars(self)), len(self)
        pieces = {role: len(given) for role, given in self._pieces.items()}
        missed = dict(self.missed)

        def undo() -> None:
            vars(self).update(kept)
            del self._samples[count:]
            self.missed = missed
            self._ids = {sample.id for sample in self._samples} | missed.keys()
            self._pieces = {role: self._pieces[role][:n] for role, n in pieces.items()}

        return undo

    def append(self, samples: Sequence[Sample], features: Mapping[str, Features]) -> None:
        """Add rows; ``features`` maps role to features of exactly these samples.

        Raises:
            InputError: An id that is already there, or rows that do not fit; nothing is added.
        """
        self._require_new([sample.id for sample in samples])
        if len(self) and features.keys() != self._pieces.keys():
            raise InputError(
                f"features for {sorted(features)} given, expected {sorted(self._pieces)}"
            )
        for role, piece in features.items():
            for name, rows in piece.items():
                if len(rows) != len(samples):
                    raise InputError(
                        f"{len(rows)} rows of {role}.{name} for {len(samples)} samples"
                    )
        for role, piece in features.items():
            self._pieces.setdefault(role, []).append(piece)
        self._samples.extend(samples)
        self._ids.update(sample.id for sample in samples)
        self._numbered += sum(_AUTO.fullmatch(sample.id) is not None for sample in samples)

    def miss(self, reasons: Mapping[str, str]) -> None:
        """Note samples without a value, by id, and why.

        Raises:
            InputError: An id that is already there.
        """
        self._require_new(list(reasons))
        self.missed.update(reasons)
        self._ids.update(reasons)
        self._numbered += sum(_AUTO.fullmatch(id_) is not None for id_ in reasons)

    def _require_new(self, ids: Sequence[str]) -> None:
        seen: set[str] = set()
        for name in ids:
            if name in self._ids or name in seen:
                raise InputError(
                    f"sample id {name!r} was given twice; ids must be unique over all updates and"
                    " ranks"
                )
            seen.add(name)

    def merge(self, other: FeatureRows) -> None:
        """Add another rank's rows. An id that both hold is an error."""
        offset = self._numbered
        moved = [sample.having(id=_moved(sample.id, offset)) for sample in other._samples]
        self._require_new([*(sample.id for sample in moved), *other.missed])
        self.miss({_moved(id_, offset): why for id_, why in other.missed.items()})
        if moved:
            self.append(moved, {role: concatenate(p) for role, p in other._pieces.items()})

    def ordered(self) -> tuple[list[Sample], dict[str, Features]]:
        """Return samples and features in natural order of id."""
        order = sorted(range(len(self)), key=lambda i: natural_key(self._samples[i].id))
        samples = [self._samples[i] for i in order]
        joined = {role: concatenate(pieces) for role, pieces in self._pieces.items()}
        if order != list(range(len(order))):
            joined = {role: take(features, order) for role, features in joined.items()}
        return samples, joined

    def state_dict(self) -> dict[str, Any]:
        """Plain lists and arrays; what :meth:`load_state_dict` takes."""
        return {
            "samples": [{"id": s.id, **s.fields} for s in map(_kept, self._samples)],
            "missed": dict(self.missed),
            "features": {
                role: {name: _plain(rows) for name, rows in concatenate(pieces).items()}
                for role, pieces in self._pieces.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the rows by those of a :meth:`state_dict`."""
        self.__init__()  # type: ignore[misc]
        self.miss(state.get("missed", {}))
        samples = [Sample(**fields) for fields in state["samples"]]
        if samples:
            features = state["features"].items()
            self.append(
                samples,
                {
                    role: {n: _as_rows(rows) for n, rows in piece.items()}
                    for role, piece in features
                },
            )


def _moved(id_: str, offset: int) -> str:
    """Number a sample that came without an id anew; others keep theirs."""
    return f"#{int(id_[1:]) + offset:09d}" if _AUTO.fullmatch(id_) else id_


def _plain(rows: Rows) -> Any:
    """Return what a checkpoint can hold."""
    if isinstance(rows, Ragged):
        return {"values": rows.values, "offsets": rows.offsets}
    return np.asarray(rows) if isinstance(rows, StoredRows) else rows


def _as_rows(value: Any) -> Rows:
    """Undo :func:`_plain`."""
    if isinstance(value, Mapping):
        return Ragged(np.asarray(value["values"]), np.asarray(value["offsets"]))
    rows: Rows = value
    return rows


def require_own_ids(ids: Sequence[str]) -> None:
    """Refuse ids that look like those genmetrics gives itself."""
    for name in ids:
        if isinstance(name, str) and _AUTO.fullmatch(name):
            raise InputError(
                f"sample id {name!r} is of the form genmetrics uses; name it otherwise"
            )


def as_tensors(value: Any) -> Any:
    """Turn the arrays of a nested state into tensors, which any checkpoint loader accepts."""
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, Mapping):
        return {key: as_tensors(item) for key, item in value.items()}
    return [as_tensors(item) for item in value] if isinstance(value, list) else value


def as_arrays(value: Any) -> Any:
    """Undo :func:`as_tensors`."""
    if isinstance(value, Mapping):
        return {key: as_arrays(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_arrays(item) for item in value]
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _kept(one: Sample | Item) -> Sample:
    """Keep what metrics need: who it is, texts and records, but nothing in files of its own."""
    kept = {name: value for name, value in one.fields.items() if not FIELDS[name].stored}
    return Sample(id=one.id, **kept)


def as_samples(items: Sequence[Item]) -> list[Sample]:
    """Return the samples that items were, without pixels."""
    return [_kept(item) for item in items]
