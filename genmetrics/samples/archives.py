"""What lies in an archive: zip, tar (also compressed), npy and npz."""

from __future__ import annotations

import contextlib
import posixpath
import struct
import tarfile
import tokenize
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np

from genmetrics.core.errors import InputError, one_line
from genmetrics.samples.image import open_file
from genmetrics.samples.kinds import is_image, is_unknown, kind_of
from genmetrics.samples.listing import Listing, begins_as_picture, is_hidden
from genmetrics.samples.media import (
    ZIP_DEFLATED,
    ZIP_STORED,
    ArrayMedia,
    SpanMedia,
    StoredMedia,
    ZipMedia,
)
from genmetrics.samples.tar_headers import Member, plain_members
from genmetrics.samples.unpack import ARRAY, UNPACK_ERRORS, unpacked

_PACKED_TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
TARS = (".tar", *_PACKED_TAR)
ARCHIVES = (".zip", *TARS, ".npz", ".npy")
_T = TypeVar("_T")
_LIST_ERRORS = (
    *UNPACK_ERRORS,
    tarfile.TarError,
    ValueError,
    LookupError,
    OverflowError,
    MemoryError,
    struct.error,
    # numpy reads the header of an array as a Python literal
    SyntaxError,
    TypeError,
    tokenize.TokenError,
    Warning,  # where the user turned warnings into errors
)
"""What zipfile, tarfile and numpy raise for damaged archives."""


class TarMembers(NamedTuple):
    """What lies in a tar, by name: images, other plain files, and how many files there are.

    ``twice`` are the names that more than one member has.
    """

    images: dict[str, SpanMedia]
    others: dict[str, SpanMedia]
    seen: int
    twice: Sequence[str] = ()

    def listing(self) -> Listing:
        """Return the images; of files whose suffix says nothing, the first bytes are read."""
        return _listing(self.images, self.others, self.seen, self.twice)


def is_archive(path: Path) -> bool:
    """Tell by the suffix."""
    return path.name.lower().endswith(ARCHIVES)


def is_tar(path: Path) -> bool:
    """Tell by the suffix."""
    return path.name.lower().endswith(TARS)


def list_archive(path: Path) -> Listing:
    """List the images of an archive.

    A zip or tar counts whole, at any depth. Pictures are known by their suffix, or by their first
    bytes where the suffix says nothing. Folders that all images share are no part of the names,
    so an archive of a folder has the same ids as the folder. Of two members with one name the later
    counts, as it would on unpacking, and the name is in ``twice``. Rows of an array are named by
    their number.

    Raises:
        InputError: The archive is damaged, or holds what cannot be read here.
    """
    if is_tar(path):
        return scan_tar(path).listing()
    return _listed(path, _list_zip if path.name.lower().endswith(".zip") else _list_array)


def scan_tar(path: Path) -> TarMembers:
    """List the members of a tar from their headers; the content of none is read.

    Hidden members are left out. Of two with one name the later counts; the name is in ``twice``.

    Raises:
        InputError: The archive is damaged, or a picture is a link that leads out of it.
    """
    return _listed(path, _scan_tar)


def _listed(path: Path, reader: Callable[[str], _T]) -> _T:
    open_file(path).close()  # missing, a folder, a pipe: the plain message
    try:
        return reader(str(path))
    except InputError:
        raise
    except _LIST_ERRORS as error:
        raise InputError(
            f"{path} is not a readable archive: {one_line(error)}; create or copy it again"
        ) from error


def _list_zip(archive: str) -> Listing:
    found: dict[str, StoredMedia] = {}
    others: dict[str, StoredMedia] = {}
    seen = 0
    twice: dict[str, None] = {}
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            seen += not info.is_dir()
            name = _name_in_zip(info)
            if info.is_dir() or not is_visible(name):
                continue
            picture = is_image(name)
            if picture or is_unknown(name):
                _require_plain(archive, info)
            chosen = found if picture else others
            if name in chosen:
                twice[name] = None
            chosen[name] = ZipMedia(
                archive,
                name,
                info.header_offset,
                info.compress_size,
                info.file_size,
                info.compress_type,
                info.CRC,
            )
    return _listing(found, others, seen, list(twice))


