"""Exact nearest neighbours and distance comparisons, at the speed of matrix products.

Distances are screened as |a|^2 + |b|^2 - 2 a.b in tiles, float32 first. The screen's rounding
error has a proven bound, so most comparisons are settled by it; the few that are not are repeated
in float64, and what is still open is computed pair by pair as sum (a - b)^2 in float64. So every
answer is that of the pairwise formula, which gives the same pair the same number wherever it
stands, and ties are ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genmetrics.stats.arrays import Rows, slices

TILE = 1536
"""Rows and columns of one tile of distances (9 MiB of float32)."""

_SPARE = 4
"""Neighbours kept beyond the k wanted, so that rounding in the screen seldom reaches the k-th."""

_PAIR_NUMBERS = 1 << 17
"""Numbers in one batch of pairwise differences: 1 MiB, which stays in the cache."""

_PART_NUMBERS = 1 << 19
"""Numbers converted at a time. Not fewer: starting threads for small pieces costs more than it
saves on a busy machine."""

_KEEP_BYTES = 40 << 20
"""Converted blocks that a screen keeps instead of converting them again for every tile."""

_TINY = 1e-30
"""Beyond this, relative to the longest row, squares underflow in float32."""


class Neighbours(NamedTuple):
    """For each row its nearest others in order: positions and squared distances, ``(n, k)``."""

    rows: np.ndarray
    squared: np.ndarray


def pair_distances(x: Rows, i: np.ndarray, y: Rows, j: np.ndarray) -> np.ndarray:
    """Squared distances of ``x[i]`` to each of ``y[j]`` in float64, on the CPU.

    The sum of one pair is one inner loop over its row, whatever else is in the batch, so equal
    pairs give equal bits in every call and on every device.

    Args:
        x: Rows ``(n, d)``.
        i: Positions in ``x``, ``(p,)``.
        y: Rows ``(m, d)``.
        j: Positions in ``y`` for each entry of ``i``, ``(p, c)``.

    Returns:
        Shape ``(p, c)``.
    """
    found = np.empty(j.shape)
    for where in slices(len(i), max(16, _PAIR_NUMBERS // (x.dim * j.shape[1]))):
        near = y[j[where].ravel()].cpu().numpy().reshape(-1, j.shape[1], x.dim)
        difference = (near - x[i[where]].cpu().numpy()[:, None]).reshape(-1, x.dim)
        squared = np.einsum("ij,ij->i", difference, difference)
        found[where] = squared.reshape(-1, j.shape[1])
    return found


def nearest(x: Rows, y: Rows | None, k: int) -> Neighbours:
    """Find the k nearest rows of ``y`` for every row of ``x``, exactly.

    Args:
        x: Rows that ask, ``(n, d)``.
        y: Rows to choose from; None chooses among the other rows of ``x``.
        k: How many; at most as many as there are to choose from.
    """
    points = x if y is None else y
    available = len(points) - (y is None)
    keep = min(k + _SPARE, available)
    found = Neighbours(np.zeros((len(x), k), dtype=np.int64), np.zeros((len(x), k)))
    left = np.arange(len(x))
    for dtype in _dtypes(x.device):
        candidates, floor = _screened_nearest(_Screen(x, points, dtype), left, keep, y is None)
        exact = _nearest_of(x, left, points, candidates, k)
        # Everything that is no candidate is at the floor or beyond.
        proven = (exact.squared[:, -1] <= floor) | (keep == available)
        found.rows[left[proven]] = exact.rows[proven]
        found.squared[left[proven]] = exact.squared[proven]
        left = left[~proven]
        if not len(left):
            break
    for i in left:  # more neighbours tie to rounding than there are spare ones
        others = np.arange(len(points))
        if y is None:
            others = others[others != i]
        exact = _nearest_of(x, np.array([i]), points, others[None], k)
        found.rows[i], found.squared[i] = exact.rows[0], exact.squared[0]
    return found


def within(
    x: Rows, y: Rows, radius_x: np.ndarray, radius_y: np.ndarray
) -> Iterator[tuple[slice, slice, np.ndarray, np.ndarray]]:
    """Compare every distance between two sets with a radius at either end, exactly and strictly.

    Args:
        x: Rows ``(n, d)``.
        y: Rows ``(m, d)``.
        radius_x: Squared radius of each row of ``x``.
        radius_y: Squared radius of each row of ``y``.

    Yields:
        Slice of x, slice of y, and two boolean tiles: distance < radius_x, distance < radius_y.
    """
    dtypes = _dtypes(x.device)
    screens: list[_Screen] = []
    for i in slices(len(x), TILE):
        for j in slices(len(y), TILE):
            for level, dtype in enumerate(dtypes):
                if level == len(screens):
                    screens.append(_Screen(x, y, dtype))
                at_x, at_y, undecided = screens[level].compare(i, j, radius_x[i], radius_y[j])
                if undecided.sum() <= undecided.size // 64:
                    break
            a, b = np.nonzero(undecided)
            exact = pair_distances(x, a + i.start, y, b[:, None] + j.start)[:, 0]
            at_x[a, b] = exact < radius_x[i][a]
            at_y[a, b] = exact < radius_y[j][b]
            yield i, j, at_x, at_y


class _Screen:
    """Squared distances between two sets in one float type, with a proven error.

    Rows are centred on the mean of ``y`` and scaled by a power of two to length 1 at most. With
    unit roundoff u, the products, the rounding of rows and norms and the sums are together off by
    at most (d + O(1)) u (|a|^2 + |b|^2) (Higham, 2002, section 3.1).
    """

    def __init__(self, x: Rows, y: Rows, dtype: torch.dtype) -> None:
        self.x, self.y = x, y
        self._dtype = dtype
        total = torch.zeros(y.dim, dtype=torch.float64, device=y.device)
        longest = 0.0
        for rows in (y,) if x is y else (y, x):
            for _, block in rows.blocks():
                longest = max(longest, float(torch.linalg.vector_norm(block, dim=1).max()))
                if rows is y:
                    total += block.sum(dim=0)
        # A centred row is at most twice as long as the longest row.
        self._scale = float(2.0 ** -np.ceil(np.log2(2 * longest))) if longest > 0 else 1.0
        self._centre = total * (-self._scale / len(y))
        self.error = (1.1 * y.dim + 32) * torch.finfo(dtype).eps / 2
        self._kept: dict[tuple[bool, int], tuple[Tensor, Tensor]] = {}
        self._room = _KEEP_BYTES

    def block(self, rows: Rows, where: slice) -> tuple[Tensor, Tensor]:
        """Rows of one block and their squared norms; kept as long as there is room."""
        key = rows is self.x, where.start
        if key not in self._kept:
            block = self.convert(rows, where)
            if block[0].nbytes > self._room:
                return block
            self._room -= block[0].nbytes
            self._kept[key] = block
        return self._kept[key]

    def convert(self, rows: Rows, where: slice) -> tuple[Tensor, Tensor]:
        """Centre and scale rows, round them, and take the squared norms of the rounded rows."""
        count = where.stop - where.start
        rounded = torch.empty(count, rows.dim, dtype=self._dtype, device=rows.device)
        norms = torch.empty(count, dtype=self._dtype, device=rows.device)
        for part in slices(count, max(16, _PART_NUMBERS // rows.dim)):
            block = rows[where.start + part.start : where.start + part.stop]
            rounded[part] = torch.add(self._centre, block, alpha=self._scale)
            norms[part] = rounded[part].to(torch.float64).square().sum(dim=1)
        return rounded, norms

    def unscale(self, squared: Tensor) -> np.ndarray:
        """Turn squared distances of the screen into those of the data."""
        return squared.to(torch.float64).cpu().numpy() / self._scale**2

    def compare(
        self, i: slice, j: slice, radius_x: np.ndarray, radius_y: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tell for a tile which distances are surely below each radius, and which are undecided."""
        (a, norm_a), (b, norm_b) = self.block(self.x, i), self.block(self.y, j)
        rx, ry = (
            torch.from_numpy(r * self._scale**2).to(a.device, self._dtype)
            for r in (radius_x, radius_y)
        )
        bound = torch.addmm((1 + self.error) * norm_b + _TINY, a, b.T, alpha=-2)
        bound += (1 + self.error) * norm_a[:, None] + _TINY
        sure_x, sure_y = bound < rx[:, None], bound < ry
        # From the upper bounds down to the lower ones.
        bound -= 2 * self.error * norm_b + 2 * _TINY
        bound -= 2 * self.error * norm_a[:, None] + 2 * _TINY
        undecided = (bound < rx[:, None]).logical_xor_(sure_x)
        undecided |= (bound < ry).logical_xor_(sure_y)
        return sure_x.cpu().numpy(), sure_y.cpu().numpy(), undecided.cpu().numpy()


