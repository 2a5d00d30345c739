"""Arrow files: rows whose images lie as they are in the file, found by mapping it into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from genmetrics.core.errors import InputError, MissingExtraError, one_line
from genmetrics.core.sample import Media
from genmetrics.samples.media import MissingMedia, SpanMedia

_END = b"\xff\xff\xff\xff\0\0\0\0"  # ends a stream; a cut one has none


class ArrowTable:
    """A file in Arrow's streaming format (what ``datasets`` writes) or its random-access format.

    Only the headers of its batches are read. Images are then read by their place in the file, so
    that nothing is kept open and rows can be had in any order.
    """

    def __init__(self, file: str) -> None:
        import pyarrow as pa

        self._file = file
        with pa.memory_map(file) as source:
            self._whole = source.read_buffer()
            source.seek(0)
            if self._whole[:6].to_pybytes() == b"ARROW1":
                self._table = pa.ipc.open_file(source).read_all()
            else:
                self._table = pa.ipc.open_stream(source).read_all()
                end = source.tell()
                if self._whole[max(0, end - len(_END)) : end].to_pybytes() != _END:
                    raise InputError(f"{file} is cut short: it has no end marker; copy it again")

    @property
    def schema(self) -> Any:
        """Arrow schema."""
        return self._table.schema

    def texts(self, names: Sequence[str]) -> Mapping[str, list[Any]]:
        """Read whole columns of texts."""
        found = {}
        for name in names:
            column = self._table.column(name)
            column.validate(full=True)  # offsets that lead out of the file would end the process
            found[name] = column.to_pylist()
        return found

    def media(self, column: str) -> list[Media]:
        """Return the place of each row's image in the file."""
        found: list[Media] = []
        for chunk in self._table.column(column).chunks:
            found += self._media_of(chunk, column, len(found))
        return found

    def _media_of(self, chunk: Any, column: str, first: int) -> list[Media]:
        import pyarrow.types as types

        chunk.validate()
        present = _validity(chunk)
        values = chunk
        if types.is_struct(chunk.type):
            values = chunk.field("bytes")
            present = present & _validity(values)
        _, places, data = values.buffers()
        width = np.int64 if types.is_large_binary(values.type) else np.int32
        bounds = np.frombuffer(places or b"\0" * 8, width)
        bounds = bounds[values.offset : values.offset + len(values) + 1].astype(np.int64)
        start = self._offset_in_file(data) if present.any() else 0
        ends = data.size if data is not None else 0
        names = [f"{column}[{row}]" for row in range(first, first + len(chunk))]
        lengths = np.diff(bounds)
        if len(bounds) and (bounds[0] < 0 or (lengths < 0).any() or bounds[-1] > ends):
            raise ValueError(f"the offsets of column {column!r} lead out of it")
        return [
            SpanMedia(self._file, name, start + int(offset), int(length))
            if there
            else MissingMedia(f"{self._file}!{name}", NO_BYTES)
            for name, offset, length, there in zip(names, bounds, lengths, present, strict=False)
        ]

    def _offset_in_file(self, data: Any) -> int:
        offset = int(data.address - self._whole.address) if data is not None else -1
        if not 0 <= offset <= self._whole.size:
            raise InputError(
                f"{self._file} is compressed, so its images cannot be read one by one; save it"
                " without compression, or as Parquet"
            )
        return offset


NO_BYTES = "holds no image, or only a path; save the data set with the files embedded"
"""Of a row without bytes."""


def _validity(array: Any) -> np.ndarray:
    """Which values of an array are there."""
    bits = array.buffers()[0]
    if bits is None:
        return np.ones(len(array), bool)
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return flags[array.offset : array.offset + len(array)].astype(bool)


@contextmanager
def arrow_errors(file: str) -> Iterator[None]:
    """Turn what pyarrow raises for damaged files into an :class:`InputError` with their name."""
    try:
        yield
    except (InputError, MissingExtraError):
        raise
    except (
        OSError,
        ValueError,  # pyarrow.ArrowInvalid; UnicodeDecodeError
        LookupError,
        TypeError,
        ArithmeticError,
        MemoryError,
        RuntimeError,  # pyarrow.ArrowNotImplementedError
        ImportError,  # a codec pyarrow was built without
    ) as error:
        raise InputError(
            f"{file} cannot be read: {one_line(error)}; write or copy it again"
        ) from error
