"""The manifest: every weight file genmetrics may ask for, with its addresses and its hash."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit

from genmetrics.core.errors import WeightsError

_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of ``manifest.toml``; the comment at its head says what the fields mean."""

    id: str
    kind: Literal["file", "hub", "package"]
    used_for: str
    licence: str
    sha256: str = ""
    bytes: int = 0
    urls: tuple[str, ...] = ()
    package: str = ""
    member: str = ""
    revision: str = ""
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def pinned(self) -> bool:
        """Whether the manifest says which content this is."""
        return bool(self.revision if self.kind == "hub" else self.sha256)

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names under which the file is published; the first is the one we store it under."""
        return tuple(dict.fromkeys(PurePosixPath(urlsplit(url).path).name for url in self.urls))


def manifest_path() -> Path:
    """Return the manifest in use: ``$GENMETRICS_MANIFEST`` (whole, not merged) or our own."""
    chosen = os.environ.get("GENMETRICS_MANIFEST")
    return Path(chosen).expanduser() if chosen else Path(__file__).with_name("manifest.toml")


def entries() -> dict[str, Entry]:
    """Return id to entry, in the manifest's order.

    Raises:
        WeightsError: The manifest is missing or says something that cannot be.
    """
    path = manifest_path()
    try:
        return dict(_parse(path, path.stat().st_mtime_ns))
    except OSError as error:
        raise WeightsError(f"weights manifest {path}: {error.strerror}") from error


@lru_cache(maxsize=8)
def _parse(path: Path, mtime_ns: int) -> dict[str, Entry]:
    del mtime_ns  # only there so that an edited manifest is read again
    try:
        with path.open("rb") as file:
            rows = tomllib.load(file)["weights"]
        found = [_entry(row) for row in rows]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"weights manifest {path}: {error}") from error
    return {entry.id: entry for entry in found}


def _entry(row: dict[str, Any]) -> Entry:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    entry = Entry(**fields)
    needed = {"file": entry.urls, "package": entry.package and entry.member, "hub": True}
    if not needed.get(entry.kind):
        raise ValueError(f"{entry.id!r}: kind {entry.kind!r} lacks what it needs")
    if entry.sha256 and not re.fullmatch(r"[0-9a-f]{8,64}", entry.sha256):
        raise ValueError(f"{entry.id!r}: sha256 {entry.sha256!r} is not 8 to 64 lower-case digits")
    for url in entry.urls:
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in _LOCAL_HOSTS:
            raise ValueError(f"{entry.id!r}: {url} is not https")
    return entry
