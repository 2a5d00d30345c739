"""The one loader of everything: bytes to upright uint8 RGB, or an error that names the file."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import stat
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageFile, JpegImagePlugin

from genmetrics.core.errors import InputError, one_line
from genmetrics.core.sample import Decoded
from genmetrics.samples.pixels import Facts, facts_of, to_rgb
from genmetrics.samples.png import late_exif, slim
from genmetrics.samples.profile import png_is_srgb, profile_is_srgb

if TYPE_CHECKING:
    from torch import Tensor

_PLUGINS = {
    "JPEG": "Jpeg",
    "PNG": "Png",
    "WEBP": "WebP",
    "GIF": "Gif",
    "BMP": "Bmp",
    "TIFF": "Tiff",
    "PPM": "Ppm",
    "JPEG2000": "Jpeg2K",
    "AVIF": "Avif",
}
_Opener = tuple[Callable[..., Any], Callable[[bytes], bool | str]]


class _Jpeg(JpegImagePlugin.JpegImageFile):
    """Pillow's JPEG without the search for a resolution in EXIF, which warns of damaged EXIF."""

    def _read_dpi_from_exif(self) -> None:
        return


def _openers() -> dict[str, _Opener]:
    """Return format to Pillow's opener and its test of the first bytes.

    They are called without ``Image.open``, which warns of sizes between one and two times its limit
    (nothing silences a warning in one thread alone) and tries forty further formats, one of which
    starts Ghostscript.
    """
    found: dict[str, _Opener] = {}
    for name, plugin in _PLUGINS.items():
        with contextlib.suppress(ImportError):  # Pillow has AVIF from 11.3 on
            importlib.import_module(f"PIL.{plugin}ImagePlugin")
            found[name] = Image.OPEN[name]  # type: ignore[assignment]  # all these have a test
    # The JPEG factory would turn photos with a depth map or a preview into a multi-picture format.
    # Viewers show the first picture of these, and so does the plain class.
    found["JPEG"] = (_Jpeg, found["JPEG"][1])
    return found


_OPENERS = _openers()

# What Pillow still has to say of odd files (an APNG without frames, a TIFF with odd tags). Appended
# so that any filter of the user's wins; catch_warnings would swap the filters of other threads.
warnings.filterwarnings("ignore", module=r"PIL\.", append=True)

