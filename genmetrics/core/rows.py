"""Rows: what an extractor gives for samples, in memory or still on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from genmetrics.core.errors import InputError

BLOCK = 8192
"""Rows read at a time of what does not have to be in memory whole."""


class Ragged:
    """Rows of unequal length: the frames of clips, the answers to questions.

    Args:
        values: All entries one after another, ``(total, ...)``.
        offsets: Where each row begins, and where the last one ends, int64 ``(n + 1,)``.
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: np.ndarray, offsets: np.ndarray) -> None:
        self.values, self.offsets = values, np.asarray(offsets, dtype=np.int64)

    @classmethod
    def of(cls, rows: Sequence[np.ndarray]) -> Ragged:
        """Join rows ``(n_i, ...)`` whose entries have one shape; at least one row."""
        return cls(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        row = range(len(self))[row]
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> np.ndarray:
        """Entries of each row, ``(n,)``."""
        return np.diff(self.offsets)


class StoredRows:
    """A column of vectors or scores that is read when it is needed, as often as it is.

    ``np.asarray`` reads it whole. Iterating gives consecutive blocks ``(k, ...)`` of at most
    :data:`BLOCK` rows in order, so that whoever can work block by block needs no more memory.

    Args:
        n: Number of rows.
        read: Gives the rows from one position to another.
    """

    __slots__ = ("_n", "_read")

    def __init__(self, n: int, read: Callable[[int, int], np.ndarray]) -> None:
        self._n, self._read = n, read

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self._read(i, min(i + BLOCK, self._n)) for i in range(0, self._n, BLOCK))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._read(0, self._n), dtype=dtype)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._read(0, 1).shape[1])


Rows = np.ndarray | list[Any] | Ragged | StoredRows
"""One entry a sample: an array ``(n, ...)``, in memory or not; a list of JSON values for records;
or ragged rows."""

Features = Mapping[str, Rows]
"""What an extractor gives for ``n`` samples: output name to rows."""

UNANSWERED = "_unanswered"
"""Output in which an extractor says, row by row, why it has no answer; None where it has one.

Such a row enters no store and no metric: the metrics that asked have NaN there, with the reason,
and the next run asks again.
"""


def concatenate(pieces: Sequence[Features]) -> Features:
    """Join features of consecutive samples. At least one piece is needed."""
    if len(pieces) == 1:
        return pieces[0]
    if any(UNANSWERED in piece for piece in pieces):
        pieces = [_with_reasons(piece) for piece in pieces]
    return {name: _join([piece[name] for piece in pieces]) for name in pieces[0]}


def _with_reasons(piece: Features) -> Features:
    """Say of every row whether it has an answer; where nobody says so, all have."""
    count = len(next(iter(piece.values())))
    return {UNANSWERED: [None] * count, **piece}


def _join(pieces: Sequence[Rows]) -> Rows:
    first = pieces[0]
    if isinstance(first, Ragged):
        return Ragged.of([row for piece in pieces for row in piece])
    if isinstance(first, list):
        return [row for piece in pieces for row in piece]
    return np.concatenate([np.asarray(piece) for piece in pieces])


def take(features: Features, index: Sequence[int]) -> Features:
    """Select rows by position."""
    return {name: _pick(rows, index) for name, rows in features.items()}


def _pick(rows: Rows, index: Sequence[int]) -> Rows:
    if isinstance(rows, Ragged):
        if not len(index):
            return Ragged(rows.values[:0], np.zeros(1))
        return Ragged.of([rows[i] for i in index])
    if isinstance(rows, list):
        return [rows[i] for i in index]
    return np.asarray(rows)[np.asarray(index, dtype=np.intp)]


def in_memory(features: Features) -> Features:
    """Read what is still on disk."""
    return {n: np.asarray(r) if isinstance(r, StoredRows) else r for n, r in features.items()}


def one_row(features: Features) -> Features:
    """Turn the rows of one sample's items into one ragged row, or one list of records.

    A sample of which one item has no answer has none.
    """
    return {
        name: [_first_reason(rows)]
        if name == UNANSWERED
        else ([rows] if isinstance(rows, list) else Ragged.of([np.asarray(rows)]))
        for name, rows in features.items()
    }


def _first_reason(reasons: Rows) -> str | None:
    found = ((i, why) for i, why in enumerate(reasons) if why is not None)
    return next((f"part {i}: {why}" for i, why in found), None)


def vectors(features: Mapping[str, Any], output: str) -> np.ndarray:
    """Return one output as a float array ``(n, d)``; see :func:`matrix`."""
    return np.asarray(matrix(features, output))


def matrix(features: Mapping[str, Any], output: str) -> np.ndarray | StoredRows:
    """Return one output of vectors as it is: an array ``(n, d)``, or one that is still on disk.

    Raises:
        InputError: The output holds something else.
    """
    rows = features[output]
    if isinstance(rows, StoredRows):
        return rows
    if not isinstance(rows, np.ndarray) or rows.ndim != 2:
        raise InputError(f"output {output!r} does not hold vectors")
    return rows
