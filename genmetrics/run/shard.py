"""One file of the feature store: how rows are laid out in it, checked, and read in part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np

from genmetrics.core.errors import InputError
from genmetrics.core.rows import Features, Ragged, Rows

SUFFIX = ".v2.safetensors"
"""Ends the names of shards of this layout; those of other layouts are not looked into."""

Kind = Literal["array", "ragged", "records"]

# No output is called so: a name with a slash is no Python name.
_KEYS = "/keys"
_VALUES, _OFFSETS = "/values", "/offsets"
_OURS = "genmetrics"  # one entry of metadata: the writer keeps no order of several

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_HASHED = 1 << 20  # bytes hashed at a time
_GAP = 1 << 14  # bytes that are read along rather than skipped by another call


class _Tensor(NamedTuple):
    """Where a tensor lies in the file, and the sha256 over its type, shape and bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int
    sum: str


def pack(words: np.ndarray, features: Features) -> tuple[str, bytes]:
    """Lay out the rows of the digests ``words`` ``(n, 4)``.

    Returns:
        Name and bytes of the file. It is named by the hash of its header, which holds the hash of
        everything else, so equal rows are equal files.

    Raises:
        InputError: An output is of a type that the format does not have.
    """
    from safetensors.numpy import save

    tensors = {_KEYS: words.view(np.uint8)}
    kinds = {}
    for name, rows in features.items():
        kinds[name], own = _tensors(name, rows)
        tensors.update(own)
    for name, tensor in tensors.items():
        if tensor.dtype.str not in _TYPES.values():
            raise InputError(f"output {name!r} is of type {tensor.dtype}, which no store can hold")
    sums = {name: _hash(t.dtype, t.shape, [t.data]) for name, t in tensors.items()}
    ours = json.dumps({"kinds": kinds, "sums": sums}, sort_keys=True)
    data = save(tensors, metadata={_OURS: ours})
    return _name(data[8 : 8 + int.from_bytes(data[:8], "little")]), data


def weigh(features: Features) -> int:
    """Bytes that rows take in a shard."""
    return sum(t.nbytes for n, rows in features.items() for t in _tensors(n, rows)[1].values())


