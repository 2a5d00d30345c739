"""Clips by handle: a folder whose pictures are the frames, in natural order of name."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Decoded
from genmetrics.samples.listing import list_folder, no_images, quoted, without_suffix
from genmetrics.samples.media import FileMedia


@dataclass(frozen=True, slots=True)
class FrameFolder:
    """A clip whose frames are the pictures of a folder."""

    path: str
    _digest: str | None = field(default=None, init=False, repr=False, compare=False)
    _frames: tuple[FileMedia, ...] = field(default=(), init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The path."""
        return self.path

    def digest(self) -> str:
        """Hex sha256 of the frames' contents, in order."""
        if self._digest is None:
            whole = hashlib.sha256()
            for media in self._media():
                whole.update(bytes.fromhex(media.digest()))
            object.__setattr__(self, "_digest", whole.hexdigest())
        assert self._digest is not None
        return self._digest

    def size(self) -> tuple[int, int]:
        """Width and height of the first frame."""
        return self._media()[0].size()

    def load(self) -> Decoded:
        """Decode the first frame, which stands for the clip in reports."""
        return self._media()[0].load()

    def frames(self) -> Iterator[Callable[[], Decoded]]:
        """Yield what decodes each frame.

        Raises:
            InputError: The folder cannot be read, holds no picture, or two of one name (``0.png``
                and ``0.jpg``), of which none is the first.
        """
        return (media.load for media in self._media())

    def ignored(self) -> Counter[str]:
        """Count the files of the folder that are no frames, by kind; no frame is opened."""
        try:
            return Counter(list_folder(Path(self.path)).ignored)
        except InputError:
            return Counter()  # it fails by name when its frames are read

    def _media(self) -> tuple[FileMedia, ...]:
        """Return the frames, listed once: each knows by its digest whether it was changed since."""
        if not self._frames:
            object.__setattr__(self, "_frames", self._list())
        return self._frames

    def _list(self) -> tuple[FileMedia, ...]:
        folder = Path(self.path)
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder of frames; check the path")
        listing = list_folder(folder)
        if not listing.images:
            raise no_images(folder, listing.seen)
        stems = Counter(without_suffix(name) for name, _ in listing.images)
        if len(stems) < len(listing.images):
            same = [name for name, _ in listing.images if stems[without_suffix(name)] > 1]
            raise InputError(
                f"{folder} holds {quoted(same)}, frames of one name in several formats; keep one"
                " of each"
            )
        return tuple(FileMedia(media.name) for _, media in listing.images)
