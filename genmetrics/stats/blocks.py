"""Feature rows that do not fit memory, read from a source block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from genmetrics.core.errors import InputError
from genmetrics.stats.arrays import (
    Array,
    Rows,
    as_float64,
    as_rows,
    block_rows,
    float64_device,
    require_finite,
    require_rows,
    unit_length,
)


@runtime_checkable
class RowSource(Protocol):
    """A feature matrix ``(n, d)`` that is read in order, as often as needed, never as a whole.

    ``len`` is n, :attr:`dim` is d, and each iteration starts at the first row and yields float
    arrays or tensors ``(k, d)`` of any k. How the rows are cut moves no bit of a result.
    """

    @property
    def dim(self) -> int:
        """Columns."""

    def __len__(self) -> int:
        """Rows."""

    def __iter__(self) -> Iterator[Array]:
        """Read all rows, from the first on."""


class StreamedRows:
    """The rows of a source as float64 blocks, cut as :class:`~genmetrics.stats.arrays.Rows` are.

    Blocks are checked as they are read, because a pass over the rows only to check them would cost
    as much as one that computes.
    """

    def __init__(
        self, source: RowSource, side: str, device: torch.device, member: np.ndarray | None = None
    ) -> None:
        self.side = side
        self.device = device
        self.dim = int(source.dim)
        self._source = source
        self._member = member

    def __len__(self) -> int:
        return len(self._source) if self._member is None else int(self._member.sum())

    def subset(self, index: np.ndarray) -> StreamedRows:
        """Return the rows at ``index``, in the order of the source; each pass reads them all."""
        member = np.zeros(len(self._source), dtype=bool)
        member[index] = True
        return type(self)(self._source, self.side, self.device, member)

    def whole(self) -> Tensor:
        """Read all rows at once; only for few."""
        return next(block for _, block in self.blocks(len(self)))

    def empty_column(self) -> Tensor:
        """One float64 number a row, to be filled block by block."""
        return torch.empty(len(self), dtype=torch.float64, device=self.device)

    def blocks(self, size: int | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Read all rows in order, ``size`` at a time, whatever the sizes of the source's blocks.

        Raises:
            InputError: A block of another shape, a row that is not finite, or another number of
                rows than the source has said.
        """
        n, size, start, filled = len(self), size or block_rows(self.dim), 0, 0
        room = self._empty(min(size, n))
        for block in self._read():
            taken = 0
            while taken < len(block):
                if filled == len(room):
                    yield slice(start, start + filled), room
                    start, filled = start + filled, 0
                    # new memory, because the reader may keep a block
                    room = self._empty(min(size, n - start))
                part = block[taken : taken + len(room) - filled]
                room[filled : filled + len(part)] = as_float64(part)
                taken, filled = taken + len(part), filled + len(part)
        yield slice(start, n), room

    def _read(self) -> Iterator[Array]:
        """Check the blocks of the source, and leave out rows that are no members."""
        n, seen = len(self._source), 0
        for block in self._source:
            if block.ndim != 2 or block.shape[1] != self.dim:
                raise InputError(
                    f"a block of the {self.side} features has shape {tuple(block.shape)};"
                    f" expected (rows, {self.dim})"
                )
            if seen + len(block) > n:
                raise self._miscounted(seen + len(block))
            require_finite(block, self.side, seen)
            if self._member is None:
                yield block
            else:
                member: Any = self._member[seen : seen + len(block)]
                if isinstance(block, Tensor):
                    member = torch.from_numpy(member).to(block.device)
                yield block[member]
            seen += len(block)
        if seen < n:
            raise self._miscounted(seen)

    def _empty(self, rows: int) -> Tensor:
        return torch.empty(rows, self.dim, dtype=torch.float64, device=self.device)

    def _miscounted(self, found: int) -> InputError:
        n = len(self._source)
        return InputError(
            f"the source of the {self.side} features says {n} rows and gave {found}; make it again"
        )


class UnitStreamedRows(StreamedRows):
    """Streamed rows scaled to length 1, as :class:`~genmetrics.stats.arrays.UnitRows` are."""

    @classmethod
    def of(cls, rows: StreamedRows) -> UnitStreamedRows:
        """Scale ``rows``, none of which may be all zero."""
        return cls(rows._source, rows.side, rows.device, rows._member)

    def blocks(self, size: int | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Read all rows in order as unit vectors."""
        for where, block in super().blocks(size):
            yield where, unit_length(block)


def as_blocks(
    x: Array | RowSource,
    side: str,
    *,
    minimum: int = 1,
    why: str = "",
    device: torch.device | None = None,
) -> Rows | StreamedRows:
    """Take an array as :func:`~genmetrics.stats.arrays.as_rows` does, or a source of rows.

    A source with at most as many rows as columns is read whole: what is computed of so few is the
    size of the rows anyway.

    Args:
        x: Features, shape ``(n, d)``, or their source.
        side: What errors call the set, such as ``"real"``.
        minimum: Fewest rows.
        why: What needs ``minimum`` rows, for the error.
        device: Where to compute; that of an array, and the CPU for a source, unless given.

    Raises:
        TooFewSamplesError: Fewer rows than ``minimum``.
        InputError: Not a matrix, or a row that is not finite.
    """
    if isinstance(x, np.ndarray | Tensor) or not isinstance(x, RowSource):
        return as_rows(x, side, minimum=minimum, why=why, device=device)
    require_rows(len(x), side, minimum, why)
    rows = StreamedRows(x, side, float64_device(device or torch.device("cpu")))
    if len(rows) > rows.dim:
        return rows
    return as_rows(rows.whole(), side, device=rows.device)
