"""From what the user names (a folder, an archive, a manifest, an array) to samples."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from genmetrics.core.errors import InputError, UsageError, did_you_mean
from genmetrics.core.files import is_path
from genmetrics.core.sample import Sample
from genmetrics.core.state import natural_key
from genmetrics.samples.archives import ARCHIVES, is_archive, is_tar, list_archive, scan_tar
from genmetrics.samples.bundles import KINDS, Bundle, bundle_files, find_bundle, kind_of_shard
from genmetrics.samples.clips import FrameFolder
from genmetrics.samples.columns import read_columns
from genmetrics.samples.geneval import is_geneval, read_geneval
from genmetrics.samples.kinds import is_image
from genmetrics.samples.listing import (
    ListedSamples,
    Listing,
    is_hidden,
    list_folder,
    no_images,
    quoted,
    unique_ids,
)
from genmetrics.samples.manifest import read_manifest
from genmetrics.samples.memory import described, samples_in_memory
from genmetrics.samples.tables import TABLES, is_table
from genmetrics.samples.webdataset import is_webdataset, read_webdataset

Reader = Callable[[Path, bool, bool], ListedSamples]
"""Path, recursive, allow_missing to samples and what makes none."""


def read_samples(
    source: Any,
    *,
    recursive: bool = False,
    layout: str = "auto",
    limit: int | None = None,
    allow_missing: bool = False,
) -> list[Sample]:
    """Return the samples that :func:`list_samples` finds."""
    found = list_samples(
        source, recursive=recursive, layout=layout, limit=limit, allow_missing=allow_missing
    )
    return list(found.samples)


def list_samples(
    source: Any,
    *,
    name: str = "images",
    recursive: bool = False,
    layout: str = "auto",
    limit: int | None = None,
    allow_missing: bool = False,
) -> ListedSamples:
    """List the samples of a set; no image is opened.

    Args:
        source: A folder, a zip or tar archive, a ``.jsonl`` or ``.csv`` manifest, an ``.npz`` or
            ``.npy`` whose ``arr_0`` is uint8 ``(N, H, W, 3)``, or shards: WebDataset tars, Parquet
            or Arrow files, as a folder, a wildcard or a brace pattern (``set-{000..099}.tar``),
            behind which fields may be chosen (``data.parquet:image=edited``). Or what the program
            holds: see :data:`genmetrics.samples.memory.TAKEN`.
        name: What pictures are called that the program holds, with their number.
        recursive: Take the images of subfolders too.
        layout: A name of :data:`LAYOUTS`, or ``"auto"``: ``geneval`` where numbered folders carry
            metadata, else by what ``source`` is.
        limit: Keep only the first ones.
        allow_missing: Take a benchmark layout or shards although prompts lack images.

    Returns:
        Samples in natural order of id, and what is there and makes none. The id is the relative
        path without suffix (with it, where two files would share one), or the row's number.

    Raises:
        UsageError: An unknown layout or a limit below 1.
        InputError: Nothing there, or nothing that is an image; one line with path, number of files
            seen and accepted suffixes.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}; expected 1 or more")
    if is_path(source):
        found = _list_place(source, recursive, layout, allow_missing)
    elif layout in ("auto", "folder"):
        found = ListedSamples(samples_in_memory(source, name))
    else:
        raise UsageError(
            f"{name} is {described(source)}, not layout {_known(layout)!r}; drop layout="
        )
    samples = sorted(found.samples, key=lambda s: natural_key(s.id))
    for sample in samples:
        if not sample.id.isascii():
            _check_text(sample.id, described(source))
    return found._replace(samples=samples[:limit])


def _list_place(
    path: str | os.PathLike[str], recursive: bool, layout: str, allow_missing: bool
) -> ListedSamples:
    where = Path(path)
    bundle = find_bundle(os.fspath(path))
    if bundle is not None and layout not in ("auto", "folder"):
        raise UsageError(f"{where} names shards, not layout {_known(layout)!r}; drop --layout")
    if bundle is not None:
        return _read_bundle(bundle, allow_missing)
    if not os.path.exists(where):  # noqa: PTH110  # Path.exists raises without permission
        raise InputError(f"{where} does not exist (0 files seen); check the path")
    return LAYOUTS[_detect(where) if layout == "auto" else _known(layout)](
        where, recursive, allow_missing
    )


