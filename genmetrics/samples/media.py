"""Pictures by handle: files, members of archives, rows of arrays. Cheap to make, safe in threads.

No handle holds an open file: each read opens, seeks and closes, which costs microseconds, needs no
lock, and lets handles be pickled to other processes.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from genmetrics.core.errors import InputError, one_line
from genmetrics.core.sample import Decoded
from genmetrics.samples.image import decode, image_size, read_file
from genmetrics.samples.unpack import unpacked

if TYPE_CHECKING:
    from torch import Tensor

Decoder = Callable[[bytes, str], "Tensor | None"]
"""A decoder beside Pillow: bytes and name of a file to its picture, or None if it is not for it."""

ZIP_STORED, ZIP_DEFLATED = 0, 8
_ZIP_HEADER = 30  # bytes before the name in a member's own header
_INFLATED = 4096  # bytes read to inflate the first few: tables come before data


@dataclass(frozen=True, slots=True)
class StoredMedia(ABC):
    """Encoded bytes that lie somewhere. The digest is computed once and kept."""

    _digest: str | None = field(default=None, init=False, repr=False, compare=False)
    _stamp: tuple[int, int, int] | None = field(default=None, init=False, repr=False, compare=False)
    """Size, time and inode of the file when its bytes were hashed."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What errors and reports call it."""

    @property
    def stored_in(self) -> str:
        """The file or archive that holds it."""
        return self.name.split("!")[0]

    @abstractmethod
    def read(self) -> bytes:
        """Return the stored bytes.

        Raises:
            InputError: They cannot be had; the message names the file or archive.
        """

    def head(self, length: int) -> bytes:
        """Return at most ``length`` bytes from the beginning; errors as :meth:`read`."""
        return self.read()[:length]

    def digest(self) -> str:
        """Hex sha256 of the stored bytes."""
        if self._digest is None:
            stamp = _stamp_of(self.stored_in)
            self._keep(stamp, self.read())
        assert self._digest is not None
        return self._digest

    def _keep(self, stamp: tuple[int, int, int] | None, data: bytes) -> None:
        """Remember the digest of the bytes, and the file's stamp from before they were read."""
        if self._digest is None:
            object.__setattr__(self, "_digest", self._sha256(data))
            object.__setattr__(self, "_stamp", stamp)

    def _sha256(self, data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    def look(self) -> None:
        """Open the header and compute the digest, from one reading.

        Raises:
            InputError: The file is missing, or no image by its header.
        """
        stamp = _stamp_of(self.stored_in)
        data = self.read()
        image_size(data, name=self.name)
        self._keep(stamp, data)

    def size(self) -> tuple[int, int]:
        """Width and height of the upright image."""
        return image_size(self.read(), name=self.name)

    def load(self) -> Decoded:
        """Decode to uint8 RGB ``(H, W, 3)``.

        Raises:
            InputError: Damaged, or not the content any more that :meth:`digest` told of: features
                are kept under the digest, and must never be those of other bytes.
        """
        return self._decode(self._unchanged(self.read()))

    def load_with(self, decoder: Decoder) -> Tensor | Decoded:
        """Decode as another decoder does, and as :meth:`load` where that one gives None.

        Raises:
            InputError: As :meth:`load`, or what the decoder says.
        """
        data = self._unchanged(self.read())
        found = decoder(data, self.name)
        return self._decode(data) if found is None else found

    def _decode(self, data: bytes) -> Decoded:
        return decode(data, self.name)

    def _is_same_file(self) -> bool:
        return self._stamp is not None and self._stamp == _stamp_of(self.stored_in)

    def _unchanged(self, data: bytes) -> bytes:
        """Give the bytes if they are those that were hashed.

        The same file by size, time and inode is the same content; only of another one the bytes are
        hashed again.
        """
        if self._digest is None or self._is_same_file():
            return data
        if self._sha256(data) != self._digest:
            raise InputError(
                f"{self.name} changed while the run was under way; run again when it is complete"
            )
        return data


@dataclass(frozen=True, slots=True)
class FileMedia(StoredMedia):
    """An image file."""

    path: str

    @property
    def name(self) -> str:
        """The path."""
        return self.path

    @property
    def stored_in(self) -> str:
        """The path."""
        return self.path

    def read(self) -> bytes:
        """Return the file's bytes."""
        return read_file(self.path)

    def head(self, length: int) -> bytes:
        """Read the first bytes alone."""
        return read_file(self.path, length)

    def size(self) -> tuple[int, int]:
        """Width and height of the upright image; reads the header alone."""
        return image_size(self.path)


@dataclass(frozen=True, slots=True)
class _Member(StoredMedia):
    archive: str
    member: str
    offset: int

    @property
    def name(self) -> str:
        """``archive!member``."""
        return f"{self.archive}!{self.member}"

    @property
    def stored_in(self) -> str:
        """The archive."""
        return self.archive

    def _damaged(self, how: str) -> InputError:
        return InputError(f"{self.name} {how}: the archive is damaged; create or copy it again")


@dataclass(frozen=True, slots=True)
class ZipMedia(_Member):
    """A member of a zip archive, stored or deflated.

    Attributes:
        offset: Where the member's own header begins.
        stored: Bytes in the archive.
        plain: Bytes of the file itself.
        method: 0 (stored) or 8 (deflated).
        crc: CRC-32 of the file itself; checked at each read.
    """

    stored: int
    plain: int
    method: int
    crc: int

    def read(self) -> bytes:
        """Return the member's bytes."""
        data = self._raw()
        if self.method == ZIP_DEFLATED:
            try:
                data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, self.plain + 1)
            except zlib.error as error:
                raise self._damaged(f"cannot be inflated ({error})") from error
        if len(data) != self.plain:
            raise self._damaged(f"has {len(data)} bytes where {self.plain} are declared")
        if zlib.crc32(data) != self.crc:
            raise self._damaged("does not match its checksum")
        return data

    def head(self, length: int) -> bytes:
        """Read, and inflate, the first bytes alone; without the checksum, which is for all."""
        data = self._raw(min(self.stored, length + _INFLATED))
        if self.method == ZIP_DEFLATED:
            try:
                return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, length)
            except zlib.error as error:
                raise self._damaged(f"cannot be inflated ({error})") from error
        return data[:length]

    def _raw(self, most: int | None = None) -> bytes:
        # Read directly: a ZipFile is not made for threads, and each one parses the whole directory.
        header = read_at(self.archive, self.offset, _ZIP_HEADER)
        if len(header) < _ZIP_HEADER or not header.startswith(b"PK\3\4"):
            raise self._damaged("has no header where the directory says")
        skip = sum(struct.unpack_from("<HH", header, 26))  # lengths of name and extra field
        length = self.stored if most is None else most
        return read_at(self.archive, self.offset + _ZIP_HEADER + skip, length)


