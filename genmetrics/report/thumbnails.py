"""Small pictures for the page, as data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable

from genmetrics.core.errors import GenmetricsError
from genmetrics.core.sample import Media
from genmetrics.report.columns import Samples
from genmetrics.samples.clips import FrameFolder
from genmetrics.samples.media import StoredMedia
from genmetrics.samples.reopen import reopen

SIDE = 96
"""Longest side in pixels."""


def thumbnails(samples: Samples, places: Iterable[int]) -> dict[int, str]:
    """Make small pictures of some samples, each once.

    Returns:
        Place to ``data:image/jpeg;base64,...``; what cannot be read any more is left out.
    """
    found: dict[int, Media] = {}
    closed: dict[int, str] = {}
    for place in dict.fromkeys(places):
        media = samples.media[place] if samples.media else None
        path = samples.paths[place]
        # of another kind (pictures that lie in memory) nobody could show it again: nor do we now
        if isinstance(media, StoredMedia | FrameFolder):
            found[place] = media
        elif path is not None:
            closed[place] = path
    opened = reopen(closed.values())
    found |= {place: media for place, path in closed.items() if (media := opened[path])}
    uris = {place: _data_uri(media) for place, media in found.items()}
    return {place: uri for place, uri in uris.items() if uri is not None}


def _data_uri(media: Media) -> str | None:
    from PIL import Image

    try:
        pixels = media.load().pixels
    except GenmetricsError:
        # moved or unreadable since the run: the page shows its name, the numbers stand
        return None
    image = Image.fromarray(pixels)
    image.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=72)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
