"""Manifests: a table that names each image and what belongs to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from genmetrics.core.errors import InputError
from genmetrics.core.fields import FIELDS, Field
from genmetrics.core.sample import Sample
from genmetrics.samples.clips import FrameFolder
from genmetrics.samples.kinds import is_image
from genmetrics.samples.listing import quoted, scan, unique_ids, without_suffix
from genmetrics.samples.media import FileMedia
from genmetrics.samples.names import nfc
from genmetrics.samples.tables import Row, cell, read_table


def read_manifest(path: Path) -> list[Sample]:
    """Read samples from ``file``, ``id``, and a column for each field that a sample may have.

    Paths are relative to the manifest; backslashes and another Unicode form are taken where a file
    is found by them alone. A row needs ``file`` or ``id``: without ``file`` the image
    is the one beside the manifest whose name is the id plus a suffix, without ``id`` the id is the
    path without suffix. Other columns are ignored. No image is opened: a missing one fails by name
    when it is checked.

    Raises:
        InputError: A row without ``file`` and ``id``, an id given twice, a cell of the wrong kind.
    """
    rows = read_table(path)
    folders = _Folders(path.parent)
    files = [_file(row, folders) for row in rows]
    given = [row.text("id") or None for row in rows]
    shown = [file or str(row.text("video")) for file, row in zip(files, rows, strict=True)]
    derived = iter(unique_ids([f for f, id_ in zip(shown, given, strict=True) if id_ is None]))
    ids = [next(derived) if id_ is None else id_ for id_ in given]
    first: dict[str, str] = {}
    for id_, row in zip(ids, rows, strict=True):
        if id_ in first:
            raise InputError(f"{row.where} gives id {id_!r} again (first: {first[id_]})")
        first[id_] = row.where
    return [
        _sample(row, id_, file, folders) for row, id_, file in zip(rows, ids, files, strict=True)
    ]


class _Folders:
    """Finds files beside a manifest; each folder is looked into once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: dict[str, list[str]] = {}
        self._images: dict[str, dict[str, list[str]]] = {}

    def place(self, name: str, where: str) -> str:
        """Return the path of a file: as written, else as another system wrote the name.

        Backslashes count as slashes, and letters in another Unicode form as the same letters.
        """
        found = str(self.root / name)
        if (name.isascii() and "\\" not in name) or os.path.lexists(found):
            return found
        inner = Path()
        for part in (self.root / name.replace("\\", "/")).parts:
            step = inner / part
            if not os.path.lexists(step):
                fits = [other for other in self.names(str(inner)) if nfc(other) == nfc(part)]
                if len(fits) > 1:
                    shown = f"{quoted(fits)} ({', '.join(map(ascii, fits))})"
                    raise InputError(
                        f"{where}: {name!r} fits {shown}, which differ only in Unicode form;"
                        " rename one"
                    )
                if not fits:
                    return found
                step = inner / fits[0]
            inner = step
        return str(inner)

    def names(self, folder: str) -> list[str]:
        """List a folder; empty where there is none."""
        if folder not in self._names:
            entries = scan(folder) if os.path.isdir(folder) else []  # noqa: PTH112  # never raises
            self._names[folder] = sorted(entry.name for entry in entries)
        return self._names[folder]

    def images(self, folder: str, name: str) -> list[str]:
        """List the images of a folder that have a name, with or without suffix."""
        if folder not in self._images:
            index = self._images[folder] = {}
            for image in filter(is_image, self.names(folder)):
                for key in {image, without_suffix(image)}:
                    index.setdefault(key, []).append(image)
        index = self._images[folder]
        if name in index or name.isascii():
            return index.get(name, [])
        return [image for key in index if nfc(key) == nfc(name) for image in index[key]]


def _file(row: Row, folders: _Folders) -> str | None:
    """Return the row's file; None for a row that has a clip, or an empty cell, in its place."""
    if file := row.text("file"):
        return file
    if row.text("video"):
        return None
    if not (id_ := row.text("id")):
        columns = ", ".join(row.cells) or "none"
        raise InputError(f"{row.where} has no 'file' and no 'id' (columns: {columns})")
    *parents, name = id_.split("/")
    matches = folders.images(folders.place("/".join(parents), row.where), name)
    if not matches and "video" in row.cells:
        return None  # an empty cell: whether the sample can be left out is not ours to say
    if len(matches) != 1:
        found = f"{quoted(matches)} all fit" if matches else "no image of that name"
        raise InputError(
            f"{row.where}: id {id_!r} names no file in {folders.root}: {found}; add 'file'"
        )
    return "/".join([*parents, matches[0]])


def _sample(row: Row, id_: str, file: str | None, folders: _Folders) -> Sample:
    def value(field: Field) -> Any:
        if not field.stored:
            return cell(row, field)
        name = file if field.name == "image" else row.text(field.name)
        if not name:
            return None
        place = folders.place(name, row.where)
        return FrameFolder(place) if field.kind == "clip" else FileMedia(place)

    return Sample(id=id_, **{name: value(field) for name, field in FIELDS.items()})
