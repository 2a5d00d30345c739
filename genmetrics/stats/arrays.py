"""Feature matrices as float64 blocks: what every statistic here reads.

A matrix is an array or a tensor, of any float type and on any device. It is never converted as a
whole: statistics read blocks of rows, so that memory follows the block and not the set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genmetrics.core.errors import InputError, TooFewSamplesError

Array = np.ndarray | Tensor

BLOCK_BYTES = 1 << 24
"""Memory of one float64 block. Fixed, not read off the machine: block edges move last digits."""

TILE = 1024
"""Rows and columns of one tile of a pairwise matrix (8 MiB of float64)."""


def has_float64(device: torch.device) -> bool:
    """Tell whether a device computes in double precision; Apple's GPUs do not."""
    return device.type != "mps"


def float64_device(
    device: torch.device, *, supports: Callable[[torch.device], bool] = has_float64
) -> torch.device:
    """Return where statistics of data on ``device`` are computed: there, or on the CPU."""
    return device if supports(device) else torch.device("cpu")


def as_float64(x: Array, *, supports: Callable[[torch.device], bool] = has_float64) -> Tensor:
    """Return ``x`` as a float64 tensor without gradient, on its device if that has float64.

    Args:
        x: Array or tensor of real numbers.
        supports: Tells whether a device has float64 (a test replaces it by a stub).
    """
    if isinstance(x, Tensor):
        # Moved before it is converted: a device without float64 cannot hold the converted tensor.
        return x.detach().to(float64_device(x.device, supports=supports)).to(torch.float64)
    # Always a copy: torch warns about memory it may not write to, such as a memory map.
    return torch.from_numpy(np.array(x, dtype=np.float64))


_PANEL = 256
"""Columns of a symmetric product that are computed at once on a CPU."""


class Rows:
    """A feature matrix ``(n, d)`` read as float64 blocks of rows."""

    def __init__(
        self, source: Array, side: str, device: torch.device, index: np.ndarray | None = None
    ) -> None:
        self.side = side
        self.device = device
        self.dim = int(source.shape[1])
        self._source = source
        self._index = index

    def __len__(self) -> int:
        return len(self._source if self._index is None else self._index)

    def __getitem__(self, rows: slice | np.ndarray) -> Tensor:
        """Read some rows as float64 on :attr:`device`. The block may share memory: never write."""
        where: Any = rows if self._index is None else self._index[rows]
        if isinstance(where, np.ndarray) and isinstance(self._source, Tensor):
            where = torch.from_numpy(where).to(self._source.device)
        return as_float64(self._source[where]).to(self.device)

    def subset(self, index: np.ndarray) -> Rows:
        """Return the rows at ``index``, not read yet."""
        index = index if self._index is None else self._index[index]
        return type(self)(self._source, self.side, self.device, index)

    def whole(self) -> Tensor:
        """Read all rows at once; only for few."""
        return self[:]

    def empty_column(self) -> Tensor:
        """One float64 number a row, to be filled block by block.

        Filled, not joined from pieces: small pieces left between large blocks keep the allocator
        from using the same memory for the next block.
        """
        return torch.empty(len(self), dtype=torch.float64, device=self.device)

    def blocks(self, size: int | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Read all rows in order, ``size`` at a time (default: as ``BLOCK_BYTES`` allows)."""
        for where in slices(len(self), size or block_rows(self.dim)):
            yield where, self[where]


class UnitRows(Rows):
    """Rows scaled to length 1 in float64, so that float32 rounding of the length does not count."""

    @classmethod
    def of(cls, rows: Rows) -> UnitRows:
        """Scale ``rows``, none of which may be all zero."""
        return cls(rows._source, rows.side, rows.device, rows._index)

    def __getitem__(self, rows: slice | np.ndarray) -> Tensor:
        """Read some rows as unit vectors."""
        return unit_length(super().__getitem__(rows))


def unit_length(block: Tensor) -> Tensor:
    """Divide each row by its L2 norm."""
    unit: Tensor = block / torch.linalg.vector_norm(block, dim=1, keepdim=True)
    return unit


def block_rows(dim: int) -> int:
    """Rows of one block of ``BLOCK_BYTES``, between 64 and 4096."""
    return max(64, min(4096, BLOCK_BYTES // (8 * dim)))


def slices(n: int, size: int) -> Iterator[slice]:
    """Cut ``range(n)`` into consecutive slices of ``size``."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def as_rows(
    x: Array, side: str, *, minimum: int = 1, why: str = "", device: torch.device | None = None
) -> Rows:
    """Check a feature matrix before anything is computed from it.

    Args:
        x: Features, shape ``(n, d)``.
        side: What errors call the set, such as ``"real"``.
        minimum: Fewest rows.
        why: What needs ``minimum`` rows, for the error.
        device: Where to compute; the device of ``x`` unless given.

    Raises:
        TooFewSamplesError: Fewer rows than ``minimum``.
        InputError: Not a matrix, or a row that is not finite.
    """
    source = x.detach() if isinstance(x, Tensor) else np.asarray(x)
    if (
        isinstance(source, Tensor)
        and source.device.type == "cpu"
        and source.dtype != torch.bfloat16
    ):
        # The same memory; but numpy gathers and converts small pieces without starting threads.
        source = source.numpy()
    if source.ndim != 2 or source.shape[1] == 0:
        raise InputError(
            f"{side} features have shape {tuple(source.shape)}; pass a matrix (samples, dimensions)"
        )
    require_rows(len(source), side, minimum, why)
    if device is None:
        device = source.device if isinstance(source, Tensor) else torch.device("cpu")
    rows = Rows(source, side, float64_device(device))
    for where in slices(len(rows), block_rows(rows.dim)):
        require_finite(source[where], side, where.start)
    return rows


