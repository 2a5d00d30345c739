"""The feature store: what an extractor found, keyed by content, in atomic shards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from genmetrics.core.errors import InputError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.files import write_atomic
from genmetrics.core.rows import Features, Ragged, Rows, StoredRows, in_memory
from genmetrics.run.index import KeyIndex, words_of
from genmetrics.run.shard import SUFFIX, Shard, pack

_ROW = 32  # bits of a place that hold the row; those above hold the shard's number
_AT_ONCE = 1 << 17  # digests that enter the index together


class Usage(NamedTuple):
    """What one extractor keeps in the store."""

    extractor: str
    fingerprint: str
    spec: dict[str, Any]
    """The extractor's choices; none where the file that holds them is damaged."""
    rows: int
    shards: int
    bytes: int
    """Of all shards, also of an older layout, which is not read any more."""
    folder: Path


class FeatureStore:
    """Features by extractor fingerprint and content digest.

    A shard is written under a temporary name and renamed, so it is there whole or not at all. It is
    named by the hash of its header, which holds a hash of each tensor: two ranks that write the
    same rows write the same file. Opening reads the headers and the digests alone; a shard whose
    header or digests are damaged counts as missing. What was found is checked when it is read.

    Args:
        root: The folder; made when something is written.
        durable: Whether files survive a failure of the machine, not only of the process.
    """

    def __init__(self, root: str | Path, *, durable: bool = True) -> None:
        self.root = Path(root)
        self.durable = durable
        self.damaged: list[Path] = []
        self._shelves: dict[str, _Shelf] = {}

    def folder(self, spec: ExtractorSpec) -> Path:
        """Folder of an extractor's shards."""
        return self.root / spec.fingerprint.removeprefix("sha256:")[:32]

    def shards(self, spec: ExtractorSpec) -> list[str]:
        """Names of the shards on disk; equal names are equal rows, in whichever store."""
        return sorted(shard.name for shard in self.folder(spec).glob(f"*{SUFFIX}"))

    def scan(self, spec: ExtractorSpec, shards: Iterable[str]) -> None:
        """Learn what these shards hold, each read from disk once."""
        shelf = self._shelf(spec)
        shelf.scanned = True
        found: list[tuple[int, np.ndarray]] = []
        count = 0
        for name in shards:
            if not shelf.has(name):
                words = self._words(shelf.folder / name)
                found.append((shelf.number(name), words))
                count += len(words)
                if count >= _AT_ONCE:
                    shelf.add(found)
                    found, count = [], 0
        shelf.add(found)

    def known(self, spec: ExtractorSpec) -> KeyIndex:
        """Digests of everything that is known of what this extractor found.

        The first call reads the shards on disk, unless :meth:`scan` was told which ones to read;
        that and :meth:`write` add to it, also to what was returned before.
        """
        shelf = self._shelf(spec)
        if not shelf.scanned:
            self.scan(spec, self.shards(spec))
        return shelf.known

    def write(self, spec: ExtractorSpec, keys: Sequence[str], features: Features) -> None:
        """Store the rows of ``keys``; returns when they are on disk."""
        words = words_of(keys)
        name, data = pack(words, features)
        shelf = self._shelf(spec)
        described = shelf.folder / "extractor.json"
        if not described.exists():
            text = json.dumps(spec.to_dict(), indent=1)
            write_atomic(described, text, durable=self.durable)
        write_atomic(shelf.folder / name, data, durable=self.durable)
        shelf.add([(shelf.number(name), words)])

    def read(
        self, spec: ExtractorSpec, keys: Sequence[str], outputs: Sequence[str] | None = None
    ) -> Features:
        """Return the rows of ``keys`` in memory, in their order; see :meth:`open`."""
        return in_memory(self.open(spec, keys, outputs))

    def open(
        self, spec: ExtractorSpec, keys: Sequence[str], outputs: Sequence[str] | None = None
    ) -> Features:
        """Return the rows of ``keys``, in their order.

        Vectors and scores stay on disk, and are read block by block by whoever uses them. Ragged
        rows, records and larger arrays are read here.

        Args:
            spec: The extractor.
            keys: Hex digests. One may come more than once.
            outputs: Names of the outputs that are wanted; None is all of them.

        Raises:
            InputError: A key is not in the store, a shard lacks an output, or it is damaged. The
                last is noticed when rows of that output are first read from that shard.
        """
        places = self.known(spec).find(keys)
        shelf = self._shelf(spec)
        if not len(places):
            return {}
        if places.min() < 0:
            key = keys[int(places.argmin())]
            raise InputError(f"{self.root} has no {spec.extractor} features of {key[:12]}")
        names = shelf.shard(int(places[0]) >> _ROW).kinds if outputs is None else outputs
        return {name: shelf.column(name, places) for name in names}

    def usage(self) -> Iterator[Usage]:
        """Describe each extractor's share of the store."""
        for folder in sorted(path for path in self.root.glob("*") if path.is_dir()):
            described = _described(folder)
            shards = sorted(folder.glob(f"*{SUFFIX}"))
            yield Usage(
                extractor=str(described.get("extractor", "unknown")),
                fingerprint=folder.name,
                spec=described,
                rows=sum(len(self._words(shard)) for shard in shards),
                shards=len(shards),
                bytes=sum(shard.stat().st_size for shard in folder.glob("*.safetensors")),
                folder=folder,
            )

    def remove(self, usage: Usage) -> None:
        """Delete everything of one extractor."""
        shutil.rmtree(usage.folder)
        self._shelves.clear()

    def _shelf(self, spec: ExtractorSpec) -> _Shelf:
        return self._shelves.setdefault(spec.fingerprint, _Shelf(self.folder(spec)))

    def _words(self, shard: Path) -> np.ndarray:
        """Read the digests of a shard; one that is damaged has none."""
        try:
            return Shard(shard).words()
        except InputError:
            self.damaged.append(shard)
            return np.empty((0, 4), np.uint64)


