"""Views: which parts of a sample an extractor reads, one after another.

A part is an item like any other: a frame is a picture, two neighbouring frames are a pair. So an
extractor of pictures works on clips as it is, and a clip of any length needs no more memory than
the parts that are under way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple

from genmetrics.core.errors import InputError, UsageError, did_you_mean, shown
from genmetrics.core.sample import Item

Load = Callable[[], Item]
"""Gives one part of a sample; it may decode, so it is called on a worker thread."""


class View(NamedTuple):
    """One way to cut samples into items.

    Attributes:
        name: What an extractor's spec calls it.
        reads: Field of an item to the field of the sample that it is made of; other fields come
            from those of their own name.
        also: Fields of the sample that say how to cut.
        loads: Gives the parts of a sample, in order.
        parts: Whether a sample may have any number of parts, so that its rows are ragged.
    """

    name: str
    reads: Mapping[str, str]
    also: tuple[str, ...]
    loads: Callable[[Item], Iterable[Load]]
    parts: bool = True

    def fields(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Fields of the sample behind an extractor's ``inputs``; their content keys the store."""
        return tuple(dict.fromkeys([*(self.reads.get(name, name) for name in inputs), *self.also]))


def _whole(item: Item) -> Iterator[Load]:
    yield lambda: item


def _part(item: Item, number: int, **fields: Any) -> Item:
    kept = {name: value for name, value in item.fields.items() if name != "video"}
    return Item(**{"id": item.id, "part": number, "names": item.names, **kept, **fields})


def _frames(item: Item) -> Iterator[Load]:
    for i, load in enumerate(item.video):

        def frame(i: int = i, load: Callable[[], Any] = load) -> Item:
            picture, conversions = load()
            return _part(item, i, image=picture, conversions=conversions)

        yield frame


def _frame_pairs(item: Item) -> Iterator[Load]:
    for i, (before, after) in enumerate(pairwise(map(_Once, item.video))):

        def pair(i: int = i, before: _Once = before, after: _Once = after) -> Item:
            (first, done), (second, done_after) = before(), after()
            conversions = tuple(dict.fromkeys([*done, *done_after]))
            return _part(item, i, image=second, reference=first, conversions=conversions)

        yield pair


class _Once:
    """Decodes a frame for the first pair that it is in, and keeps it for the second."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load: Callable[[], Any] | None = load
        self._found: Any = None
        self._lock = Lock()

    def __call__(self) -> Any:
        with self._lock:
            if self._load is not None:
                self._found, self._load = self._load(), None
            return self._found


def _crops(item: Item) -> Iterator[Load]:
    height, width = item.image.shape[-2:]
    for i, box in enumerate(_entries(item, "boxes")):
        if not isinstance(box, list) or len(box) != 4 or not all(map(_finite, box)):
            raise InputError(
                f"box {i} of {item.id!r} is {shown(repr(box))}; give [x1, y1, x2, y2], four finite"
                " numbers in pixels"
            )
        x1, y1, x2, y2 = map(round, box)
        if not (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height):
            raise InputError(
                f"box {i} of {item.id!r} is {box} in a picture of {width}x{height}; give"
                " [x1, y1, x2, y2] in pixels inside it"
            )
        picture = item.image[:, y1:y2, x1:x2]
        yield partial(_part, item, i, image=picture)


def _entries(item: Item, field: str) -> list[Any]:
    """Return the list that a field of an item must be."""
    entries: Any = _plain(getattr(item, field))
    if not isinstance(entries, list):
        raise InputError(f"{field} of {item.id!r} is {shown(repr(entries))}; give a list")
    return entries


def _plain(value: Any) -> Any:
    """Make lists of arrays, tensors and tuples, also inside lists; anything else stays."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _finite(value: Any) -> bool:
    # a comparison, since whole numbers beyond every float are no error yet
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _questions(item: Item) -> Iterator[Load]:
    for i, question in enumerate(_entries(item, "questions")):
        if not isinstance(question, str):
            raise InputError(f"question {i} of {item.id!r} is {shown(repr(question))}; give a text")
        yield partial(_part, item, i, question=question)


VIEWS = {
    view.name: view
    for view in (
        View("whole", {}, (), _whole, parts=False),
        View("frames", {"image": "video"}, (), _frames),
        View("frame_pairs", {"image": "video", "reference": "video"}, (), _frame_pairs),
        View("crops", {}, ("boxes",), _crops),
        View("questions", {"question": "questions"}, ("questions",), _questions),
    )
}


def view_of(name: str) -> View:
    """Return a view by name.

    Raises:
        UsageError: There is none of that name.
    """
    if name not in VIEWS:
        raise UsageError(
            f"view {name!r} is unknown{did_you_mean(name, VIEWS)}; there is {', '.join(VIEWS)}"
        )
    return VIEWS[name]