@dataclass(frozen=True, slots=True)
class SpanMedia(_Member):
    """A run of bytes of a larger file: a member of a tar, a row of an Arrow file.

    Attributes:
        offset: Where the bytes begin in the (decompressed) file.
        length: How many there are.
        packed: The tar is compressed. It is unpacked once a process into a temporary file, since
            members of a compressed stream cannot be reached one by one.
    """

    length: int
    packed: bool = False

    def read(self) -> bytes:
        """Return the member's bytes."""
        if self.packed:
            data = unpacked(self.archive).read_at(self.offset, self.length)
        else:
            data = read_at(self.archive, self.offset, self.length)
        if len(data) != self.length:
            raise self._damaged(f"has {len(data)} bytes where {self.length} are declared")
        return data

    def head(self, length: int) -> bytes:
        """Read the first bytes alone."""
        length = min(length, self.length)
        if self.packed:
            return unpacked(self.archive).read_at(self.offset, length)
        return read_at(self.archive, self.offset, length)


@dataclass(frozen=True, slots=True)
class ArrayMedia(StoredMedia):
    """One row of a uint8 array ``(N, H, W, 3)`` in an npy or npz file.

    Attributes:
        archive: The file.
        row: Which row.
        shape: ``(H, W, 3)``.
        offset: Where row 0 begins, in the file or in its unpacked array.
        packed: The npz is compressed; unpacked once a process, as :class:`SpanMedia`.
    """

    archive: str
    row: int
    shape: tuple[int, int, int]
    offset: int
    packed: bool = False

    @property
    def name(self) -> str:
        """``archive!arr_0[row]``."""
        return f"{self.archive}!arr_0[{self.row}]"

    def read(self) -> bytes:
        """Return the row's bytes."""
        length = int(np.prod(self.shape))
        start = self.offset + self.row * length
        if self.packed:
            data = unpacked(self.archive).read_at(start, length)
        else:
            data = read_at(self.archive, start, length)
        if len(data) != length:
            raise InputError(f"{self.name} is cut short; create or copy {self.archive} again")
        return data

    def _sha256(self, data: bytes) -> str:
        """Hash shape and bytes: the same bytes in another shape are another picture."""
        return hashlib.sha256(f"{self.shape}".encode() + data).hexdigest()

    def look(self) -> None:
        """Compute the digest; a row has no header."""
        self.digest()

    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.shape[1], self.shape[0]

    def load_with(self, decoder: Decoder) -> Decoded:
        """Return the row: nothing is encoded."""
        return self.load()

    def _decode(self, data: bytes) -> Decoded:
        return Decoded(np.frombuffer(data, np.uint8).reshape(self.shape), ())


@dataclass(frozen=True, slots=True)
class MissingMedia(StoredMedia):
    """A row without a picture; it fails by name when it is read, instead of shrinking the set."""

    label: str
    reason: str

    @property
    def name(self) -> str:
        """The place where a picture should be."""
        return self.label

    def read(self) -> bytes:
        """Raise :class:`InputError`."""
        raise InputError(f"{self.label} {self.reason}")


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    """Return size, time of the last change and inode of a file; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  # a Path takes as long as the call
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def read_at(path: str, offset: int, length: int) -> bytes:
    """Read at most ``length`` bytes from ``offset`` of a file.

    Raises:
        InputError: The file cannot be read; the message names it.
    """
    try:
        # no larger buffer than what is asked for: shards hold many texts of a few bytes
        with open(path, "rb", buffering=max(2, min(length, 1 << 13))) as file:  # noqa: PTH123  # a Path takes as long as the read
            file.seek(offset)
            return file.read(length)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"{path} cannot be read: {one_line(error)}; check the path") from error
