"""Mean and covariance of a stream of feature rows, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from genmetrics.core.errors import InputError, TooFewSamplesError, require_number
from genmetrics.stats.arrays import (
    Array,
    Rows,
    add_gram,
    as_float64,
    as_rows,
    block_rows,
    float64_device,
    mirror_,
    require_same_dim,
)
from genmetrics.stats.blocks import StreamedRows


class Sums(NamedTuple):
    """Count, mean ``(d,)`` and scatter ``(d, d)`` (sum of centred outer products) of some rows."""

    n: int
    mean: Tensor
    scatter: Tensor


def combine(a: Sums, b: Sums) -> Sums:
    """Join two disjoint sets of rows by the pairwise update of Chan, Golub and LeVeque (1979)."""
    if a.n == 0 or b.n == 0:
        return a if b.n == 0 else b
    n = a.n + b.n
    step = b.mean - a.mean
    scatter = torch.addr(a.scatter, step, step, alpha=a.n * b.n / n).add_(b.scatter)
    return Sums(n, a.mean + step * (b.n / n), scatter)


class Moments:
    """Streaming mean and covariance of feature rows ``(n, dim)``.

    Rows are folded in blocks of a fixed size by their position in the stream, each centred on its
    own mean, so the result does not depend on how the stream is cut into updates, to the last
    bit, and an offset of the features costs no digits. Memory is a ``(dim, dim)`` matrix and a
    block; reading or merging takes one or two matrices more.

    Args:
        dim: Feature dimension.
        device: Where to accumulate; the CPU in place of a device without float64.
    """

    def __init__(self, dim: int, *, device: str | torch.device = "cpu") -> None:
        require_number("Moments", "dim", dim, 1)
        self.dim = dim
        self.device = float64_device(torch.device(device))
        zeros = torch.zeros(dim, dtype=torch.float64, device=self.device)
        self._folded = Sums(0, zeros, zeros.new_zeros(dim, dim))  # of the scatter the upper half
        self._pending: list[Tensor] = []
        self._queued = 0
        self._block = max(block_rows(dim), dim)  # so that `few_rows` serves any set that small

    @classmethod
    def from_rows(cls, rows: Rows | StreamedRows) -> Moments:
        """Accumulate rows that were checked already, on their device."""
        moments = cls(rows.dim, device=rows.device)
        for _, block in rows.blocks(moments._block):
            moments._append(block)
        return moments

    @classmethod
    def from_statistics(cls, n: int, mean: Array, cov: Array) -> Moments:
        """Rebuild moments from a published mean and covariance.

        Args:
            n: Samples they were made from. It bounds the rank of ``cov``; where it is not known,
                pass any number above the dimension.
            mean: Shape ``(d,)``.
            cov: Covariance with divisor ``n - 1``, shape ``(d, d)``.

        Raises:
            TooFewSamplesError: ``n`` below 2.
            InputError: Shapes that do not fit, values that are not finite, ``cov`` not symmetric.
        """
        require_number("Moments.from_statistics", "n", n, 0, 2**63)
        mu, sigma = as_float64(mean), as_float64(cov)
        if mu.ndim != 1 or sigma.shape != (len(mu), len(mu)):
            raise InputError(
                f"mean of shape {tuple(mu.shape)} does not fit cov of shape {tuple(sigma.shape)}"
            )
        if n < 2:
            raise TooFewSamplesError(f"statistics of {n} samples; a covariance needs at least 2")
        if not (torch.isfinite(mu).all() and torch.isfinite(sigma).all()):
            raise InputError("mean or cov is not finite; make the statistics again")
        if not torch.allclose(sigma, sigma.T, rtol=1e-5, atol=1e-5 * float(sigma.abs().max())):
            raise InputError("cov is not symmetric; pass the covariance matrix itself")
        moments = cls(len(mu), device=mu.device)
        moments._folded = Sums(n, mu.clone(), (sigma + sigma.T).mul_((n - 1) / 2))
        return moments

    def update(self, x: Array) -> Moments:
        """Add rows.

        Args:
            x: Features, shape ``(n, dim)``.

        Raises:
            InputError: Another dimension, or a row that is not finite.
        """
        rows = as_rows(x, "new", minimum=0, device=self.device)
        if rows.dim != self.dim:
            raise InputError(f"features have {rows.dim} dimensions, these moments {self.dim}")
        for _, block in rows.blocks(self._block):
            self._append(block)
        return self

    def merge(self, other: Moments) -> Moments:
        """Add everything that ``other`` has seen (disjoint from what this one has seen)."""
        require_same_dim(self.dim, other.dim)
        if self.n == 0:
            # with the rows that wait for a block, so that a merge with nothing moves no bit
            self.load_state_dict(other.state_dict())
            return self
        total = other.total()
        moved = Sums(total.n, total.mean.to(self.device), total.scatter.to(self.device))
        self._folded = combine(self._folded, moved)
        return self

    @property
    def n(self) -> int:
        """Rows seen."""
        return self._folded.n + self._queued

    @property
    def mean(self) -> np.ndarray:
        """Mean, shape ``(dim,)``."""
        return _numpy(self.total().mean)

    @property
    def cov(self) -> np.ndarray:
        """Covariance with divisor ``n - 1``, shape ``(dim, dim)``.

        Raises:
            TooFewSamplesError: Fewer than 2 rows.
        """
        total = self.total()
        if total.n < 2:
            raise TooFewSamplesError(f"{total.n} samples; a covariance needs at least 2")
        return _numpy(total.scatter.div_(total.n - 1))

    def total(self) -> Sums:
        """Return count, mean and scatter of all rows; the scatter is the caller's own."""
        total = self._folded._replace(scatter=self._folded.scatter.clone())
        if self._pending:
            total = _fold(total, torch.cat(self._pending))
        mirror_(total.scatter)
        return total

    def few_rows(self) -> Tensor | None:
        """Return the rows themselves while all are still queued and at most ``dim``, else None.

        Rows are a factor of their own covariance, so whoever needs one is spared a decomposition.
        """
        if self._folded.n or not 0 < self._queued <= self.dim:
            return None
        return torch.cat(self._pending)

    def state_dict(self) -> dict[str, Any]:
        """Everything seen, as plain numbers and arrays.

        Rows of a block that is not full yet are kept as rows, so that a stream which is stored and
        resumed gives the same bits as one that was not.
        """
        pending = (
            torch.cat(self._pending) if self._pending else self._folded.mean.new_zeros(0, self.dim)
        )
        return {
            "n": self._folded.n,
            "mean": _numpy(self._folded.mean),
            "scatter": _numpy(mirror_(self._folded.scatter.clone())),
            "pending": _numpy(pending),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace everything seen by a :meth:`state_dict` of the same dimension."""
        mean, scatter = as_float64(state["mean"]), as_float64(state["scatter"])
        pending = as_float64(state["pending"]).to(self.device)
        if mean.shape != (self.dim,):
            raise InputError(f"state has {len(mean)} dimensions, these moments {self.dim}")
        # Cloned, because rows are folded into the scatter in place.
        own = scatter.to(self.device).clone()
        self._folded = Sums(int(state["n"]), mean.to(self.device), own)
        self._pending, self._queued = ([pending] if len(pending) else []), len(pending)

    def _append(self, block: Tensor) -> None:
        """Queue rows, and fold them as soon as a whole block is there."""
        room = self._block - self._queued
        if self._queued == 0 and len(block) == room:
            self._folded = _fold(self._folded, block)
            return
        # Copied, because the caller may overwrite the rows before they are folded.
        self._pending.append(block[:room].clone())
        self._queued += len(self._pending[-1])
        if self._queued == self._block:
            rows = torch.cat(self._pending)
            self._pending, self._queued = [], 0
            self._folded = _fold(self._folded, rows)
            if len(block) > room:
                self._append(block[room:])


def _fold(sums: Sums, rows: Tensor) -> Sums:
    """Add rows, as :func:`combine` does, into the scatter that is there: its upper half."""
    n, mean, scatter = sums
    rows_mean = rows.mean(dim=0)
    centred, step = rows - rows_mean, rows_mean - mean
    add_gram(scatter, centred)
    scatter.addr_(step, step, alpha=n * len(rows) / (n + len(rows)))
    return Sums(n + len(rows), mean + step * (len(rows) / (n + len(rows))), scatter)


def _numpy(x: Tensor) -> np.ndarray:
    return x.detach().cpu().numpy().copy()
