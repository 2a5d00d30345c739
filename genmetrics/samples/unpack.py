"""Compressed archives, unpacked once a process into a temporary file that vanishes with it."""

from __future__ import annotations

import atexit
import bz2
import gzip
import lzma
import os
import shutil
import tempfile
import threading
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from genmetrics.core.errors import InputError, one_line

ARRAY = "arr_0.npy"  # the member of an npz that holds the images

UNPACK_ERRORS = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    NotImplementedError,  # a compression method zipfile does not know
    RuntimeError,  # an encrypted member
)
"""What the decompressors of the standard library raise for damaged archives."""

_LOCK = threading.Lock()
_FILES: OrderedDict[tuple[int, str, int], Unpacked] = OrderedDict()
_KEPT = 8
"""How many stay unpacked: of thousands of compressed shards only those in use take space."""


class Unpacked:
    """A temporary file that several threads read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()

    @contextmanager
    def exclusive(self) -> Iterator[IO[bytes]]:
        """Lend the file, at its beginning, to one thread."""
        with self._lock:
            self._file.seek(0)
            yield self._file

    def read_at(self, offset: int, length: int) -> bytes:
        """Read at most ``length`` bytes from ``offset``."""
        with self.exclusive() as file:
            file.seek(offset)
            return file.read(length)

    def close(self) -> None:
        """Close, and thereby delete, the file."""
        self._file.close()

    def __del__(self) -> None:
        self.close()


def unpacked(archive: str) -> Unpacked:
    """Return the decompressed content of a compressed tar, or the array of a compressed npz.

    The first caller of a process unpacks (temporary space: see ``TMPDIR``), the others wait. Only
    the few used last are kept.

    Raises:
        InputError: The archive is damaged, or the temporary space is full.
    """
    try:
        # A forked process would share the file position with its parent, hence the process id.
        key = (os.getpid(), archive, os.stat(archive).st_mtime_ns)  # noqa: PTH116
        with _LOCK:
            if key not in _FILES:
                while len(_FILES) >= _KEPT:
                    _FILES.popitem(last=False)  # closed when its last reader lets go of it
                _FILES[key] = Unpacked(_unpack(archive))
            _FILES.move_to_end(key)
            return _FILES[key]
    except UNPACK_ERRORS as error:
        raise InputError(
            f"{archive} cannot be unpacked to {tempfile.gettempdir()}: {one_line(error)}; create"
            " the archive again, or set TMPDIR to a larger disk"
        ) from error


@atexit.register
def _close_all() -> None:
    for found in _FILES.values():
        found.close()


def _unpack(archive: str) -> IO[bytes]:
    target = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
    try:
        with _stream(archive) as source:
            shutil.copyfileobj(source, target, 1 << 20)
    except BaseException:
        target.close()
        raise
    return target


def _stream(archive: str) -> IO[bytes]:
    lower = archive.lower()
    if lower.endswith(".npz"):
        return zipfile.ZipFile(archive).open(ARRAY)
    if lower.endswith((".bz2", ".tbz2")):
        return bz2.open(archive, "rb")
    if lower.endswith((".xz", ".txz")):
        return lzma.open(archive, "rb")
    return gzip.open(archive, "rb")  # type: ignore[return-value]  # a file object in all but name
