"""Look at every file before a model loads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Sample

MEDIA = ("image", "reference", "mask")


def check_media(samples: Sequence[Sample], *, workers: int = 8) -> dict[str, str]:
    """Open the header and compute the digest of every picture of every sample, in threads.

    A file that is cut short after a sound header is only found when it is decoded.

    Returns:
        Sample id to the reason, for those that cannot be read; in the order of ``samples``.
    """
    with ThreadPoolExecutor(workers) as pool:
        reasons = pool.map(_reason, samples)
        return {
            sample.id: reason
            for sample, reason in zip(samples, reasons, strict=True)
            if reason is not None
        }


def _reason(sample: Sample) -> str | None:
    try:
        for field in MEDIA:
            media = getattr(sample, field)
            if media is not None:
                media.size()
                media.digest()
    except InputError as error:
        return str(error)
    return None
