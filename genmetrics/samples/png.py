"""PNG files without what does not belong to the picture: texts, profiles, private chunks."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Mapping
from typing import IO

_NEEDED = (b"tRNS", b"eXIf", b"acTL", b"fcTL", b"fdAT")
"""Ancillary chunks that decide about pixels: transparency, orientation, which frame is first."""

_COLOUR = (b"cICP", b"iCCP", b"sRGB", b"gAMA", b"cHRM")
"""Chunks that say what the colours mean; they are looked at beside Pillow."""

_MOST = 1 << 20  # bytes kept of one of them


def slim(file: IO[bytes], *, header: bool = False) -> tuple[IO[bytes], Mapping[bytes, bytes]]:
    """Copy a PNG without chunks that do not decide about its pixels.

    Pillow refuses a file whose texts or profile unpack to more than a limit, are damaged, or have a
    wrong checksum. None of that concerns the picture. The rest, damage included, stays as it is.

    Args:
        file: The file, anywhere in it.
        header: Stop where the pixels begin, which is as much as opening reads.

    Returns:
        The copy, and the chunks before the pixels that say what the colours mean, cut after a MiB.
    """
    file.seek(8)
    kept = [b"\x89PNG\r\n\x1a\n"]
    colour: dict[bytes, bytes] = {}
    pixels = False
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        pixels = pixels or kind == b"IDAT"
        if pixels and header:
            kept.append(head)
            break
        if kind[:1].islower() and kind not in _NEEDED:
            end = file.tell() + length + 4
            if kind in _COLOUR and not pixels:
                colour.setdefault(kind, file.read(min(length, _MOST)))
            file.seek(end)
            continue
        kept += [head, file.read(length + 4)]
        if kind == b"IEND":
            break
    else:
        kept.append(head)
    return io.BytesIO(b"".join(kept)), colour


def late_exif(file: IO[bytes]) -> bytes:
    """Find an eXIf chunk behind the pixels, where exiftool writes it and opening does not look."""
    file.seek(8)
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if kind == b"eXIf":
            return file.read(length)
        file.seek(length + 4, os.SEEK_CUR)
    return b""
