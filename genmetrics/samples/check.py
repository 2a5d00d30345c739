"""Look at every file before a model loads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Media, Sample
from genmetrics.samples.media import StoredMedia

MEDIA = ("image", "reference", "mask")
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
    media.size()
    media.digest()


def _reasons(
    samples: Sequence[Sample], look: Callable[[Media], object], workers: int
) -> dict[str, str]:
    def reason(sample: Sample) -> str | None:
        try:
            for field in MEDIA:
                media = getattr(sample, field)
                if media is not None:
                    look(media)
        except InputError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(max(1, workers)) as pool:
        found = pool.map(reason, samples)
        return {s.id: why for s, why in zip(samples, found, strict=True) if why is not None}


def file_sizes(samples: Sequence[Sample]) -> dict[str, int | None]:
    """Return the size in bytes of each file that holds a picture of the samples.

    None stands for a file that cannot be found; an archive is one file.
    """
    media = [m for sample in samples for field in MEDIA if (m := getattr(sample, field))]
    files = dict.fromkeys(m.stored_in for m in media if isinstance(m, StoredMedia))
    return {file: _size(file) for file in files}


def _size(file: str) -> int | None:
    try:
        return os.stat(file).st_size  # noqa: PTH116
    except OSError:
        return None
