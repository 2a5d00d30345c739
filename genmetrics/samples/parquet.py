"""Parquet files: rows of images that are reached by reading their row group from its beginning.

A row cannot be read alone: values lie in compressed pages. So each file in use has a reader that
goes through a row group in blocks and keeps the last ones. Reading rows in their order, as a run
does, decodes each block once. Rows in another order cost a new walk through their row group.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Media
from genmetrics.samples.arrow import NO_BYTES, arrow_errors
from genmetrics.samples.media import StoredMedia

_BLOCK = 8 << 20  # bytes of a block, about
_KEPT = 32 << 20  # bytes of blocks that a reader keeps
_KEPT_ROWS = 32  # and at least so many rows: threads are not quite in step
_READERS = 4  # files open at once in a process


@dataclass(frozen=True, slots=True)
class ParquetMedia(StoredMedia):
    """The image in one row.

    Attributes:
        file: The Parquet file.
        column: Its column of images.
        row: Number of the row in the file.
        group: Its row group.
        index: Number of the row in the group.
    """

    file: str
    column: str
    row: int
    group: int
    index: int

    @property
    def name(self) -> str:
        """``file!column[row]``."""
        return f"{self.file}!{self.column}[{self.row}]"

    def read(self) -> bytes:
        """Return the encoded image."""
        with arrow_errors(self.name):
            value = _reader(self.file, self.column).value(self.group, self.index)
        if isinstance(value, dict):
            value = value.get("bytes")
        if not isinstance(value, bytes):
            raise InputError(f"{self.name} {NO_BYTES}")
        return value


class ParquetTable:
    """What the footer of a file says, and its texts."""

    def __init__(self, file: str) -> None:
        self._path = file
        self._file = _open(file)

    @property
    def schema(self) -> Any:
        """Arrow schema."""
        return self._file.schema_arrow

    def texts(self, names: Sequence[str]) -> Mapping[str, list[Any]]:
        """Read whole columns of texts; the others stay unread."""
        if not names:
            return {}
        read = self._file.read(columns=list(names), use_threads=False)
        if read.num_rows != self._file.metadata.num_rows:
            raise ValueError(f"{read.num_rows} rows where the footer says otherwise")
        return {name: read.column(name).to_pylist() for name in names}

    def media(self, column: str) -> list[Media]:
        """Return a handle for each row of each row group."""
        footer = self._file.metadata
        counts = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
        size = os.stat(self._path).st_size  # noqa: PTH116
        if sum(counts) != footer.num_rows or min(counts, default=0) < 0 or sum(counts) > size:
            raise ValueError(f"it declares {footer.num_rows} rows and has {size} bytes")
        found: list[Media] = []
        for group, count in enumerate(counts):
            first = len(found)
            found += [ParquetMedia(self._path, column, first + i, group, i) for i in range(count)]
        return found


class _Block(NamedTuple):
    """Rows of a row group that follow each other."""

    group: int
    first: int
    values: Any


class _Reader:
    """Goes through the row groups of a file, block by block."""

    def __init__(self, file: str, column: str) -> None:
        self._file = _open(file)
        self._column = column
        self._lock = threading.Lock()
        self._kept: deque[_Block] = deque()
        self._group, self._next = -1, 0
        self._pages: Iterator[Any] = iter(())

    def value(self, group: int, index: int) -> Any:
        """Return one value: bytes, a dict with ``bytes``, or None."""
        with self._lock:
            for block in self._kept:
                if block.group == group and block.first <= index < block.first + len(block.values):
                    break
            else:
                block = self._read_to(group, index)
            return block.values[index - block.first].as_py()

    def _rows_of_block(self, group: int) -> int:
        described = self._file.metadata.row_group(group)
        leaves = (described.column(i) for i in range(described.num_columns))
        size = sum(
            leaf.total_uncompressed_size
            for leaf in leaves
            if leaf.path_in_schema.split(".")[0] == self._column.split(".")[0]
        )
        return int(max(1, min(1 << 16, _BLOCK * described.num_rows // max(1, size))))

    def _read_to(self, group: int, index: int) -> _Block:
        if group != self._group or index < self._next:
            self._next = 0
            self._pages = self._file.iter_batches(
                batch_size=self._rows_of_block(group),
                row_groups=[group],
                columns=[self._column],
                use_threads=False,
            )
        while True:
            self._group = -1  # after an error, or the end, begin again
            batch = next(self._pages, None)
            if batch is None:
                raise ValueError("the row group ends before it")
            self._group = group
            block = _Block(group, self._next, batch.column(0))
            self._next += len(batch)
            self._keep(block)
            if index < self._next:
                return block

    def _keep(self, block: _Block) -> None:
        self._kept.append(block)
        size = sum(kept.values.nbytes for kept in self._kept)
        rows = sum(len(kept.values) for kept in self._kept)
        while size > _KEPT and rows - len(self._kept[0].values) >= _KEPT_ROWS:
            oldest = self._kept.popleft()
            size -= oldest.values.nbytes
            rows -= len(oldest.values)


_LOCK = threading.Lock()
_OPEN: OrderedDict[tuple[int, str, int, str], _Reader] = OrderedDict()


def _reader(file: str, column: str) -> _Reader:
    """Return this process's reader of a file; those used last are kept."""
    # a forked process would share the file position with its parent, hence the process id
    key = (os.getpid(), file, os.stat(file).st_mtime_ns, column)  # noqa: PTH116
    with _LOCK:
        if key not in _OPEN:
            while len(_OPEN) >= _READERS:
                _OPEN.popitem(last=False)
            _OPEN[key] = _Reader(file, column)
        _OPEN.move_to_end(key)
        return _OPEN[key]


def _open(file: str) -> Any:
    import pyarrow.parquet as pq

    # read in pieces, and not ahead: a row group may be larger than the memory
    return pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
