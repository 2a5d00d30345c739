"""Look at every file before a model loads."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from genmetrics.core.errors import InputError
from genmetrics.core.fields import FIELDS
from genmetrics.core.sample import Media, Sample
from genmetrics.samples.media import StoredMedia

T = TypeVar("T")

_SLICE = 64
NAMING = 15.0
"""Seconds a run that is known to fail goes on to decode files, to name those that are bad too."""


def check_media(samples: Sequence[Sample], *, workers: int = 8) -> dict[str, str]:
    """Open the header and compute the digest of every picture of every sample, in threads.

    A file that is cut short after a sound header is only found when it is decoded.

    Returns:
        Sample id to the reason, for those that cannot be read; in the order of ``samples``.
    """
    return _reasons(samples, _open, workers)


def decode_media(samples: Sequence[Sample], *, workers: int = 8) -> dict[str, str]:
    """Decode every picture of every sample, in threads, for at most :data:`NAMING` seconds.

    Returns:
        What :func:`check_media` does.
    """
    deadline = time.monotonic() + NAMING

    def decode(media: Media) -> None:
        if time.monotonic() < deadline:
            media.load()

    return _reasons(samples, decode, workers)


def _open(media: Media) -> None:
    if isinstance(media, StoredMedia):
        media.look()
    else:
        media.size()
        media.digest()


def _reasons(
    samples: Sequence[Sample], look: Callable[[Any], object], workers: int
) -> dict[str, str]:
    def reason(sample: Sample) -> str | None:
        try:
            for content in stored(sample):
                look(content)
        except InputError as error:
            return str(error)
        return None

    found = in_slices(samples, reason, workers)
    return {s.id: why for s, why in zip(samples, found, strict=True) if why is not None}


def in_slices(samples: Sequence[Sample], look: Callable[[Sample], T], workers: int) -> Iterator[T]:
    """Do something with every sample, in threads, and yield what comes out in order.

    A thread takes :data:`_SLICE` samples at a time, since handing over one costs as much as looking
    at it; and no more than a few slices wait at a time, so that memory does not grow with the set.
    """
    slices = (samples[i : i + _SLICE] for i in range(0, len(samples), _SLICE))
    waiting: deque[Future[list[T]]] = deque()
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for some in slices:
            waiting.append(pool.submit(lambda some: [look(sample) for sample in some], some))
            if len(waiting) > 2 * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def stored(sample: Sample) -> list[Any]:
    """Return what of a sample lies in files of its own."""
    return [value for name, value in sample.fields.items() if FIELDS[name].stored]


def file_sizes(samples: Sequence[Sample]) -> dict[str, int | None]:
    """Return the size in bytes of each file that holds a picture of the samples.

    None stands for a file that cannot be found; an archive is one file.
    """
    media = [content for sample in samples for content in stored(sample)]
    files = dict.fromkeys(m.stored_in for m in media if isinstance(m, StoredMedia))
    return {file: _size(file) for file in files}


def _size(file: str) -> int | None:
    try:
        return os.stat(file).st_size  # noqa: PTH116
    except OSError:
        return None