def _name_in_zip(info: zipfile.ZipInfo) -> str:
    """Return a member's name as its author meant it.

    The archiver of macOS writes UTF-8 without saying so, which by the standard would be code page
    437; some of Windows write backslashes.
    """
    name = info.filename
    if not name.isascii() and not info.flag_bits & _UTF_8:
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/") if info.create_system == _FAT else name


_UTF_8 = 0x800  # flag of a zip member
_FAT = 0  # the system that zip members of Windows name


def _require_plain(archive: str, info: zipfile.ZipInfo) -> None:
    if info.flag_bits & 1 or info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        how = "encrypted" if info.flag_bits & 1 else f"of method {info.compress_type}"
        raise InputError(f"{archive}!{info.filename} is {how}; archive the images with `zip -0 -r`")


def _scan_tar(archive: str) -> TarMembers:
    packed = archive.lower().endswith(_PACKED_TAR)
    if not packed:
        # without a buffer, which would read 8 KiB of each image with its header
        with Path(archive).open("rb", buffering=0) as raw:
            plain = plain_members(raw)
        if plain is not None:
            return _sorted_out(archive, plain)
    with (
        unpacked(archive).exclusive()
        if packed
        else Path(archive).open("rb", buffering=0) as stream,
        tarfile.open(fileobj=stream, mode="r:") as file,
    ):
        infos = list(file)
        members = {info.name.removeprefix("./"): info for info in infos}
        twice = _repeated(info.name for info in infos if not info.isdir())
        found = [_place(archive, info, members) for info in members.values() if not info.isdir()]
        # Listing stops without a word where a cut archive ends; a whole one ends with a zero block.
        stream.seek(file.offset)
        if any(block := stream.read(tarfile.BLOCKSIZE)) or len(block) < tarfile.BLOCKSIZE:
            raise ValueError("it has no end marker where the last file ends")
    return _sorted_out(archive, found, packed=packed)._replace(twice=twice)


def _place(archive: str, info: tarfile.TarInfo, members: dict[str, tarfile.TarInfo]) -> Member:
    """Say where a member's bytes are; of one without any the size is -1."""
    place = _behind_links(info, members)
    if place is not None:
        return Member(info.name, place.offset_data, place.size)
    if is_visible(info.name) and is_image(info.name):
        raise InputError(
            f"{archive}!{info.name} is a link or special file without content in the archive;"
            " create it with `tar --dereference`"
        )
    return Member(info.name, 0, -1)


def _sorted_out(archive: str, members: Sequence[Member], *, packed: bool = False) -> TarMembers:
    """Tell pictures from other files; of two with one name the later counts."""
    images: dict[str, SpanMedia] = {}
    others: dict[str, SpanMedia] = {}
    named = {member.name.removeprefix("./"): member for member in members}
    for name, offset, size in named.values():
        if size >= 0 and is_visible(name):
            chosen = images if is_image(name) else others
            chosen[name] = SpanMedia(archive, name, offset, size, packed)
    twice = _repeated(member.name for member in members) if len(named) < len(members) else []
    return TarMembers(images, others, len(named), twice)


def _repeated(names: Iterable[str]) -> list[str]:
    """Return the visible names that come more than once, each as the last member has it."""
    seen: dict[str, str] = {}
    twice: dict[str, None] = {}
    for name in names:
        plain = name.removeprefix("./")
        if plain in seen:
            twice[plain] = None
        seen[plain] = name
    return [seen[plain] for plain in twice if is_visible(plain)]


def _behind_links(
    info: tarfile.TarInfo, members: dict[str, tarfile.TarInfo]
) -> tarfile.TarInfo | None:
    """Return the member that holds the bytes; ``tar`` stores a file of two names only once."""
    place = info
    for _ in range(40):  # as many as systems follow
        if place.isreg() and not place.issparse():
            return place
        if not (place.islnk() or place.issym()):
            break
        base = "" if place.islnk() else posixpath.dirname(place.name)
        target = posixpath.normpath(posixpath.join(base, place.linkname)).removeprefix("./")
        if target not in members:
            break
        place = members[target]
    return None