class _Shelf:
    """What is known of one extractor's shards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known = KeyIndex()
        self.scanned = False
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._shards: dict[int, Shard] = {}
        self._numbering = Lock()

    def has(self, name: str) -> bool:
        """Whether a shard was written or read here."""
        return name in self._numbers

    def number(self, name: str) -> int:
        """Return the number of a shard."""
        with self._numbering:
            if name not in self._numbers:
                self._numbers[name] = len(self._names)
                self._names.append(name)
            return self._numbers[name]

    def add(self, found: Sequence[tuple[int, np.ndarray]]) -> None:
        """Learn the digests of shards."""
        if found:
            places = [(number << _ROW) + np.arange(len(words)) for number, words in found]
            self.known.add(np.concatenate([words for _, words in found]), np.concatenate(places))

    def shard(self, number: int) -> Shard:
        """Return a shard to read from; its header is read once."""
        if number not in self._shards:
            self._shards[number] = Shard(self.folder / self._names[number])
        return self._shards[number]

    def column(self, output: str, places: np.ndarray) -> Rows:
        """Return an output of the rows at ``places``; vectors and scores still on disk."""
        shard = self.shard(int(places[0]) >> _ROW)
        kind = shard.kind(output)
        if kind != "array":
            rows = self._whole(output, places)
            return Ragged.of(rows) if kind == "ragged" else rows
        empty = shard.empty(output, 0)
        column = StoredRows(len(places), lambda i, j: self._rows(output, places[i:j], empty))
        return column if empty.ndim <= 2 else np.asarray(column)

    def _rows(self, output: str, places: np.ndarray, like: np.ndarray) -> np.ndarray:
        out = np.empty((len(places), *like.shape[1:]), like.dtype)
        for shard, rows, positions in self._by_shard(places):
            shard.fill(output, rows, out, positions)
        return out

    def _whole(self, output: str, places: np.ndarray) -> list[Any]:
        found: list[Any] = [None] * len(places)
        for shard, rows, positions in self._by_shard(places):
            values = shard.load(output)
            for row, position in zip(rows.tolist(), positions.tolist(), strict=True):
                found[position] = values[row]
        return found

    def _by_shard(self, places: np.ndarray) -> Iterator[tuple[Shard, np.ndarray, np.ndarray]]:
        """Yield each shard, the rows wanted of it in ascending order, and where they go."""
        order = np.argsort(places, kind="stable")
        numbers, rows = places[order] >> _ROW, places[order] & ((1 << _ROW) - 1)
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        for part, positions in zip(np.split(rows, cuts), np.split(order, cuts), strict=True):
            if len(part):
                yield self.shard(int(places[positions[0]]) >> _ROW), part, positions


def _described(folder: Path) -> dict[str, Any]:
    try:
        described = json.loads((folder / "extractor.json").read_text())
    except (OSError, ValueError):
        return {}
    return described if isinstance(described, dict) else {}
