"""Where each row of the feature store lies, by content digest, in 48 bytes a row."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np

_CHUNK = 1 << 16  # digests looked up at a time, which bounds what one call needs beyond its answer


class _Table(NamedTuple):
    """Digests ``(n, 4)`` as words, sorted by their heads ``(n,)``, and the place of each."""

    heads: np.ndarray
    words: np.ndarray
    places: np.ndarray


class KeyIndex:
    """The digests that are known, each with a number that says where its row lies.

    Sorted arrays, not a dictionary: that would take 160 bytes a row. New digests come as tables of
    their own, which are joined when they are as large as the one before, so adding ``n`` digests in
    any pieces costs ``n log n``. May be asked in one thread while another adds.
    """

    def __init__(self) -> None:
        self._tables: tuple[_Table, ...] = ()
        self._adding = Lock()

    def __len__(self) -> int:
        return sum(len(table.heads) for table in self._tables)

    def __contains__(self, key: str) -> bool:
        return bool(self.having([key])[0])

    def having(self, keys: Sequence[str]) -> np.ndarray:
        """Say of each hex digest whether it is known, bool ``(n,)``; far faster than one by one."""
        return self.find(keys) >= 0

    def find(self, keys: Sequence[str]) -> np.ndarray:
        """Return the place of each hex digest, int64 ``(n,)``; -1 of one that is not known."""
        found = np.empty(len(keys), np.int64)
        for start in range(0, len(keys), _CHUNK):
            piece = words_of(keys[start : start + _CHUNK])
            found[start : start + len(piece)] = self._find(piece)
        return found

    def add(self, words: np.ndarray, places: np.ndarray) -> None:
        """Learn where digests ``(n, 4)`` lie; of one that is known the first place stays."""
        with self._adding:
            new = self._find(words) < 0
            tables = [*self._tables, _without_twins(_sorted(words[new], places[new]))]
            while len(tables) > 1 and len(tables[-2].heads) <= 2 * len(tables[-1].heads):
                one, two = tables[-2:]
                joined = np.concatenate([one.words, two.words])
                tables[-2:] = [_sorted(joined, np.concatenate([one.places, two.places]))]
            self._tables = tuple(tables)

    def _find(self, words: np.ndarray) -> np.ndarray:
        found = np.full(len(words), -1, np.int64)
        heads = _heads(words)
        for table in self._tables:
            left = np.flatnonzero(found < 0)
            at = np.searchsorted(table.heads, heads[left])
            while len(left):  # more than once only where two digests have one head
                inside = at < len(table.heads)
                left, at = left[inside], at[inside]
                alike = table.heads[at] == heads[left]
                left, at = left[alike], at[alike]
                equal = (table.words[at] == words[left]).all(axis=1)
                found[left[equal]] = table.places[at[equal]]
                left, at = left[~equal], at[~equal] + 1
        return found


def words_of(keys: Sequence[str]) -> np.ndarray:
    """Return hex digests as words, uint64 ``(n, 4)``."""
    return np.frombuffer(bytes.fromhex("".join(keys)), "<u8").reshape(-1, 4)


def _heads(words: np.ndarray) -> np.ndarray:
    heads: np.ndarray = np.bitwise_xor.reduce(words, axis=1)
    return heads


def _sorted(words: np.ndarray, places: np.ndarray) -> _Table:
    heads = _heads(words)
    order = np.argsort(heads, kind="stable")
    return _Table(heads[order], words[order], places[order])


def _without_twins(table: _Table) -> _Table:
    """Keep the first of equal digests."""
    if len(table.heads) < 2:
        return table
    first = np.append(True, (table.words[1:] != table.words[:-1]).any(axis=1))
    return table if first.all() else _Table(*(column[first] for column in table))