class Shard:
    """A shard of which the header was read: everything else is read, and checked, when needed.

    Raises:
        InputError: The file cannot be read, is cut short, or its header is damaged.
    """

    __slots__ = ("_checked", "_tensors", "kinds", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._reading() as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            text = file.read(min(length, size))
        if _name(text) != path.name:
            raise self._damaged()
        header = json.loads(text)
        ours = json.loads(header.pop("__metadata__")[_OURS])
        self.kinds: dict[str, Kind] = ours["kinds"]
        self._tensors = dict(_read_header(header, ours["sums"], 8 + length))
        self._checked: set[str] = set()
        if size != max(tensor.stop for tensor in self._tensors.values()):
            raise self._damaged()

    def __len__(self) -> int:
        return self._tensors[_KEYS].shape[0]

    def words(self) -> np.ndarray:
        """Read the digests of the rows, uint64 ``(n, 4)``."""
        return self._load(_KEYS).view("<u8")

    def kind(self, output: str) -> Kind:
        """Kind of an output.

        Raises:
            InputError: The shard has no such output.
        """
        if output not in self.kinds:
            raise InputError(f"{self.path} has no output {output!r}; delete it")
        return self.kinds[output]

    def empty(self, output: str, n: int) -> np.ndarray:
        """Make an array for ``n`` rows of an output that is an array."""
        tensor = self._tensors[output]
        return np.empty((n, *tensor.shape[1:]), tensor.dtype)

    def load(self, output: str) -> Ragged | list[object]:
        """Read all rows of an output that is ragged or holds records."""
        if self.kind(output) == "ragged":
            return Ragged(self._load(output + _VALUES), self._load(output + _OFFSETS))
        records: list[object] = json.loads(self._load(output).tobytes())
        return records

    def fill(self, output: str, rows: np.ndarray, out: np.ndarray, positions: np.ndarray) -> None:
        """Read some rows of an output that is an array: ``out[positions]`` becomes ``rows``.

        Args:
            output: Name of the output.
            rows: Numbers of rows in ascending order.
            out: What is filled.
            positions: Where in ``out`` each row goes.

        Raises:
            InputError: What is read is damaged, or has another shape or type than ``out``.
        """
        if self.kind(output) != "array" or self.empty(output, 0).dtype != out.dtype:
            raise InputError(f"{self.path} holds {output!r} of another type; delete it")
        tensor = self._tensors[output]
        if tensor.shape[1:] != out.shape[1:]:
            raise InputError(
                f"{self.path} holds {output!r} of shape {tensor.shape[1:]}, other shards"
                f" {out.shape[1:]}; delete it"
            )
        width = out.itemsize * int(np.prod(out.shape[1:]))
        cuts = np.flatnonzero(np.diff(rows) * width > _GAP) + 1
        with self._reading() as file:
            self._check(file, output)
            for run, where in zip(np.split(rows, cuts), np.split(positions, cuts), strict=True):
                first, count = int(run[0]), int(run[-1] - run[0]) + 1
                file.seek(tensor.start + first * width)
                piece = self._exactly(file, count * width)
                out[where] = np.frombuffer(piece, out.dtype).reshape(count, *out.shape[1:])[
                    run - first
                ]

    def _load(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        with self._reading() as file:
            file.seek(tensor.start)
            data = self._exactly(file, tensor.stop - tensor.start)
        if name not in self._checked and _hash(tensor.dtype, tensor.shape, [data]) != tensor.sum:
            raise self._damaged()
        self._checked.add(name)
        return np.frombuffer(data, tensor.dtype).reshape(tensor.shape)

    def _check(self, file: BinaryIO, name: str) -> None:
        """Hash a tensor at its first reading, in pieces; the rest comes from the system's cache."""
        if name in self._checked:
            return
        tensor = self._tensors[name]
        file.seek(tensor.start)
        pieces = (
            self._exactly(file, min(_HASHED, tensor.stop - at))
            for at in range(tensor.start, tensor.stop, _HASHED)
        )
        if _hash(tensor.dtype, tensor.shape, pieces) != tensor.sum:
            raise self._damaged()
        self._checked.add(name)

    def _exactly(self, file: BinaryIO, count: int) -> bytes:
        data = file.read(count)
        if len(data) != count:
            raise self._damaged()
        return data

    @contextmanager
    def _reading(self) -> Iterator[BinaryIO]:
        try:
            with self.path.open("rb") as file:
                yield file
        except OSError as error:
            raise InputError(f"{self.path} cannot be read ({error}); delete it") from error

    def _damaged(self) -> InputError:
        return InputError(f"{self.path} is damaged; delete it, it will be computed again")


def _tensors(name: str, rows: Rows) -> tuple[Kind, dict[str, np.ndarray]]:
    """What is stored of an output."""
    if isinstance(rows, Ragged):
        return "ragged", {
            name + _VALUES: _plain(rows.values),
            name + _OFFSETS: _plain(rows.offsets),
        }
    if isinstance(rows, list):
        text = json.dumps(rows, allow_nan=False, separators=(",", ":"))
        return "records", {name: np.frombuffer(text.encode(), np.uint8)}
    return "array", {name: _plain(np.asarray(rows))}


def _plain(array: np.ndarray) -> np.ndarray:
    """Return the array in one piece and little-endian."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def _read_header(
    header: Mapping[str, dict[str, list[int]]], sums: Mapping[str, str], start: int
) -> Iterator[tuple[str, _Tensor]]:
    for name, told in header.items():
        begin, end = told["data_offsets"]
        dtype = np.dtype(_TYPES[str(told["dtype"])])
        yield name, _Tensor(dtype, tuple(told["shape"]), start + begin, start + end, sums[name])


def _name(header: bytes) -> str:
    return hashlib.sha256(header).hexdigest()[:32] + SUFFIX


def _hash(dtype: np.dtype, shape: Sequence[int], pieces: Iterator[bytes] | list[object]) -> str:
    total = hashlib.sha256(f"{dtype.str} {list(shape)}\n".encode())
    for piece in pieces:
        total.update(piece)  # type: ignore[arg-type]
    return total.hexdigest()
