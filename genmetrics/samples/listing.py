"""Which files of a folder are images, in which order, under which id."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Media
from genmetrics.core.state import natural_key
from genmetrics.samples.media import FileMedia

SUFFIXES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".jpe",
    ".jfif",
    ".webp",
    ".gif",
    ".bmp",
    ".tif",
    ".tiff",
    ".avif",
    ".jp2",
    ".apng",
    ".ppm",
    ".pgm",
    ".pbm",
    ".pnm",
    ".pfm",
)
"""Suffixes that make a file an image, in any case. What it holds is seen when it is decoded."""


class Listing(NamedTuple):
    """Images with their relative names (POSIX, with suffix), and how many files were looked at."""

    images: Sequence[tuple[str, Media]]
    seen: int


def is_image(name: str) -> bool:
    """Tell by the suffix."""
    return name.lower().endswith(SUFFIXES)


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
    """List the images of a folder, each real file once, in natural order.

    Hidden files and folders are left out. Links are followed; where several names lead to one file,
    the file's own name counts, otherwise the first. A link to nowhere is listed: it fails by name
    when it is read, instead of shrinking the set.

    Raises:
        InputError: The folder cannot be read.
    """
    found: list[tuple[bool, str, str]] = []  # is a link, relative name, real path
    seen = 0
    pending = [("", str(folder))]
    visited = set()
    while pending:
        prefix, directory = pending.pop()
        real = os.path.realpath(directory)
        if real in visited:
            continue
        visited.add(real)
        for entry in scan(directory):
            name = prefix + entry.name
            link = entry.is_symlink()
            if os.path.isdir(entry.path) if link else entry.is_dir():  # noqa: PTH112  # never raises
                if recursive and not entry.name.startswith("."):
                    pending.append((f"{name}/", entry.path))
                continue
            seen += 1
            if is_image(entry.name) and not entry.name.startswith("."):
                target = os.path.realpath(entry.path) if link else f"{real}{os.sep}{entry.name}"
                found.append((link, name, target))
    found.sort(key=lambda row: (row[0], natural_key(row[1])))
    first: dict[str, str] = {}
    for _, name, target in found:
        first.setdefault(target, name)
    names = sorted(first.values(), key=natural_key)
    return Listing([(name, FileMedia(str(folder / name))) for name in names], seen)


def scan(directory: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, in no order; an :class:`InputError` if it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError as error:
        raise InputError(f"{os.fspath(directory)} cannot be listed: {error.strerror}") from error


def quoted(names: Sequence[str], *, cap: int = 10) -> str:
    """List names in one line, the first ``cap`` of them."""
    shown = ", ".join(repr(name) for name in names[:cap])
    return shown if len(names) <= cap else f"{shown} and {len(names) - cap} more"


def no_images(path: Path, seen: int, hint: str = "") -> InputError:
    """Return the error for a set without images."""
    files = "1 file" if seen == 1 else f"{seen} files"
    return InputError(
        f"{path} holds no images: {files} seen, accepted suffixes are {' '.join(SUFFIXES)}{hint}"
    )