DAMAGE = (
    OSError,  # cut short, broken stream, unknown compression; UnidentifiedImageError
    SyntaxError,  # what Pillow's plugins raise for a header they cannot read
    ValueError,  # impossible sizes, palettes and modes; UnicodeError
    LookupError,  # IndexError and KeyError: tables and tags that are not there
    TypeError,  # a tag of another type than the standard says
    AttributeError,  # as TypeError
    AssertionError,  # what plugins take for granted of sound files
    ArithmeticError,  # division by a size of zero, an overflowing offset
    EOFError,
    MemoryError,  # a header that asks for more than there is
    RuntimeError,  # AVIF and JPEG 2000 decoders; NotImplementedError
    ImportError,  # a codec Pillow was built without, found out on use
    Warning,  # where the user turned warnings into errors
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""Everything Pillow was seen to raise, or by its source can raise, for bytes it cannot decode."""

_ORIENTATION = 0x0112  # tag of EXIF and TIFF
_TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a[::-1].swapaxes(0, 1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: a[:, ::-1].swapaxes(0, 1),
}
"""EXIF orientation to what makes ``(H, W, 3)`` upright."""


def load_image(path: str | os.PathLike[str]) -> Tensor:
    """Load an image file the way every metric sees it.

    Upright by its EXIF orientation; alpha composited on white; 16 bit scaled by 1/257; CMYK, YCbCr,
    LAB and palettes converted; grey replicated; of animations and multi-page files the first frame.
    ICC profiles are ignored, as other metric tools do: pixels stay as stored.

    Returns:
        uint8 tensor ``(3, H, W)``, RGB.

    Raises:
        InputError: The file is missing, damaged, or no image; the message names it and the reason.
    """
    return to_tensor(decode(read_file(path), os.fspath(path)).pixels)


def decode(data: bytes, name: str) -> Decoded:
    """Decode the bytes of an image file; :func:`load_image` says how. Thread-safe.

    The content decides, not the suffix. 16-bit grey becomes ``round(v / 257)``; of 16-bit colour
    Pillow gives the high byte, ``v >> 8``, which is at most one level less.

    Args:
        data: The whole file.
        name: What errors call it.

    Returns:
        uint8 pixels ``(H, W, 3)``, read-only, and the names of the conversions: ``"16bit"``,
        ``"32bit"``, ``"float"``, ``"1bit"``, ``"grayscale"``, ``"palette"``, ``"alpha_on_white"``
        (only where some pixel is not opaque), ``"cmyk"``, ``"ycbcr"``, ``"lab"``,
        ``"exif_rotated"``, ``"first_frame"``; and ``"profile_not_srgb"`` where the file says that
        its colours are others, which changes nothing.

    Raises:
        InputError: The bytes are cut short, damaged, too large for Pillow's guard against
            decompression bombs (``PIL.Image.MAX_IMAGE_PIXELS``), or no image. Nothing else.
    """
    with _errors_name(name):
        image = _open(io.BytesIO(data), name)
        if image.format == "JPEG2000":
            _require_end_of_codestream(data)
        return _convert(image, facts_of(image), lambda: _low_bytes(data, name))


def from_pillow(image: Image.Image, name: str) -> Decoded:
    """Convert an image that Pillow holds, as :func:`decode` does with a file.

    Raises:
        InputError: It cannot be decoded, or is of 16-bit colours of which one is transparent, whose
            low bits Pillow does not keep.
    """

    def low_bytes() -> np.ndarray:
        raise ValueError("it has 16-bit colours, of which Pillow keeps half; pass its file")

    with _errors_name(name):
        require_size(image.size, name)
        facts = Facts(image.mode, image.mode.startswith("I;16"))
        if isinstance(image, ImageFile.ImageFile) and image.tile:  # not loaded yet
            facts = facts_of(image)
        return _convert(image, facts, low_bytes)


def _convert(image: Image.Image, facts: Facts, low_bytes: Callable[[], np.ndarray]) -> Decoded:
    tag = _tiff_orientation(image)
    image.load()
    pixels, conversions = to_rgb(image, facts, low_bytes)
    if tag:
        conversions.append("exif_rotated")  # Pillow turns TIFF itself
    elif turn := _TURNS.get(_exif_orientation(_exif(image))):
        pixels = np.ascontiguousarray(turn(pixels))
        conversions.append("exif_rotated")
    if facts.animated:
        conversions.append("first_frame")
    if not _is_srgb(image):
        conversions.append("profile_not_srgb")
    return Decoded(pixels, tuple(conversions))


def image_size(source: bytes | str | os.PathLike[str], *, name: str = "image") -> tuple[int, int]:
    """Read width and height of the upright image from the header alone.

    Args:
        source: The bytes of the file, or its path.
        name: What errors call ``source`` if it is bytes.

    Raises:
        InputError: As :func:`decode`, as far as the header shows it.
    """
    if isinstance(source, bytes):
        return _header_size(io.BytesIO(source), name)
    with open_file(source) as file:
        return _header_size(file, os.fspath(source))


def to_tensor(pixels: np.ndarray) -> Tensor:
    """Copy pixels ``(H, W, 3)`` into a contiguous tensor ``(3, H, W)``."""
    import torch

    return torch.from_numpy(np.array(pixels.transpose(2, 0, 1), order="C"))


def open_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading.

    Raises:
        InputError: It is missing, a folder, not readable, or a pipe (which could block for ever).
    """
    name = os.fspath(path)
    try:
        kind = Path(name).stat().st_mode
        if stat.S_ISREG(kind):
            return Path(name).open("rb")
    except FileNotFoundError as error:
        link = " (a link to nowhere)" if Path(name).is_symlink() else ""
        raise InputError(f"{name}{link} does not exist; check the path") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{name} cannot be opened: {one_line(error)}") from error
    what = "a folder" if stat.S_ISDIR(kind) else "a pipe or device"
    raise InputError(f"{name} is {what}, not a regular file; pass an image file")


def read_file(path: str | os.PathLike[str], length: int = -1) -> bytes:
    """Read a regular file, or its first bytes; errors as :func:`open_file`."""
    with open_file(path) as file:
        try:
            return file.read(length)
        except (OSError, MemoryError) as error:
            raise InputError(f"{os.fspath(path)} cannot be read: {one_line(error)}") from error


def _open(file: IO[bytes], name: str, *, header: bool = False) -> ImageFile.ImageFile:
    """Recognise the format by its first bytes and read the header; pixels too unless ``header``."""
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise InputError(
            f"{name} was not read: this program set PIL.ImageFile.LOAD_TRUNCATED_IMAGES, so damaged"
            " images would be scored unnoticed; set it to False"
        )
    prefix = file.read(16)
    if not prefix:
        raise InputError(f"{name} is empty (0 bytes); write it again or remove it")
    for kind, (opener, accepts) in _OPENERS.items():
        verdict = accepts(prefix)
        if isinstance(verdict, str):
            raise InputError(f"{name} cannot be decoded: {verdict}")
        if verdict:
            file.seek(0)
            colour: Mapping[bytes, bytes] = {}
            if kind == "PNG":
                file, colour = slim(file, header=header)
            image: ImageFile.ImageFile = opener(file, "")
            image.info[_COLOUR] = colour
            require_size(image.size, name)
            return image
    raise InputError(
        f"{name} is not an image: it starts with {prefix[:12]!r}; readable formats are"
        f" {', '.join(_OPENERS)}"
    )


def require_size(size: tuple[int, int], name: str) -> None:
    """Refuse what Pillow's ``Image.open`` refuses: more than twice ``MAX_IMAGE_PIXELS``."""
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and size[0] * size[1] > 2 * limit:
        raise InputError(
            f"{name} claims {size[0]}×{size[1]} pixels, above Pillow's guard of {2 * limit}; if"
            " that is right, raise PIL.Image.MAX_IMAGE_PIXELS"
        )


@contextlib.contextmanager
def _errors_name(name: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(
            f"{name} cannot be decoded: {one_line(error)}; write it again or remove it"
        ) from error


def _header_size(file: IO[bytes], name: str) -> tuple[int, int]:
    with _errors_name(name):
        image = _open(file, name, header=True)
        width, height = image.size
        if image.format == "TIFF":  # Pillow's size is upright already
            return width, height
        exif = _exif(image)
        if image.format == "PNG" and not exif:
            exif = late_exif(file)
        return (height, width) if _exif_orientation(exif) >= 5 else (width, height)


def _low_bytes(data: bytes, name: str) -> np.ndarray:
    """Decode the low bytes of a PNG with 16 bits a colour, of which Pillow gives the high ones."""
    image = _open(io.BytesIO(data), name)
    image.tile = [tile._replace(args="RGB;16L") for tile in image.tile]  # the order of bytes turned
    image.load()
    return np.asarray(image)


def _is_srgb(image: Image.Image) -> bool:
    if colour := image.info.get(_COLOUR):
        return png_is_srgb(colour)
    profile = image.info.get("icc_profile")
    return not isinstance(profile, bytes) or profile_is_srgb(profile)


_COLOUR = "genmetrics_colour"  # where an opened PNG carries what it says of its colours


def _require_end_of_codestream(data: bytes) -> None:
    """Refuse a JPEG 2000 file that was cut: its decoder takes what is there.

    The markers for the start of data and the end of the codestream cannot occur within data.
    """
    end = data.rfind(b"\xff\xd9")
    if end == -1 or end < data.rfind(b"\xff\x93"):
        raise ValueError("image file is truncated (no end of codestream)")


def _tiff_orientation(image: Image.Image) -> bool:
    """Tell whether a TIFF asks to be turned; to be called before ``load`` does so."""
    tags = getattr(image, "tag_v2", None)
    return tags is not None and tags.get(_ORIENTATION) in _TURNS


def _exif(image: Image.Image) -> bytes:
    found = image.info.get("exif")
    return found if isinstance(found, bytes) else b""


def upright(exif: bytes) -> bool:
    """Tell whether an EXIF block leaves the picture as it lies."""
    return _exif_orientation(exif) == 1


def _exif_orientation(exif: bytes) -> int:
    """Read the orientation from an EXIF block; 1 (upright) where it has none or is damaged.

    Viewers show a picture with damaged EXIF as it lies, and Pillow's parser warns and raises there.
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, start)
        for entry in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", exif, entry)
            if tag == _ORIENTATION and kind == 3:  # a 16-bit number
                return int(value) if value in _TURNS else 1
    except struct.error:
        return 1
    return 1
