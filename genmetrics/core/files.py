"""Atomic writes: a file is there whole or not at all, whenever the process dies."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from genmetrics.core.errors import InputError


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write under a temporary name in the same folder, fsync, rename.

    Raises:
        InputError: The folder cannot be made or written, or the disk is full; nothing is left.
    """
    payload = data.encode() if isinstance(data, str) else data
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            prefix=f".{path.name[:40]}.", suffix=".tmp", dir=path.parent
        )
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; what we write is meant to be shared like any other file
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise InputError(
            f"{path} cannot be written: {error.strerror}; choose another place"
        ) from error


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