class _Best:
    """Running smallest values of each row, with their columns."""

    def __init__(self, n: int, keep: int, device: torch.device, dtype: torch.dtype) -> None:
        self.values = torch.full((n, keep), torch.inf, device=device, dtype=dtype)
        self.columns = torch.zeros(n, keep, device=device, dtype=torch.int64)

    def add(self, rows: slice, tile: Tensor, first_column: int) -> None:
        keep = self.values.shape[1]
        values, columns = _smallest(tile, min(keep, tile.shape[1]))
        values = torch.cat([self.values[rows], values], dim=1)
        columns = torch.cat([self.columns[rows], columns + first_column], dim=1)
        self.values[rows], best = values.topk(keep, dim=1, largest=False)
        self.columns[rows] = columns.gather(1, best)


def _smallest(tile: Tensor, count: int, depth: int = 16) -> tuple[Tensor, Tensor]:
    """``tile.topk(count, largest=False)`` by rows, several times faster on wide tiles.

    Columns are dealt to groups of ``depth``, as an array ``(depth, groups)``; the smallest
    entries lie in the groups that have the smallest minima.
    """
    rows, columns = tile.shape
    groups = columns // depth
    if columns % depth or groups <= count:
        values, index = tile.topk(count, dim=1, largest=False)
        return values, index
    dealt = tile.view(rows, depth, groups)
    _, chosen = dealt.amin(dim=1).topk(count, dim=1, largest=False)
    near = dealt.gather(2, chosen[:, None, :].expand(-1, depth, -1)).flatten(1)
    values, place = near.topk(count, dim=1, largest=False)
    return values, place // count * groups + chosen.gather(1, place % count)


