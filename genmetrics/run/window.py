"""Work done by threads ahead of whoever needs it, within a bound of bytes."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple


class Task(NamedTuple):
    """A piece of work, and what its reader wants to know of it."""

    tag: Any
    run: Callable[[], Any]


def ahead(
    pool: Executor,
    tasks: Iterable[Task | None],
    *,
    limit: int,
    most: int,
    size: Callable[[Any], int],
) -> Iterator[tuple[Any, Any]]:
    """Run tasks on threads and yield ``(tag, result)`` in their order.

    Tasks are taken only as room appears, so an endless stream of them needs no memory. How much a
    result will hold is not known before it is there: the largest so far stands for those under way.

    Args:
        pool: Whose threads run them.
        tasks: In order; drawn on the caller's thread. None among them: draw no more before all that
            were drawn have been read.
        limit: Bytes of results that may wait, at least one result.
        most: Tasks under way or waiting, whatever their size.
        size: Bytes of a result.
    """
    window = _Window(pool, iter(tasks), limit, most)
    try:
        window.fill()
        while window.waiting:
            tag, future = window.waiting.popleft()
            result = future.result()
            window.largest = max(window.largest, size(result))
            window.fill()
            yield tag, result
            del result, future  # or it would stay until the next one is there
            window.fill()
    finally:
        for _, future in window.waiting:
            future.cancel()


class _Window:
    def __init__(
        self, pool: Executor, source: Iterator[Task | None], limit: int, most: int
    ) -> None:
        self.waiting: deque[tuple[Any, Future[Any]]] = deque()
        self.largest = 0
        self._pool, self._source, self._limit, self._most = pool, source, limit, most
        self._paused = self._over = False

    def fill(self) -> None:
        """Start tasks while there is room."""
        room = self._most
        if self.largest:
            room = max(1, min(room, self._limit // self.largest))
        while not self._over and len(self.waiting) < room:
            if self._paused and self.waiting:
                return
            self._paused = False
            try:
                task = next(self._source)
            except StopIteration:
                self._over = True
                return
            if task is None:
                self._paused = True
            else:
                self.waiting.append((task.tag, self._pool.submit(task.run)))


def size_of(value: Any) -> int:
    """Bytes that a prepared input holds: those of its arrays and tensors."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(size_of, value))
    return sys.getsizeof(value)