def require_rows(n: int, side: str, minimum: int, why: str = "") -> None:
    """Raise :class:`TooFewSamplesError` for fewer than ``minimum`` rows."""
    if n < minimum:
        raise TooFewSamplesError(
            f"the {side} side has {n} samples, {why or 'this'} needs at least {minimum};"
            " add samples"
        )


def require_finite(block: Array, side: str, start: int) -> None:
    """Raise :class:`InputError` that names the first row that is not finite.

    Args:
        block: Rows ``(k, d)``.
        side: What the error calls the set.
        start: Position of the block's first row in the set.
    """
    finite = _finite_rows(block)
    if not finite.all():
        raise InputError(
            f"row {start + int(finite.argmin())} of the {side} features is not finite;"
            " check the model and this sample"
        )


def _finite_rows(block: Array) -> np.ndarray:
    if isinstance(block, Tensor):
        return torch.isfinite(block).all(dim=1).cpu().numpy()
    return np.asarray(np.isfinite(block).all(axis=1))


def as_pair(real: Array, fake: Array, *, minimum: int = 1, why: str = "") -> tuple[Rows, Rows]:
    """Check two feature matrices of the same space; both are computed on the device of ``real``."""
    a = as_rows(real, "real", minimum=minimum, why=why)
    b = as_rows(fake, "fake", minimum=minimum, why=why, device=a.device)
    require_same_dim(a.dim, b.dim)
    return a, b


def require_same_dim(real: int, fake: int) -> None:
    """Raise :class:`InputError` that names both numbers if they differ."""
    if real != fake:
        raise InputError(
            f"real features have {real} dimensions but fake features have {fake};"
            " extract both with the same model"
        )


def as_unit_rows(rows: Rows, *, any_length: bool = False) -> UnitRows:
    """Check that every row has length 1 (to 1e-3) and return them scaled to exactly that.

    Args:
        rows: Feature rows.
        any_length: Scale rows of any length but 0 instead.

    Raises:
        InputError: A row is no unit vector, or 0; names the row and its length.
    """
    for where, block in rows.blocks():
        length = torch.linalg.vector_norm(block, dim=1)
        wrong = length == 0 if any_length else (length - 1).abs() > 1e-3
        bad = torch.nonzero(wrong)
        if len(bad):
            i = int(bad[0])
            raise InputError(
                f"row {where.start + i} of the {rows.side} features has length"
                f" {float(length[i]):.6g}, not 1; divide each row by its L2 norm"
            )
    return UnitRows.of(rows)


def gram_tiles(x: Rows, y: Rows, *, upper: bool = False) -> Iterator[tuple[slice, slice, Tensor]]:
    """Walk the matrix of inner products in tiles of at most ``TILE`` rows and columns.

    Args:
        x: Rows of the matrix.
        y: Columns of the matrix.
        upper: Leave out tiles below the diagonal (for ``y`` the same set as ``x``).

    Yields:
        Row slice, column slice, and a fresh tensor of inner products that may be overwritten.
    """
    for i in slices(len(x), TILE):
        left = x[i]
        for j in slices(len(y), TILE):
            if not upper or j.start >= i.start:
                yield i, j, left @ y[j].T


def add_gram(total: Tensor, rows: Tensor) -> Tensor:
    """Add ``rows' rows`` to the upper triangle of ``total``; what is below it becomes garbage.

    In panels, of which those below the diagonal are left out: on a CPU 1.6 times as fast as the
    whole product at 2048 columns.
    """
    size = _PANEL if total.device.type == "cpu" else len(total)
    for panel in slices(len(total), size):
        total[panel, panel.start :].addmm_(rows[:, panel].T, rows[:, panel.start :])
    return total


def mirror_(upper: Tensor) -> Tensor:
    """Write the upper triangle of a matrix over its lower one."""
    for panel in slices(len(upper), _PANEL):
        corner = upper[panel, panel]
        corner.copy_(corner.triu() + corner.triu(1).T)
        upper[panel.stop :, panel] = upper[panel, panel.stop :].T
    return upper


def gram(rows: Tensor) -> Tensor:
    """Return ``rows' rows``, exactly symmetric."""
    dim = rows.shape[1]
    return mirror_(add_gram(rows.new_zeros(dim, dim), rows))


def standard_error(influence: np.ndarray) -> float:
    """Return sd/sqrt(n) of per-sample influences: the standard error of their statistic."""
    n = len(influence)
    return float(np.std(influence, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
