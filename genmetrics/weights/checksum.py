"""sha256 of files, computed once a process for each state of a file."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from genmetrics.core.errors import WeightsError


def sha256_of(path: Path) -> str:
    """Return the hex sha256 of a file. A file whose size or time changed is read again."""
    try:
        stat = path.stat()
        return _sum(path.resolve(), stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}; check the file") from error


@lru_cache(maxsize=4096)
def _sum(path: Path, size: int, mtime_ns: int) -> str:
    del size, mtime_ns  # part of the key only
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