def _listing(
    images: Mapping[str, StoredMedia],
    others: Mapping[str, StoredMedia],
    seen: int,
    twice: Sequence[str],
) -> Listing:
    found = dict(images)
    ignored: Counter[str] = Counter()
    for name, media in others.items():
        if begins_as_picture(name, media):
            found[name] = media
        else:
            ignored[kind_of(name)] += 1
    names = without_shared_folders(found)
    again = [name for name in twice if name in found]
    return Listing(list(zip(names, found.values(), strict=True)), seen, ignored, again)


def is_visible(name: str) -> bool:
    """Tell whether a member is neither hidden nor what macOS adds."""
    if "/" not in name:
        return not name.startswith(".")
    inner = "/".join(part for part in name.split("/") if part not in (".", ".."))
    return not is_hidden(inner) and "__MACOSX" not in name.split("/")


def without_shared_folders(names: Iterable[str]) -> list[str]:
    """Cut off the folders that all names begin with."""
    parts_of = [name.removeprefix("./").split("/") for name in names]
    folders = [parts[:-1] for parts in parts_of]
    depth = 0
    while folders and all(len(parts) > depth for parts in folders):
        if len({parts[depth] for parts in folders}) > 1:
            break
        depth += 1
    return ["/".join(parts[depth:]) for parts in parts_of]


def _list_array(archive: str) -> Listing:
    packed = False
    if archive.lower().endswith(".npy"):
        with Path(archive).open("rb") as file:
            shape, offset, end = _array_header(file, archive)
    else:
        packed, shape, offset, end = _npz_header(archive)
    n, height, width, channels = shape
    if n * height * width * channels > end - offset:
        raise InputError(
            f"{archive} declares {n} images of {height}×{width} but holds {end - offset} bytes;"
            " create or copy it again"
        )
    size = (height, width, channels)
    rows = [(str(row), ArrayMedia(archive, row, size, offset, packed)) for row in range(n)]
    return Listing(list(rows), 1)


def _npz_header(archive: str) -> tuple[bool, tuple[int, int, int, int], int, int]:
    """Return whether the array is compressed, its shape, its offset and its end."""
    with zipfile.ZipFile(archive) as file:
        names = [name.removesuffix(".npy") for name in file.namelist()]
        if ARRAY not in file.namelist():
            hint = "; statistics belong to --ref" if {"mu", "sigma"} <= set(names) else ""
            raise InputError(
                f"{archive} holds {', '.join(names) or 'nothing'} but not arr_0, the images as"
                f" uint8 (N, H, W, 3){hint}"
            )
        info = file.getinfo(ARRAY)
        with file.open(info) as member:
            shape, header, end = _array_header(member, archive, info.file_size)
        if info.compress_type == ZIP_STORED:
            with file.open(info) as member:  # to its end, where zipfile compares the checksum
                while member.read(1 << 24):
                    pass
    if info.compress_type != ZIP_STORED:
        return True, shape, header, end
    with Path(archive).open("rb") as plain:
        plain.seek(info.header_offset + 26)
        lengths = plain.read(4)
    start = info.header_offset + 30 + sum(np.frombuffer(lengths, "<u2").tolist())
    return False, shape, start + header, start + end


def _array_header(
    file: IO[bytes], name: str, end: int | None = None
) -> tuple[tuple[int, int, int, int], int, int]:
    """Read shape, offset of the data and end of file; nothing is unpickled."""
    version = np.lib.format.read_magic(file)
    read: Any = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, fortran, dtype = read(file)
    if dtype != np.uint8 or len(shape) != 4 or shape[3] != 3 or fortran or 0 in shape:
        order = " in Fortran order" if fortran else ""
        raise InputError(
            f"{name} holds {dtype} {shape}{order}; expected images as uint8 (N, H, W, 3)"
        )
    offset = file.tell()
    return shape, offset, file.seek(0, 2) if end is None else end
