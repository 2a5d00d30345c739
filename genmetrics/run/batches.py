"""Which samples are worked on together, whoever does the work and whatever was done before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from genmetrics.run.work import Place, Who

T = TypeVar("T")


class Batch(NamedTuple):
    """Samples that the same extractors (positions in the list of jobs) have not seen."""

    members: tuple[Who, ...]
    wanted: tuple[int, ...]


def cut(
    order: Sequence[Who], wanted: Mapping[Place, tuple[int, ...]], size: int
) -> Iterator[Batch]:
    """Cut the planned samples into batches that do not depend on what was done before.

    The cut is made over all planned samples, so a run that was killed and started again forms the
    same batches as one that was not, and so computes the same bits. Only pieces of which a part is
    known are taken apart; what they miss is joined into batches of its own.
    """
    rest: dict[tuple[int, ...], list[Who]] = {}
    for piece in pieces(order, size):
        wants = {wanted[who.place] for who in piece}
        if len(wants) == 1:
            (want,) = wants
            if want:
                yield Batch(piece, want)
            continue
        for who in piece:
            if wanted[who.place]:
                rest.setdefault(wanted[who.place], []).append(who)
    for want, members in rest.items():
        for piece in pieces(members, size):
            yield Batch(piece, want)


def pieces(members: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    """Cut into pieces of a size; the last one may be shorter."""
    for start in range(0, len(members), size):
        yield tuple(members[start : start + size])
