"""Models that are directories: a local path, or a repository of the model hub in its local cache.

The cache belongs to the hub's client, and the client is asked what is in it, always with
``local_files_only``: no look-up is ever a request. What the client does not do is done here: files
are compared with the sums they are stored under.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from genmetrics.core.errors import UsageError, WeightsError
from genmetrics.core.protocol import canonical_json
from genmetrics.weights.checksum import sha256_of
from genmetrics.weights.manifest import entries
from genmetrics.weights.places import hub_cache, weights_dir

WEIGHT_FILES = "*.safetensors|*.bin|*.pt|*.pth"
NEEDS = ("config.json", WEIGHT_FILES)
"""What a model directory must hold, where neither the caller nor the manifest says more."""

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_CONTENT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".json", ".model"}
_CONTENT_NAMES = {"vocab.txt", "merges.txt"}


class LocatedModel(NamedTuple):
    """A model, and where it lies.

    ``name`` is the hub id, or the base name of a local path; ``revision`` the commit, None where
    there is none; ``sha256`` stands for the content of weights, configuration and tokenizer
    (``""`` when the model is missing).
    """

    name: str
    revision: str | None
    path: Path | None
    sha256: str


def locate_model(model: str | Path) -> LocatedModel:
    """Find a model on this machine.

    Args:
        model: A local directory (or a single file), or a hub id, or ``id@revision``. Ids of the
            manifest are looked up at its revision, others at ``main``. A copy placed by hand in
            ``weights_dir()/ORGANISATION/NAME`` comes before the hub's cache.

    Returns:
        The path, or None for a hub model that is not here.

    Raises:
        WeightsError: A path that does not exist.
        UsageError: Neither a path nor the form of a hub id.
    """
    found = find_model(model)
    return found if found.path is None else found._replace(sha256=content_sha256(found.path))


def find_model(model: str | Path) -> LocatedModel:
    """Do what :func:`locate_model` does without reading the files: ``sha256`` stays empty."""
    local = Path(model).expanduser()
    if str(model) and local.exists():  # "" would be the current directory
        return LocatedModel(local.resolve().name, None, local.resolve(), "")
    name, revision = parse_hub_id(model)
    by_hand = weights_dir() / name
    if by_hand.is_dir() and "@" not in str(model):
        return LocatedModel(name, None, by_hand, "")
    snapshot = _snapshot(name, revision)
    return LocatedModel(name, snapshot.name if snapshot else revision, snapshot, "")


def require_model(model: str | Path, *, needs: Sequence[str] = ()) -> Path:
    """Return the path of a model that is there and complete.

    Args:
        model: As for :func:`locate_model`.
        needs: Patterns the directory must hold, such as ``"tokenizer.json|vocab.json"`` (one of
            them); by default what the manifest says, else :data:`NEEDS`.

    Raises:
        WeightsError: The model, or one of its files, is missing or cut off; the line names the file
            and the command that fetches it.
    """
    located = find_model(model)
    if located.path is None:
        raise WeightsError(_missing(located))
    if located.path.is_file():
        return located.path
    lacking = lacking_files(located.path, needs or needs_of(located.name) or NEEDS)
    if lacking:
        raise WeightsError(
            f"{located.path / lacking[0]} is missing: copy it there{_or_fetch(located)}"
        )
    damaged = damaged_file(located.path)
    if damaged:
        raise WeightsError(
            f"{damaged} is damaged (its content does not have the sum it is stored under,"
            f" {damaged.readlink().name}): copy it again{_or_fetch(located)}"
        )
    return located.path


def parse_hub_id(model: str | Path) -> tuple[str, str]:
    """Split ``id@revision``; without a revision the manifest's is used, or ``"main"``."""
    text = str(model)
    name, _, revision = text.partition("@")
    if Path(text).is_absolute() or text.startswith((".", "~")) or name.count("/") > 1:
        raise WeightsError(f"model {text} does not exist; check the path")
    if not _HUB_ID.fullmatch(text):
        raise UsageError(f"model {text!r} is neither a path nor a hub id (ORG/NAME[@REVISION])")
    entry = entries().get(name)
    return name, revision or (entry.revision if entry else "") or "main"


def needs_of(name: str) -> tuple[str, ...]:
    """Return the patterns that the manifest says a model must hold."""
    entry = entries().get(name)
    return entry.files if entry else ()


