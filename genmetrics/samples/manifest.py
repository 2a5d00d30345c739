"""Manifests: a table that names each image and what belongs to it."""

from __future__ import annotations

from pathlib import Path

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Sample
from genmetrics.samples.kinds import is_image
from genmetrics.samples.listing import quoted, scan, unique_ids, without_suffix
from genmetrics.samples.media import FileMedia
from genmetrics.samples.tables import Row, read_table


def read_manifest(path: Path) -> list[Sample]:
    """Read samples from ``file``, ``id``, ``prompt``, ``reference``, ``mask`` and ``spec``.

    Paths are relative to the manifest. A row needs ``file`` or ``id``: without ``file`` the image
    is the one beside the manifest whose name is the id plus a suffix, without ``id`` the id is the
    path without suffix. Other columns are ignored. No image is opened: a missing one fails by name
    when it is checked.

    Raises:
        InputError: A row without ``file`` and ``id``, an id given twice, a cell of the wrong kind.
    """
    rows = read_table(path)
    names: dict[Path, list[str]] = {}
    files = [_file(row, path.parent, names) for row in rows]
    given = [row.text("id") or None for row in rows]
    derived = iter(unique_ids([f for f, id_ in zip(files, given, strict=True) if id_ is None]))
    ids = [next(derived) if id_ is None else id_ for id_ in given]
    first: dict[str, str] = {}
    for id_, row in zip(ids, rows, strict=True):
        if id_ in first:
            raise InputError(f"{row.where} gives id {id_!r} again (first: {first[id_]})")
        first[id_] = row.where
    return [
        _sample(row, id_, file, path.parent)
        for row, id_, file in zip(rows, ids, files, strict=True)
    ]


def _file(row: Row, folder: Path, names: dict[Path, list[str]]) -> str:
    """Return the row's file; ``names`` remembers the images of the folders looked into."""
    if file := row.text("file"):
        return file
    if not (id_ := row.text("id")):
        columns = ", ".join(row.cells) or "none"
        raise InputError(f"{row.where} has no 'file' and no 'id' (columns: {columns})")
    *parents, name = id_.split("/")
    inside = folder.joinpath(*parents)
    if inside not in names:
        entries = scan(inside) if inside.is_dir() else []
        names[inside] = sorted(entry.name for entry in entries if is_image(entry.name))
    matches = [n for n in names[inside] if name in (n, without_suffix(n))]
    if len(matches) != 1:
        found = f"{quoted(matches)} all fit" if matches else "no image of that name"
        raise InputError(f"{row.where}: id {id_!r} names no file in {folder}: {found}; add 'file'")
    return "/".join([*parents, matches[0]])


def _sample(row: Row, id_: str, file: str, folder: Path) -> Sample:
    def media(column: str) -> FileMedia | None:
        name = row.text(column)
        return FileMedia(str(folder / name)) if name else None

    return Sample(
        id=id_,
        image=FileMedia(str(folder / file)),
        prompt=row.text("prompt"),
        reference=media("reference"),
        mask=media("mask"),
        spec=row.object("spec"),
    )
