"""Reference statistics that clean-fid publishes: which there are, and where its package has them.

The table is the one of clean-fid's documentation; file names, folder and address come from the
installed package. Nothing is fetched here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from genmetrics.core.errors import UsageError, WeightsError, did_you_mean
from genmetrics.weights.manifest import Entry, entries

PREFIX = "clean-fid:"

MODES: Mapping[str, str] = {
    "clean": "clean",
    "tf1": "legacy_tensorflow",
    "pytorch-fid": "legacy_pytorch",
}
"""Our name of a preprocessing to clean-fid's."""

_FEATURES = "-kid"

PUBLISHED: Mapping[str, int] = {
    "cifar10-32-train": 50_000,
    "cifar10-32-test": 10_000,
    "ffhq-1024-trainval": 50_000,
    "ffhq-256-trainval": 50_000,
    "ffhq-1024-trainval70k": 70_000,
    "ffhq-256-trainval70k": 70_000,
    "lsun_church-256-train": 50_000,
    "lsun_church-256-trainfull": 126_227,
    "lsun_horse-256-train": 50_000,
    "lsun_horse-256-trainfull": 2_000_340,
    "lsun_cat-256-train": 50_000,
    "lsun_cat-256-trainfull": 1_657_264,
    "afhq_cat-512-train": 5_153,
    "afhq_dog-512-train": 4_739,
    "afhq_wild-512-train": 4_738,
    "brecahad-512-train": 1_944,
    "metfaces-1024-train": 1_336,
    "horse2zebra-256-test": 140,
    "cat2dog-256-test": 500,
    # all features, not only their moments
    f"afhq_cat-512-train{_FEATURES}": 5_153,
    f"afhq_dog-512-train{_FEATURES}": 4_739,
    f"afhq_wild-512-train{_FEATURES}": 4_738,
    f"brecahad-512-train{_FEATURES}": 1_944,
    f"metfaces-1024-train{_FEATURES}": 1_336,
}
"""``DATASET-RESOLUTION-SPLIT`` to the number of images."""

_CLEAN_ONLY = ("lsun_church-256-trainfull", "lsun_horse-256-trainfull")


class Reference(NamedTuple):
    """One file of statistics: ``clean-fid:NAME``, or ``clean-fid:NAME@PROTOCOL``."""

    name: str
    protocol: str
    """Name of the preprocessing, a key of :data:`MODES`."""

    n: int

    @property
    def id(self) -> str:
        """The id that users write; ``clean`` goes without saying."""
        return f"{PREFIX}{self.name}" + (f"@{self.protocol}" if self.protocol != "clean" else "")

    @property
    def holds_features(self) -> bool:
        """Whether the file holds every image's features; the others hold their moments."""
        return self.name.endswith(_FEATURES)


def protocols_of(name: str) -> tuple[str, ...]:
    """Return the preprocessings for which clean-fid publishes a reference."""
    return ("clean",) if name in _CLEAN_ONLY else tuple(MODES)


def parse_reference(id: str) -> Reference:
    """Read ``clean-fid:NAME[@PROTOCOL]``.

    Raises:
        UsageError: clean-fid publishes no such statistics.
    """
    name, _, protocol = id.removeprefix(PREFIX).lower().partition("@")
    if name not in PUBLISHED:
        raise UsageError(
            f"clean-fid publishes no statistics {name!r}{did_you_mean(name, PUBLISHED)}; see"
            " `genmetrics weights list --references`"
        )
    known = protocols_of(name)
    if (protocol or "clean") not in known:
        raise UsageError(
            f"clean-fid publishes {name} for {', '.join(known)}, not for {protocol!r}"
            f"{did_you_mean(protocol, known)}; write {PREFIX}{name}[@PROTOCOL]"
        )
    return Reference(name, protocol or "clean", PUBLISHED[name])


def reference_entry(id: str) -> Entry:
    """Return what the manifest would say of a file that clean-fid publishes."""
    reference = parse_reference(id)
    folder, url = _place(reference)
    return Entry(
        id=reference.id,
        kind="file",
        used_for=f"--ref, {reference.n:,} images as {reference.protocol}",
        licence="not stated",
        urls=(url,),
        folders=(folder,),
    )


def entry_of(id: str) -> Entry:
    """Return one entry; those of clean-fid's references need not be in the manifest.

    Raises:
        UsageError: The manifest has no such id.
    """
    known = entries()
    if id not in known and id.startswith(PREFIX):
        return reference_entry(id)
    if id not in known:
        hint = did_you_mean(id, known)
        raise UsageError(f"weights {id!r} are unknown{hint}; see `genmetrics weights list`")
    return known[id]


class _AskedFor(Exception):
    """What clean-fid would have looked up or downloaded."""

    def __init__(self, folder: str, url: str) -> None:
        super().__init__(folder, url)
        self.folder, self.url = folder, url


def _place(reference: Reference) -> tuple[str, str]:
    """Ask clean-fid into which folder it puts a file, and from which address.

    One function of its own knows both, and downloads as well. So it is run among names of ours:
    what it calls to download notes the question, and it can reach nothing else.
    """
    import os

    import cleanfid
    from cleanfid import features

    def note(local_folder: str, url: str) -> None:
        raise _AskedFor(local_folder, url)

    known: dict[str, Any] = {"os": os, "cleanfid": cleanfid, "check_download_url": note}
    theirs = features.get_reference_statistics
    ask = FunctionType(theirs.__code__, known, theirs.__name__, theirs.__defaults__)
    name = reference.name.removesuffix(_FEATURES)
    dataset, resolution, split = name.rsplit("-", 2)
    metric = "KID" if reference.holds_features else "FID"
    try:
        ask(dataset, resolution, MODES[reference.protocol], split=split, metric=metric)
    except _AskedFor as asked:
        return asked.folder, asked.url
    except (NameError, TypeError) as error:
        raise WeightsError(
            f"{Path(features.__file__).parent} is not the clean-fid that genmetrics knows"
            f" ({error}); install clean-fid 0.1.35"
        ) from error
    raise AssertionError("clean-fid looked nothing up")
