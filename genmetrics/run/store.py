"""The feature store: what an extractor found, keyed by content, in atomic shards."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from genmetrics.core.errors import GenmetricsError, InputError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.files import write_atomic
from genmetrics.core.rows import Features, Rows

_KEYS = "keys"  # reserved tensor name: the content digests of a shard's rows


class Place(NamedTuple):
    """Where a row lies."""

    shard: Path
    row: int


class Usage(NamedTuple):
    """What one extractor keeps in the store."""

    extractor: str
    fingerprint: str
    rows: int
    shards: int
    bytes: int
    folder: Path


class FeatureStore:
    """Features by extractor fingerprint and content digest.

    A shard holds the rows of one batch, is written under a temporary name and renamed, and is named
    by the hash of its bytes: it is there whole or not at all, a damaged one is recognised and
    counts as missing, and two ranks that write the same rows write the same file.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._index: dict[str, dict[str, Place]] = {}
        self._scanned: dict[str, set[str]] = {}
        self.damaged: list[Path] = []

    def folder(self, spec: ExtractorSpec) -> Path:
        """Folder of an extractor's shards."""
        return self.root / spec.fingerprint.removeprefix("sha256:")[:32]

    def shards(self, spec: ExtractorSpec) -> list[str]:
        """Names of the shards on disk; equal names are equal rows, in whichever store."""
        return sorted(shard.name for shard in self.folder(spec).glob("*.safetensors"))

    def scan(self, spec: ExtractorSpec, shards: Iterable[str]) -> None:
        """Learn what these shards hold, each read from disk once."""
        index = self._index.setdefault(spec.fingerprint, {})
        scanned = self._scanned.setdefault(spec.fingerprint, set())
        folder = self.folder(spec)
        for name in shards:
            if name not in scanned:
                scanned.add(name)
                index.update(self._scan(folder / name))

    def keys(self, spec: ExtractorSpec) -> Mapping[str, Place]:
        """Digests of everything that is known of what this extractor found.

        The first call reads the shards on disk; :meth:`scan` and :meth:`write` add to it.
        """
        if spec.fingerprint not in self._index:
            self.scan(spec, self.shards(spec))
        return self._index[spec.fingerprint]

    def having(self, spec: ExtractorSpec, keys: Sequence[str]) -> np.ndarray:
        """Tell for each key whether its row is known to be here, bool ``(n,)``."""
        known = self.keys(spec)
        return np.fromiter((key in known for key in keys), dtype=bool, count=len(keys))

    def write(self, spec: ExtractorSpec, keys: Sequence[str], features: Features) -> None:
        """Store the rows of ``keys``; returns when they are on disk."""
        from safetensors.numpy import save

        tensors = {_KEYS: np.frombuffer(bytes.fromhex("".join(keys)), np.uint8).reshape(-1, 32)}
        for name, rows in features.items():
            tensors[name] = _pack(rows)
        records = [name for name, rows in features.items() if not isinstance(rows, np.ndarray)]
        data = save(tensors, metadata={"records": json.dumps(sorted(records))})
        folder = self.folder(spec)
        if not (folder / "extractor.json").exists():
            write_atomic(folder / "extractor.json", json.dumps(spec.to_dict(), indent=1))
        shard = folder / f"{hashlib.sha256(data).hexdigest()[:32]}.safetensors"
        write_atomic(shard, data)
        self._scanned.setdefault(spec.fingerprint, set()).add(shard.name)
        index = self._index.setdefault(spec.fingerprint, {})
        index.update({key: Place(shard, row) for row, key in enumerate(keys)})

    def open(self, spec: ExtractorSpec, keys: Sequence[str]) -> Features:
        """Stand-in."""
        return self.read(spec, keys)

    def read(
        self, spec: ExtractorSpec, keys: Sequence[str], outputs: Sequence[str] | None = None
    ) -> Features:
        """Return the rows of ``keys``, in their order.

        Raises:
            InputError: A key is not in the store.
        """
        index = self.keys(spec)
        wanted: dict[Path, list[tuple[int, int]]] = {}
        for position, key in enumerate(keys):
            place = index.get(key)
            if place is None:
                raise InputError(f"{self.root} has no {spec.extractor} features of {key[:12]}")
            wanted.setdefault(place.shard, []).append((position, place.row))
        found: dict[str, Rows] = {}
        for shard, pairs in wanted.items():
            positions, rows = (list(column) for column in zip(*pairs, strict=True))
            for name, values in _load(shard).items():
                _scatter(found, name, values, positions, rows, len(keys))
        return found

    def usage(self) -> Iterator[Usage]:
        """Describe each extractor's share of the store."""
        for folder in sorted(path for path in self.root.glob("*") if path.is_dir()):
            described = _described(folder)
            shards = list(folder.glob("*.safetensors"))
            yield Usage(
                extractor=str(described.get("extractor", "unknown")),
                fingerprint=folder.name,
                rows=sum(len(self._scan(shard)) for shard in shards),
                shards=len(shards),
                bytes=sum(shard.stat().st_size for shard in shards),
                folder=folder,
            )

    def remove(self, usage: Usage) -> None:
        """Delete everything of one extractor."""
        shutil.rmtree(usage.folder)
        self._index.clear()
        self._scanned.clear()

    def _scan(self, shard: Path) -> dict[str, Place]:
        try:
            keys = _load(shard, only=_KEYS)[_KEYS]
        except InputError:
            self.damaged.append(shard)
            return {}
        assert isinstance(keys, np.ndarray)
        return {row.tobytes().hex(): Place(shard, i) for i, row in enumerate(keys)}


