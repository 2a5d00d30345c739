"""Fetching: the only place that opens a connection, and only when the user asks for it."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from genmetrics.core.errors import WeightsError
from genmetrics.weights.checksum import sha256_of
from genmetrics.weights.files import (
    expected_sum,
    fault_of,
    record_sum,
    require,
    size_and_sum,
    target_of,
)
from genmetrics.weights.manifest import Entry
from genmetrics.weights.models import (
    WEIGHT_FILES,
    damaged_file,
    find_model,
    lacking_files,
    needs_of,
    parse_hub_id,
    require_model,
)
from genmetrics.weights.places import hub_cache, refuse_if_offline, weights_dir
from genmetrics.weights.references import PREFIX, entry_of

Received = Callable[[int, int], None]
"""Called with bytes done and bytes in all (0 when unknown)."""

_CHUNK = 1 << 20
_TIMEOUT = 30.0  # seconds without a byte


class _AddressError(Exception):
    """One address did not deliver; the text says why."""


def fetch(
    id: str,
    *,
    force: bool = False,
    accept_unpinned: bool = False,
    progress: Received | None = None,
) -> Path:
    """Get weights and return where they lie; what is already here and whole is not fetched again.

    Each address is tried in turn, through the proxies of the environment. The file goes to a
    temporary name under a lock (several processes may ask at once), is checked against size and
    sha256, flushed to disk and renamed: whatever happens, the final name never holds half a file.

    Args:
        id: Id in the manifest, or any hub id with an optional ``@revision`` (``$HF_ENDPOINT`` is
            honoured; the files go to the hub's cache), or ``clean-fid:NAME``.
        force: Fetch even if the file is here.
        accept_unpinned: Take a file whose sha256 the manifest does not know, and record the sum.
        progress: Hears how far a single file is.

    Raises:
        UsageError: Unknown id.
        WeightsError: Offline, a package that is not installed, no address that delivers the right
            file (the line lists each with its fault), or a disk that cannot be written.
    """
    if "/" in id:
        return _fetch_model(id, force)
    entry = entry_of(id)
    if entry.kind == "package":
        return require(id)  # its error says what to install
    fault = fault_of(entry)
    if not fault and not force:
        return require(id)
    # clean-fid publishes no sums, and its files are arrays of numbers: asking would be a ritual.
    if not (entry.pinned or accept_unpinned or id.startswith(PREFIX)):
        raise WeightsError(
            f"weights {id!r} have no known sha256: check the source ({' '.join(entry.urls)}) and"
            f" run `genmetrics weights fetch {id} --accept-unpinned`"
        )
    refuse_if_offline(fault or f"--force asks for {id} again")
    target = target_of(entry)
    try:
        _fetch_locked(entry, target, force, progress)
    except OSError as error:
        raise WeightsError(
            f"cannot write {target}: {error.strerror or error}; free the disk or set"
            " GENMETRICS_WEIGHTS to a directory that can be written"
        ) from error
    return target


def _fetch_locked(entry: Entry, target: Path, force: bool, progress: Received | None) -> None:
    from filelock import FileLock

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not force and _is_whole(entry, target):
            return  # another process was faster
        # A fixed name: what a killed process left behind is overwritten, never resumed.
        part = target.with_name(target.name + ".part")
        faults = []
        for url in entry.urls:
            try:
                sha256 = _download(entry, url, part, progress)
                if target.suffix == ".npz" and not zipfile.is_zipfile(part):
                    raise _AddressError("sent something else than an .npz archive")
                part.replace(target)
            except _AddressError as fault:
                faults.append(f"{url}: {fault}")
                continue
            finally:
                part.unlink(missing_ok=True)
            if not entry.pinned:
                record_sum(entry.id, sha256)
            return
    raise WeightsError(
        f"cannot fetch {entry.id!r}: {'; '.join(faults)}. Check proxy and firewall, or place the"
        f" file by hand at {target} ({size_and_sum(entry)})"
    )


def _download(entry: Entry, url: str, part: Path, progress: Received | None) -> str:
    digest, done = hashlib.sha256(), 0
    with part.open("wb") as out:
        for chunk, total in _chunks(url):
            out.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            if entry.bytes and done > entry.bytes:
                raise _AddressError(f"sends more than the expected {entry.bytes:,} bytes")
            if progress is not None:
                progress(done, entry.bytes or total)
        out.flush()
        os.fsync(out.fileno())
    if entry.bytes and done != entry.bytes:
        raise _AddressError(f"sent {done:,} of {entry.bytes:,} bytes")
    sha256 = digest.hexdigest()
    if not sha256.startswith(entry.sha256):
        raise _AddressError(f"sent another file: sha256 {sha256}, expected {entry.sha256}")
    return sha256


def _chunks(url: str) -> Iterator[tuple[bytes, int]]:
    """Yield pieces of the body and its announced length; every network fault becomes ours."""
    # imported here, so that `genmetrics list` and `show` do not load a network stack
    import http.client
    import urllib.error
    import urllib.request

    from genmetrics import __version__

    request = urllib.request.Request(url, headers={"User-Agent": f"genmetrics/{__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            total = response.length or 0
            done = 0
            while chunk := response.read(_CHUNK):
                done += len(chunk)
                yield chunk, total
            if done < total:
                raise _AddressError(f"broke off after {done:,} of {total:,} bytes")
    except urllib.error.HTTPError as error:
        error.close()
        raise _AddressError(f"{error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise _AddressError(str(error.reason)) from error
    except TimeoutError as error:
        raise _AddressError(f"timed out after {_TIMEOUT:g} s without a byte") from error
    except (OSError, http.client.HTTPException) as error:
        raise _AddressError(f"{type(error).__name__}: {error}") from error


def _is_whole(entry: Entry, path: Path) -> bool:
    return path.is_file() and sha256_of(path).startswith(expected_sum(entry))


def _fetch_model(model: str, force: bool) -> Path:
    name, revision = parse_hub_id(model)
    needs = needs_of(name) or (WEIGHT_FILES,)
    path = find_model(model).path
    damaged = path is not None and damaged_file(path) is not None
    if path is not None and not force and not damaged and not lacking_files(path, needs):
        return path
    refuse_if_offline(
        f"model {name}@{revision} is {'here in part' if path else 'missing'}: unset it, or copy the"
        f" files to {weights_dir() / name}"
    )
    try:
        folder = _snapshot_download(name, revision, force or damaged)
    except Exception as error:  # the hub client's errors have no common base over its versions
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise WeightsError(
            f"cannot fetch {name}@{revision} from {_endpoint()}: {reason}; check the id, proxy and"
            f" HF_ENDPOINT, or copy the files to {weights_dir() / name}"
        ) from error
    return require_model(f"{name}@{folder.name}", needs=needs)


def _snapshot_download(name: str, revision: str, force: bool) -> Path:
    from huggingface_hub import snapshot_download

    def get(patterns: list[str]) -> Path:
        return Path(
            str(
                snapshot_download(
                    name,
                    revision=revision,
                    cache_dir=hub_cache(),
                    endpoint=_endpoint(),
                    force_download=force,
                    allow_patterns=patterns,
                )
            )
        )

    folder = get(["*.json", "*.txt", "*.model", "*.safetensors"])
    if any(folder.glob("*.safetensors")):
        return folder
    return get(["*.bin", "*.pt", "*.pth"])  # an older repository: only then is the pickle fetched


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