def _screened_nearest(
    screen: _Screen, asking: np.ndarray, keep: int, own: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Candidates ``(len(asking), keep)`` and a floor under the squared distance to all others."""
    points, everyone = screen.y, len(asking) == len(screen.x)
    queries = screen.x if everyone else screen.x.subset(asking)
    mirror = own and everyone  # each tile off the diagonal serves its mirror image too
    best = _Best(len(queries), keep, points.device, screen._dtype)
    for i in slices(len(queries), TILE):
        a, norm_a = screen.block(queries, i) if everyone else screen.convert(queries, i)
        for j in slices(len(points), TILE):
            if mirror and j.start < i.start:
                continue
            b, norm_b = screen.block(points, j)
            # Lower bounds of the distances, so that the floor needs no second look at the error.
            tile = torch.addmm((1 - screen.error) * norm_b, a, b.T, alpha=-2)
            tile += (1 - screen.error) * norm_a[:, None] - _TINY
            if own:
                _exclude(tile, asking[i], j)
            best.add(i, tile, j.start)
            if mirror and i != j:
                best.add(j, tile.T.contiguous(), i.start)
    floor = screen.unscale(best.values.amax(dim=1).clamp_min(0))
    return best.columns.cpu().numpy(), floor


def _exclude(tile: Tensor, asking: np.ndarray, columns: slice) -> None:
    """Make each row's distance to itself infinite."""
    row = np.nonzero((asking >= columns.start) & (asking < columns.stop))[0]
    tile[torch.from_numpy(row), torch.from_numpy(asking[row] - columns.start)] = torch.inf


def _nearest_of(x: Rows, asking: np.ndarray, y: Rows, candidates: np.ndarray, k: int) -> Neighbours:
    """Order each row's candidates by their exact distance, equal ones by position; keep k."""
    candidates = np.sort(candidates, axis=1)
    exact = pair_distances(x, asking, y, candidates)
    order = np.argsort(exact, axis=1, kind="stable")[:, :k]
    return Neighbours(
        np.take_along_axis(candidates, order, axis=1), np.take_along_axis(exact, order, axis=1)
    )


def _dtypes(device: torch.device) -> tuple[torch.dtype, ...]:
    """Float types to screen in, fastest first."""
    if device.type == "cpu" and _float32_is_float32():
        return torch.float32, torch.float64
    # A GPU may be set to multiply float32 in TF32, with another error; float64 is what it says.
    return (torch.float64,)


def _float32_is_float32() -> bool:
    """Probe whether float32 products are rounded to float32 (a user may have allowed bfloat16)."""
    value = 1 + 2.0**-12
    probe = torch.full((64, 64), value, dtype=torch.float32)
    return bool(torch.all((probe @ probe.T - 64 * value**2).abs() < 1e-4))