class Writer:
    """Writes batches to the store while the next one is computed; at most one is under way.

    So a run that is killed loses the batch being computed, and at most the one before it.
    """

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(1, "genmetrics-store")
        self._under_way: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def having(self, spec: ExtractorSpec, keys: Sequence[str]) -> np.ndarray:
        """Tell for each key whether its row is known to be here, bool ``(n,)``."""
        known = self.keys(spec)
        return np.fromiter((key in known for key in keys), dtype=bool, count=len(keys))

    def write(self, spec: ExtractorSpec, keys: Sequence[str], features: Features) -> None:
        """Hand a batch over once the one before is on disk; raises what that one met."""
        self._wait()
        self._under_way = self._pool.submit(self.store.write, spec, keys, features)

    def flush(self) -> None:
        """Return when everything is on disk."""
        self._wait()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._wait()
        except GenmetricsError:
            if kind is None:  # else the run has already failed of something else
                raise
        finally:
            self._pool.shutdown()

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()


def _pack(rows: Rows) -> np.ndarray:
    if isinstance(rows, np.ndarray):
        return np.ascontiguousarray(rows)
    text = json.dumps(rows, allow_nan=False, separators=(",", ":"))
    return np.frombuffer(text.encode(), np.uint8)


def _load(shard: Path, only: str | None = None) -> dict[str, Rows]:
    """Read a shard, checking its bytes against its name."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        data = shard.read_bytes()
        if hashlib.sha256(data).hexdigest()[:32] != shard.stem:
            raise InputError(f"{shard} is damaged; delete it, it will be computed again")
        tensors: dict[str, Rows] = dict(load(data))
    except (OSError, SafetensorError) as error:
        raise InputError(f"{shard} cannot be read ({error}); delete it") from error
    if only is not None:
        return {only: tensors[only]}
    del tensors[_KEYS]
    for name in _record_names(data):
        tensors[name] = json.loads(np.asarray(tensors[name]).tobytes())
    return tensors


def _record_names(data: bytes) -> list[str]:
    """Names of the outputs that hold JSON, from the header of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return list(json.loads(header.get("__metadata__", {}).get("records", "[]")))


def _scatter(
    found: dict[str, Rows],
    name: str,
    values: Rows,
    positions: Sequence[int],
    rows: Sequence[int],
    total: int,
) -> None:
    """Put ``values[rows]`` at ``positions`` of the output, which is made at its first shard."""
    if isinstance(values, np.ndarray):
        if name not in found:
            found[name] = np.empty((total, *values.shape[1:]), values.dtype)
        target = found[name]
        assert isinstance(target, np.ndarray)
        target[positions] = values[rows]
        return
    records = found.setdefault(name, [None] * total)
    for position, row in zip(positions, rows, strict=True):
        records[position] = values[row]


def _described(folder: Path) -> dict[str, Any]:
    try:
        described = json.loads((folder / "extractor.json").read_text())
    except (OSError, ValueError):
        return {}
    return described if isinstance(described, dict) else {}
