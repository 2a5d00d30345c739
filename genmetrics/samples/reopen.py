"""Pictures by the names that reports give them, once the handles of the run are gone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from genmetrics.core.errors import GenmetricsError
from genmetrics.core.sample import Media
from genmetrics.samples.archives import is_archive, is_tar, list_archive, scan_tar
from genmetrics.samples.arrow import arrow_errors
from genmetrics.samples.bundles import KINDS
from genmetrics.samples.clips import FrameFolder
from genmetrics.samples.columns import open_table
from genmetrics.samples.media import FileMedia

_ROW = re.compile(r"(?s)(.+)\[(\d+)\]")


def media_of(path: str) -> Media | None:
    """Return a handle for what a sample's ``path`` names; see :func:`reopen`.

    Args:
        path: A file, a folder of frames, or a place in a file: ``archive.zip!member``,
            ``shard.tar!member``, ``images.npz!arr_0[3]``, ``rows.parquet!image[3]``.
    """
    return reopen([path])[path]


def reopen(paths: Iterable[str]) -> dict[str, Media | None]:
    """Find pictures again by name; each archive is listed once.

    Returns:
        A handle for each path; None where nothing of that name is there any more, or where it
        cannot be read.
    """
    found: dict[str, Media | None] = {}
    inside: dict[str, list[str]] = {}
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112  # never raises
            found[path] = FrameFolder(path)
        elif os.path.isfile(path):  # noqa: PTH113
            found[path] = FileMedia(path)
        else:
            found[path] = None
            file = _file_of(path)
            if file is not None:
                inside.setdefault(file, []).append(path)
    for file, names in inside.items():
        found |= _members(file, names)
    return found


def _file_of(path: str) -> str | None:
    """The file in which a place lies; names of files and members may hold ``!`` themselves."""
    ends = [match.start() for match in re.finditer("!", path)]
    return next((path[:end] for end in ends if os.path.isfile(path[:end])), None)  # noqa: PTH113


def _members(file: str, names: Sequence[str]) -> Mapping[str, Media]:
    try:
        if file.lower().endswith((*KINDS["parquet"], *KINDS["arrow"])):
            return _rows(file, names)
        if is_tar(Path(file)):
            members = scan_tar(Path(file))
            media: list[Media] = [*members.images.values(), *members.others.values()]
        elif is_archive(Path(file)):
            media = [each for _, each in list_archive(Path(file)).images]
        else:
            return {}
    except GenmetricsError:
        # damaged or gone since the run: there is no handle, which is what None says
        return {}
    wanted = set(names)
    return {each.name: each for each in media if each.name in wanted}


def _rows(file: str, names: Sequence[str]) -> dict[str, Media]:
    """Rows of a table: ``file!column[row]``."""
    with arrow_errors(file):
        table = open_table(file)
        columns: dict[str, list[Media]] = {}
        found: dict[str, Media] = {}
        for name in names:
            match = _ROW.fullmatch(name[len(file) + 1 :])
            if match is None or match[1] not in table.schema.names:
                continue
            if match[1] not in columns:
                columns[match[1]] = table.media(match[1])
            if int(match[2]) < len(columns[match[1]]):
                found[name] = columns[match[1]][int(match[2])]
    return found
