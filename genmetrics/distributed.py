"""Ranks of a training loop: how their metrics are joined."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from genmetrics.core.errors import GenmetricsError, InputError


class Joinable(Protocol):
    """What :func:`sync` needs of a metric, or of a set of them."""

    def state_dict(self) -> dict[str, Any]:
        """Everything accumulated so far."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace what was accumulated."""

    def merge(self, other: Self) -> Self:
        """Add what another one accumulated."""

    def detached(self) -> Self:
        """Part a fresh copy from its original."""


M = TypeVar("M", bound=Joinable)


class _Share(NamedTuple):
    """What one rank brings: its state, or why it has none."""

    state: dict[str, Any] | None
    reason: str = ""


def sync(metric: M) -> M:
    """Return a metric that holds what all ranks of the default process group accumulated.

    A collective: every rank calls it, also one that saw no image, and every rank gets the same.
    The metric itself is left as it is, so calling it again counts nothing twice. Without a process
    group it returns a copy. States travel as pickles between the ranks of this run, as all objects
    that torch gathers do.

    Args:
        metric: This rank's metric, or its :class:`~genmetrics.core.metric_set.MetricSet`, which
            travels in one piece. Ids of images must be unique over all ranks; images without
            ``ids=`` are numbered anew, rank by rank. Give the reference side on one rank only, or
            as ``reference=FILE`` on all.

    Returns:
        A new metric, or set, on the same device. With ids it computes the same bits in any world
        that extracted equal features.

    Raises:
        InputError: Two ranks hold the same id, or a rank cannot give its state; raised on every
            rank.
        ProtocolMismatchError: Ranks hold metrics of different protocols.
    """
    shares = _gather(_share(metric))
    for rank, share in enumerate(shares):
        if share.state is None:
            raise InputError(f"rank {rank} cannot give the state of its metric: {share.reason}")
    joined = _empty(metric)
    for rank, share in enumerate(shares):
        assert share.state is not None
        other = _empty(metric)
        try:
            other.load_state_dict(share.state)
            joined.merge(other)
        except GenmetricsError as error:
            raise type(error)(f"rank {rank}: {error}") from error
    return joined


def _empty(metric: M) -> M:
    return copy.copy(metric).detached()


def _share(metric: Joinable) -> _Share:
    """Take the state; an error becomes a message, or the other ranks would wait for this one."""
    try:
        return _Share(metric.state_dict())
    except Exception as error:
        return _Share(None, f"{type(error).__name__}: {error}")


def _gather(share: _Share) -> list[_Share]:
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return [share]
    shares: list[_Share] = [share] * distributed.get_world_size()
    distributed.all_gather_object(shares, share)
    return shares
