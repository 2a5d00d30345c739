"""Atomic writes: a file is there whole or not at all, whenever the process dies."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TypeGuard

from genmetrics.core.errors import InputError, UsageError

Content = bytes | str | Iterable[bytes]
"""What a file shall hold: whole, or piece by piece, of which only one is in memory at a time."""


# a drive (C:/) has one letter; Path makes one slash of two
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")


def is_path(source: object) -> TypeGuard[str | os.PathLike[str]]:
    """Tell whether something is named by where it lies, and is not at hand itself."""
    return isinstance(source, str | os.PathLike)


def require_local(
    what: str,
    path: str | os.PathLike[str],
    fix: str = "nothing is fetched: download it and pass the path",
) -> None:
    """Raise :class:`UsageError` if an address of the network stands where a path should.

    Args:
        what: What the path is for, such as ``"--ref"``; may be empty.
        path: As the user gave it. The slash that ``Path`` takes away is shown again.
        fix: What to do instead.
    """
    text = os.fspath(path)
    if _ADDRESS.match(text) and not os.path.lexists(text):
        shown = _ADDRESS.sub(r"\1://", text, count=1)
        raise UsageError(f"{what} {shown} is an address; {fix}".strip())


def write_atomic(path: Path, data: bytes | str, *, durable: bool = True) -> None:
    """Write under a temporary name in the same folder, fsync, rename; see :func:`write_together`.

    Args:
        path: The file.
        data: What it shall hold.
        durable: Whether to fsync. Without it the file is whole if the process dies, but may not be
            if the machine does.

    Raises:
        InputError: The folder cannot be made or written, or the disk is full; nothing is left.
    """
    write_together({path: data}, durable=durable)


def write_together(files: Mapping[Path, Content], *, durable: bool = True) -> None:
    """Write several files; none gets its name before all are on disk.

    Raises:
        InputError: As :func:`write_atomic`. What an iterable raises goes through, and nothing is
            left then either.
    """
    waiting: dict[Path, Path] = {}
    path = Path()
    try:
        for path, data in files.items():
            waiting[path] = _write_temporary(path, data, durable)
        for path, temporary in waiting.items():
            temporary.replace(path)
    except BaseException as error:
        for temporary in waiting.values():
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        reason = error.strerror or str(error)
        raise InputError(f"{path} cannot be written: {reason}; choose another place") from error


def _write_temporary(path: Path, data: Content, durable: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, data)
            file.flush()
            if durable:
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