def lacking_files(folder: Path, needs: Sequence[str]) -> list[str]:
    """List the patterns without a file, and the shards that an index names and the folder lacks."""
    lacking = [
        need for need in needs if not any(any(folder.glob(name)) for name in need.split("|"))
    ]
    # Loaders prefer safetensors, so where there are any the shards of the older format may lack.
    form = "safetensors" if any(folder.glob("*.safetensors*")) else "bin"
    for index in folder.glob(f"*.{form}.index.json"):
        try:
            shards = set(json.loads(index.read_text())["weight_map"].values())
        except (ValueError, KeyError, AttributeError) as error:
            raise WeightsError(f"{index} is damaged ({error}); copy or fetch it again") from error
        lacking += sorted(shard for shard in shards if not (folder / shard).exists())
    return lacking


def content_sha256(path: Path) -> str:
    """Hash what makes a model: names and sums of weights, configuration and tokenizer files.

    Readme files, hidden folders and the like are left out, so a copy of a repository has the hash
    of the original. A single file has its own sha256. Large files of the hub's cache are stored
    under theirs and are not read for it; :func:`require_model` compares the two.
    """
    if path.is_file():
        return sha256_of(path)
    names = {file.relative_to(path): file for file in path.rglob("*") if _is_content(file)}
    sums = {
        name.as_posix(): _stored_sum(file) or sha256_of(file)
        for name, file in names.items()
        if not any(part.startswith(".") for part in name.parts)
    }
    return hashlib.sha256(canonical_json(sums).encode()).hexdigest()


def _stored_sum(file: Path) -> str:
    name = file.readlink().name if file.is_symlink() else ""
    return name if re.fullmatch("[0-9a-f]{64}", name) else ""


def _is_content(file: Path) -> bool:
    named = file.suffix in _CONTENT_SUFFIXES or file.name in _CONTENT_NAMES
    return named and file.is_file()


def damaged_file(folder: Path) -> Path | None:
    """Return the first file of a hub snapshot whose content is not what its blob's name says.

    The cache stores large files under their sha256 and small ones under git's blob hash. Copies
    without links (other directories, some systems) have nothing to compare with.
    """
    for file in sorted(folder.rglob("*")):
        if file.is_symlink() and not _matches_blob_name(file, file.readlink().name):
            return file
    return None


def _matches_blob_name(file: Path, name: str) -> bool:
    if not file.exists():
        return False
    if re.fullmatch("[0-9a-f]{64}", name):
        return sha256_of(file) == name
    if re.fullmatch("[0-9a-f]{40}", name):
        content = file.read_bytes()
        header = f"blob {len(content)}\0".encode()
        # Git's own hash, not a matter of security.
        return hashlib.sha1(header + content, usedforsecurity=False).hexdigest() == name
    return True


def _snapshot(name: str, revision: str) -> Path | None:
    """Ask the hub's client for the folder of a revision; None where the cache has none."""
    folder = _cached(name, revision)
    if folder is not None or revision != "main":
        return folder
    # A cache that was filled by commit has no "main"; with one commit there is no doubt.
    commits = _cached_commits(name)
    return _cached(name, commits[0]) if len(commits) == 1 else None


def _cached(name: str, revision: str) -> Path | None:
    if not hub_cache().is_dir():
        return None  # without the import, which takes a quarter of a second
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        HFValidationError,
        LocalEntryNotFoundError,
    )

    try:
        # Given here, because the client reads the environment only when it is imported. Which
        # files must be there is decided by their use (require_model), so it need not look.
        found = snapshot_download(
            name,
            revision=revision,
            cache_dir=hub_cache(),
            local_files_only=True,
            ignore_patterns="*",
        )
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise UsageError(f"model {name!r} is no hub id: {error}") from error
    return Path(found)


def _cached_commits(name: str) -> list[str]:
    """List the commits of a model that the cache has."""
    if not hub_cache().is_dir():
        return []
    from huggingface_hub import scan_cache_dir

    return sorted(
        revision.commit_hash
        for repository in scan_cache_dir(hub_cache()).repos
        if (repository.repo_type, repository.repo_id) == ("model", name)
        for revision in repository.revisions
    )


def _or_fetch(located: LocatedModel) -> str:
    if located.revision is None:
        return " from the place the model came from"
    return f", or run `genmetrics weights fetch {located.name}@{located.revision}`"


def _missing(located: LocatedModel) -> str:
    others = _cached_commits(located.name)
    hint = f" (the cache has {', '.join(others)}; ask for ID@REVISION to use one)" if others else ""
    return (
        f"model {located.name}@{located.revision} is not in {hub_cache()}{hint}:"
        f" run `genmetrics weights fetch {located.name}@{located.revision}`, or copy its files to"
        f" {weights_dir() / located.name}, or pass a local directory"
    )
