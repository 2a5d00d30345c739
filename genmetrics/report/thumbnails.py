"""Small pictures for the page, as data URIs."""

from __future__ import annotations

import base64
import io

from genmetrics.core.errors import GenmetricsError
from genmetrics.core.sample import Media

SIDE = 96
"""Longest side in pixels."""


class Thumbnails:
    """Makes each thumbnail once; pictures that cannot be decoded have none."""

    def __init__(self) -> None:
        self._made: dict[str, str | None] = {}

    def of(self, media: Media) -> str | None:
        """Return ``data:image/jpeg;base64,...``, or None when the file cannot be read any more."""
        if media.name not in self._made:
            self._made[media.name] = _data_uri(media)
        return self._made[media.name]


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