def _read_bundle(bundle: Bundle, allow_missing: bool) -> ListedSamples:
    """List the samples of shards, which are files of one kind."""
    first = kind_of_shard(bundle.files[0])
    other = [file for file in bundle.files if kind_of_shard(file) != first]
    if other or first is None:
        known = " ".join(suffix for kind in KINDS for suffix in KINDS[kind])
        shown = quoted([bundle.files[0], *other[:1]])
        raise InputError(f"{bundle.where}: {shown}; shards are files of one kind of {known}")
    if first == "tar":
        return read_webdataset(bundle.files, bundle.fields, allow_missing=allow_missing)
    return ListedSamples(read_columns(bundle.files, bundle.fields))


def _known(layout: str) -> str:
    if layout in PLANNED:
        raise UsageError(f"layout {layout!r} is not available yet; there is {', '.join(LAYOUTS)}")
    if layout not in LAYOUTS:
        names = ["auto", *LAYOUTS]
        raise UsageError(
            f"unknown layout {layout!r}{did_you_mean(layout, names)}; there is {', '.join(names)}"
        )
    return layout


def _detect(path: Path) -> str:
    if is_table(path) and path.is_file():
        return "manifest"
    return "geneval" if path.is_dir() and is_geneval(path) else "folder"


def _read_folder(path: Path, recursive: bool, allow_missing: bool) -> ListedSamples:
    files: list[str] = []
    listing = Listing([], 1)
    if path.is_dir():
        listing = list_folder(path, recursive=recursive)
        files = [] if listing.images else bundle_files(path)
    elif path.name.lower().endswith(_TABLES_OF_IMAGES):
        files = [str(path)]
    elif is_tar(path):
        members = scan_tar(path)
        if is_webdataset(members):
            where = [str(path)]
            return read_webdataset(where, allow_missing=allow_missing, scan=lambda _: members)
        listing = members.listing()
    elif is_archive(path):
        listing = list_archive(path)
    else:
        raise no_images(path, 1, f"; it is a single file, pass {_SINGLE}")
    if files:
        return _read_bundle(Bundle(str(path), files, {}), allow_missing)
    samples = _plain(path, listing, recursive)
    return ListedSamples(samples, listing.ignored, twice=listing.twice)


def _plain(path: Path, listing: Listing, recursive: bool) -> list[Sample]:
    if not listing.images:
        below = path.is_dir() and not recursive and _any_below(path)
        hint = (
            "; its subfolders hold images: pass --recursive, or, where each is a clip of frames, a"
            " manifest with a column video"
        )
        raise no_images(path, listing.seen, hint if below else "")
    ids = unique_ids([name for name, _ in listing.images])
    media = [image for _, image in listing.images]
    return [Sample(id=id_, image=image) for id_, image in zip(ids, media, strict=True)]


_TABLES_OF_IMAGES = (*KINDS["parquet"], *KINDS["arrow"])
_SINGLE = (
    f"a folder, an archive ({' '.join(ARCHIVES)}), a manifest ({' '.join(TABLES)}) or shards"
    f" ({' '.join(_TABLES_OF_IMAGES)})"
)


def _any_below(folder: Path) -> bool:
    walk = os.walk(folder)
    return any(is_image(name) and not is_hidden(name) for _, _, names in walk for name in names)


def _read_manifest(path: Path, recursive: bool, allow_missing: bool) -> ListedSamples:
    if not path.is_file():
        raise InputError(f"{path} is not a file; layout manifest expects {' or '.join(TABLES)}")
    samples = read_manifest(path)
    clips = (s.video for s in samples if isinstance(s.video, FrameFolder))
    ignored: Counter[str] = sum((clip.ignored() for clip in clips), Counter())
    return ListedSamples(samples, ignored)


def _read_geneval(path: Path, recursive: bool, allow_missing: bool) -> ListedSamples:
    if not path.is_dir() or not is_geneval(path):
        raise InputError(
            f"{path} is not laid out as GenEval: expected folders such as 00000 with metadata.jsonl"
            " and samples/0000.png"
        )
    found = read_geneval(path, allow_missing=allow_missing)
    if not found.samples:
        raise InputError(f"{path} holds no images: every samples/ folder is empty")
    return found


def _check_text(id_: str, where: str) -> None:
    """Refuse names that are no text: reports could not be written."""
    try:
        id_.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: the file name {id_!r} is not UTF-8; rename it") from error


LAYOUTS: dict[str, Reader] = {
    "folder": _read_folder,
    "manifest": _read_manifest,
    "geneval": _read_geneval,
}
"""Layout name to its reader; a further benchmark is one row here."""

PLANNED = ("vbench", "compbench")
