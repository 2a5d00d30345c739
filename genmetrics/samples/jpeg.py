"""Plain JPEGs by a CUDA device's decoder: nvJPEG, through torchvision.

An option and never the default, because its pixels are not Pillow's: other rounding makes a level
or two, and where colour is stored at half the size, as in most files, edges of colour differ by
more.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from genmetrics.core.errors import InputError, MissingExtraError, UsageError, one_line
from genmetrics.samples.image import require_size, upright

if TYPE_CHECKING:
    from torch import Tensor

DecodeTogether = Callable[[list["Tensor"]], list["Tensor"]]
"""Encoded files (uint8, one-dimensional, on the CPU) in; pictures uint8 ``(3, H, W)`` out."""

_START, _END, _SCAN = 0xD8, 0xD9, 0xDA
_BASELINE, _PROGRESSIVE = 0xC0, 0xC2
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # kinds of coding
_EXIF, _ADOBE = 0xE1, 0xEE
_YCC = 1  # Adobe's number of the usual colours; with 0 the channels are red, green, blue


class Frame(NamedTuple):
    """What the header of a JPEG says of its pixels."""

    coding: int
    bits: int
    size: tuple[int, int]
    components: bytes
    """The number of each channel; 1, 2, 3 for luma and two of colour."""


class JpegDecoder:
    """Decodes plain JPEGs, and leaves every other file to Pillow. Thread-safe.

    Plain is what the decoder and Pillow read alike but for rounding: baseline or progressive, 8
    bits, luma and two of colour, upright, complete. Grey, CMYK, rotated, cut and other files are
    Pillow's. The decoder takes several files at a time much faster than one by one, so what threads
    ask for while it works is decoded in one call.
    """

    def __init__(self, decode: DecodeTogether) -> None:
        self._decode = decode
        self._lock = threading.Lock()
        self._waiting: list[tuple[Tensor, Future[Tensor]]] = []
        self._pool = ThreadPoolExecutor(1, "genmetrics-jpeg")

    def __call__(self, data: bytes, name: str) -> Tensor | None:
        """Decode one file; None if it is not plain.

        Raises:
            InputError: The decoder refuses a file that should be plain, or the picture is larger
                than :func:`~genmetrics.samples.image.decode` takes. The message names the file.
        """
        import torch

        frame = plain_frame(data)
        if frame is None:
            return None
        require_size(frame.size, name)
        encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        picture: Future[Tensor] = Future()
        with self._lock:
            self._waiting.append((encoded, picture))
        self._pool.submit(self._work)
        try:
            return picture.result()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise InputError(
                f"{name} cannot be decoded by nvJPEG: {one_line(error)}; write it again, or use"
                " decode 'pil'"
            ) from error

    def _work(self) -> None:
        """Decode all that wait; an earlier call may have left nothing."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        if taken:
            self._settle(taken)

    def _settle(self, taken: list[tuple[Tensor, Future[Tensor]]]) -> None:
        try:
            pictures = self._decode([encoded for encoded, _ in taken])
            settled = list(zip(taken, pictures, strict=True))  # else some would wait for ever
        except Exception as error:
            if len(taken) == 1:
                taken[0][1].set_exception(error)  # raised again where the picture is awaited
            else:  # one bad file fails the call
                for one in taken:
                    self._settle([one])
            return
        for (_, future), picture in settled:
            future.set_result(picture)


def plain_frame(data: bytes) -> Frame | None:
    """Read the header of a plain JPEG (see :class:`JpegDecoder`); None for any other file."""
    frame, at = None, 2
    if data[:2] != bytes((0xFF, _START)):
        return None
    while at + 4 <= len(data):
        mark, kind, length = struct.unpack_from(">BBH", data, at)
        if mark != 0xFF or length < 2:
            return None
        body = data[at + 4 : at + 2 + length]
        if kind == _SCAN:
            # no coded data holds this marker; a file without it was cut
            return frame if data.rfind(bytes((0xFF, _END))) > at else None
        if kind in _FRAMES:
            frame = _plain(kind, body)
            if frame is None:
                return None
        elif not _usual(kind, body):
            return None
        at += 2 + length
    return None


def _plain(kind: int, body: bytes) -> Frame | None:
    """Read the frame's header."""
    if kind not in (_BASELINE, _PROGRESSIVE) or len(body) != 6 + 3 * 3:
        return None
    bits, height, width, channels = struct.unpack_from(">BHHB", body)
    frame = Frame(kind, bits, (width, height), body[6::3])
    plain = bits == 8 and channels == 3 and frame.components == b"\1\2\3" and width and height
    return frame if plain else None


def _usual(kind: int, body: bytes) -> bool:
    """Tell whether a segment leaves the picture upright and its channels what they usually are."""
    if kind == _EXIF and body.startswith(b"Exif\0"):
        return upright(body)
    if kind == _ADOBE and body.startswith(b"Adobe"):
        return len(body) >= 12 and body[11] == _YCC
    return True


@cache
def nvjpeg(device: str) -> JpegDecoder:
    """Return the decoder of a CUDA device; one a process.

    Raises:
        UsageError: Another kind of device.
        MissingExtraError: torchvision has no decoder of JPEGs.
    """
    if not device.startswith("cuda"):
        raise UsageError(f"nvJPEG decodes on CUDA devices, not on {device}; use decode 'pil'")
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except ImportError as error:
        raise MissingExtraError("decode 'nvjpeg'", "torchvision") from error
    import torch

    own = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def decode(encoded: list[Tensor]) -> list[Tensor]:
        # torchvision writes into memory of the current stream from a stream of its own, without
        # waiting for what the current stream still reads there. So that memory must be nobody
        # else's: it comes from a stream that does nothing, and stays taken until the default
        # stream, where the pictures are used, is done with it.
        with torch.cuda.device(device), torch.cuda.stream(own):
            pictures: list[Tensor] = decode_jpeg(encoded, ImageReadMode.RGB, device=device)
        user = torch.cuda.default_stream(device)
        user.wait_stream(own)
        for picture in pictures:
            picture.record_stream(user)
        return pictures

    return JpegDecoder(decode)
