"""Ranks of a run: who does what, and how values travel.

A run is written once, for any number of ranks: :class:`Ranks` is a world of one process, in which
everything is at hand and nothing communicates; :class:`~genmetrics.run.group.Group` is one rank of
several. No rank ever blocks inside a collective for one that is late: it asks, several times a
second, whether all have arrived, and learns on the way that another has failed or is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple, Self, TypeVar

from genmetrics.core.device import cores, resolve_device
from genmetrics.core.threads import all_threads, threads

T = TypeVar("T")


class Claim(NamedTuple):
    """A piece of work that this rank, and no other, does."""

    position: int
    own: bool
    """Whether it was this rank's from the start, and not taken from a slower one."""


class Ranks:
    """A world of one process."""

    rank = 0
    world = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        """Leave; an error is told to the other ranks."""

    @property
    def main(self) -> bool:
        """Whether this is the rank that lists, decides and reports."""
        return self.rank == 0

    @property
    def cores(self) -> int:
        """CPU cores this rank may use while all work."""
        return cores()

    def device(self, asked: str) -> str:
        """Return the device of this rank."""
        return resolve_device(asked)

    def deciding(self) -> ExitStack:
        """Use all cores for the block: the other ranks sleep, and every world the same number."""
        stack = ExitStack()
        stack.enter_context(threads(all_threads()))
        return stack

    def gather(self, value: T, meanwhile: Callable[[], object] = lambda: None) -> list[T]:
        """Return every rank's value, in order of rank, on every rank.

        ``meanwhile`` is called again and again until the last rank has arrived.
        """
        return [value]

    def gather_to_main(self, value: T, meanwhile: Callable[[], object] = lambda: None) -> list[T]:
        """Return every rank's value, in order of rank, on the main rank; on the others nothing."""
        return [value]

    def share(self, make: Callable[[], T]) -> T:
        """Return what the main rank makes, on every rank; the main rank keeps the thing itself."""
        return make()

    def part(self, count: int) -> range:
        """Return this rank's contiguous part of ``count`` things."""
        return part_of(count, self.rank, self.world)

    def claims(self, count: int) -> Iterator[Claim]:
        """Yield positions below ``count``; over all ranks, each exactly once.

        A rank takes its own contiguous part first, in order, then what others have not begun.
        """
        return (Claim(position, own=True) for position in range(count))

    def check(self) -> None:
        """Raise if another rank has failed."""

    def flag(self) -> None:
        """Tell all ranks that the run is known to fail."""

    def flagged(self) -> bool:
        """Tell whether some rank has raised the flag."""
        return False

    def tally(self, count: int) -> int:
        """Count ``count`` things as done; return how many all ranks did since the last call."""
        return count


def part_of(count: int, rank: int, world: int) -> range:
    """Return one rank's contiguous part of ``count`` things."""
    return range(rank * count // world, (rank + 1) * count // world)


ALONE = Ranks()
