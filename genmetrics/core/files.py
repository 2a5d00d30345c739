"""Atomic writes: a file is there whole or not at all, whenever the process dies."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from genmetrics.core.errors import InputError

Content = bytes | str | Iterable[bytes]
"""What a file shall hold: whole, or piece by piece, of which only one is in memory at a time."""


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write under a temporary name in the same folder, fsync, rename; see :func:`write_together`.

    Raises:
        InputError: The folder cannot be made or written, or the disk is full; nothing is left.
    """
    write_together({path: data})


def write_together(files: Mapping[Path, Content]) -> None:
    """Write several files; none gets its name before all are on disk.

    Raises:
        InputError: As :func:`write_atomic`. What an iterable raises goes through, and nothing is
            left then either.
    """
    waiting: dict[Path, Path] = {}
    path = Path()
    try:
        for path, data in files.items():
            waiting[path] = _write_temporary(path, data)
        for path, temporary in waiting.items():
            temporary.replace(path)
    except BaseException as error:
        for temporary in waiting.values():
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        reason = error.strerror or str(error)
        raise InputError(f"{path} cannot be written: {reason}; choose another place") from error


def _write_temporary(path: Path, data: Content) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; what we write is meant to be shared like any other file
        temporary.chmod(0o666 & ~_UMASK)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _write(file: IO[bytes], data: Content) -> None:
    if isinstance(data, str | bytes):
        file.write(data.encode() if isinstance(data, str) else data)
        return
    for piece in data:
        file.write(piece)


def _read_umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


_UMASK = _read_umask()  # once: reading it sets it, for the whole process
