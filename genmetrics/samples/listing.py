"""Which files of a folder are images, in which order, under which id."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Media, Sample
from genmetrics.core.state import natural_key
from genmetrics.samples.kinds import (
    HEAD,
    SUFFIXES,
    is_image,
    is_unknown,
    kind_of,
    looks_like_picture,
)
from genmetrics.samples.media import FileMedia, StoredMedia


class Listing(NamedTuple):
    """Images with their relative names (POSIX, with suffix), and how many files were looked at."""

    images: Sequence[tuple[str, Media]]
    seen: int
    ignored: Mapping[str, int] = {}
    """How many files are no pictures, by kind; hidden ones do not count."""
    twice: Sequence[str] = ()
    """Names that an archive has more than once; of each the last member counts."""


class ListedSamples(NamedTuple):
    """The samples of a set, and what is in it and makes none."""

    samples: Sequence[Sample]
    ignored: Mapping[str, int] = {}
    """Files that are no pictures, by kind."""
    missing: Sequence[str] = ()
    """What has no image, by name, where that was allowed."""
    twice: Sequence[str] = ()
    """Names that an archive has more than once; of each the last member counts."""

    def notes(self, where: object) -> tuple[str, ...]:
        """Count the files that are no pictures, and the names that come twice; a line each."""
        return (*self._ignored(where), *self._twice(where))

    def _twice(self, where: object) -> tuple[str, ...]:
        if not self.twice:
            return ()
        names = "1 name comes" if len(self.twice) == 1 else f"{len(self.twice)} names come"
        return (f"{where}: {names} more than once ({quoted(self.twice)}); the last one counts",)

    def _ignored(self, where: object) -> tuple[str, ...]:
        if not self.ignored:
            return ()
        counts = sorted(self.ignored.items(), key=lambda row: (-row[1], row[0]))
        kinds = [f"{count} {kind}" for kind, count in counts[:_KINDS]]
        rest = sum(count for _, count in counts[_KINDS:])
        kinds += [f"{rest} of other kinds"] if rest else []
        total = sum(self.ignored.values())
        files = "1 file is" if total == 1 else f"{total} files are"
        return (f"{where}: {files} not read as images ({', '.join(kinds)})",)


_KINDS = 5  # of ignored files that a note names
_NAMED = 10  # names of a list that are written out


def is_hidden(name: str) -> bool:
    """Tell whether a name, or a folder of a relative name, begins with a dot."""
    return any(part.startswith(".") for part in name.removeprefix("./").split("/"))


def without_suffix(name: str) -> str:
    """Drop the suffix of an image, and no other: ``r_1.5`` stays whole."""
    return name[: name.rindex(".")] if is_image(name) else name


def unique_ids(names: Sequence[str]) -> list[str]:
    """Give each relative name its sample id: itself without suffix.

    Names that would share an id (``a.png``, ``a.jpg``) keep their suffix.
    """
    counts = Counter(map(without_suffix, names))
    taken = set(names)
    return [
        stem if counts[stem := without_suffix(name)] == 1 and stem not in taken else name
        for name in names
    ]


def list_folder(folder: Path, *, recursive: bool = False) -> Listing:
    """List the images of a folder, each name once, in natural order.

    Hidden files and folders are left out. Links are followed: a link to a file is an image of its
    own, a folder that is reached twice counts once, under its own name where it has one here. A
    link to nowhere is listed: it fails by name when it is read, instead of shrinking the set.
    Pictures are known by their suffix, or by their first bytes where the suffix says nothing.

    Raises:
        InputError: The folder cannot be read.
    """
    names: list[str] = []
    others: list[str] = []
    pending, linked = [("", str(folder))], list[tuple[str, str]]()
    visited = set()
    while pending or linked:
        if not pending:
            linked.sort(key=lambda place: natural_key(place[0]), reverse=True)
        prefix, directory = (pending or linked).pop()
        real = os.path.realpath(directory)
        if real in visited:
            continue
        visited.add(real)
        for entry in scan(directory):
            name = prefix + entry.name
            link = entry.is_symlink()
            if os.path.isdir(entry.path) if link else entry.is_dir():  # noqa: PTH112  # never raises
                if recursive and not entry.name.startswith("."):
                    (linked if link else pending).append((f"{name}/", entry.path))
            elif _is_picture(entry):
                names.append(name)
            else:
                others.append(name)
    names.sort(key=natural_key)
    ignored = Counter(kind_of(name) for name in others if not is_hidden(name))
    images = [(name, FileMedia(str(folder / name))) for name in names]
    return Listing(images, len(names) + len(others), ignored)


def _is_picture(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith("."):
        return False
    try:
        return is_image(entry.name) or begins_as_picture(entry.name, FileMedia(entry.path))
    except InputError:
        return False  # a pipe, or a link to nowhere, that no suffix calls a picture: it is counted


def begins_as_picture(name: str, media: StoredMedia) -> bool:
    """Tell by the first bytes of a file, which are only read where its suffix says nothing.

    Raises:
        InputError: They cannot be read.
    """
    return is_unknown(name) and looks_like_picture(media.head(HEAD))


def scan(directory: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, in no order; an :class:`InputError` if it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError as error:
        raise InputError(f"{os.fspath(directory)} cannot be listed: {error.strerror}") from error


def quoted(names: Sequence[str]) -> str:
    """List names in one line, the first ten of them."""
    shown = ", ".join(repr(name) for name in names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def no_images(path: Path, seen: int, hint: str = "") -> InputError:
    """Return the error for a set without images."""
    files = "1 file" if seen == 1 else f"{seen} files"
    return InputError(
        f"{path} holds no images: {files} seen, accepted suffixes are {' '.join(SUFFIXES)}{hint}"
    )
