"""Reference statistics on disk: arrays with the fingerprint of what made them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from genmetrics.core.errors import InputError, ProtocolMismatchError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.files import write_atomic
from genmetrics.core.protocol import canonical_json, differences, fingerprint_of

SCHEMA = "genmetrics.statistics/1"


class StatisticsEntry(NamedTuple):
    """What one extractor found in a reference set.

    ``arrays`` holds ``"OUTPUT.mean"`` and ``"OUTPUT.cov"`` (ddof 1), or ``"OUTPUT.features"`` with
    one row an image. ``extractor`` is the extractor's protocol; None if it is not known.
    """

    extractor: Mapping[str, Any] | None
    n: int
    arrays: Mapping[str, np.ndarray]
    source: str

    @property
    def verified(self) -> bool:
        """Whether it is known what made the arrays."""
        return self.extractor is not None


class Statistics(NamedTuple):
    """A statistics file: one entry an extractor."""

    entries: tuple[StatisticsEntry, ...]
    source: str
    digest: str
    """``"sha256:..."`` of the file."""

    remedy: str = "build it again with `genmetrics stats build`"
    """What to do where another protocol is needed."""

    def entry(self, spec: ExtractorSpec) -> StatisticsEntry:
        """Return the entry made by this extractor; an unverified one serves any.

        Raises:
            ProtocolMismatchError: None was; the message lists the fields that differ.
        """
        wanted = spec.to_dict()
        for entry in self.entries:
            if entry.extractor is None or entry.extractor == wanted:
                return entry
        unlike = min(
            (differences(wanted, entry.extractor or {}) for entry in self.entries), key=len
        )
        raise ProtocolMismatchError(
            f"{self.source} was made by another protocol: {'; '.join(unlike)} (this run against"
            f" the file); {self.remedy}"
        )


def is_statistics(path: Path) -> bool:
    """Tell a statistics file from a set of images by its name and keys."""
    if path.suffix == ".safetensors":
        return path.is_file()
    return path.suffix == ".npz" and path.is_file() and "mu" in _npz_keys(path)


def write_statistics(path: Path, entries: Sequence[StatisticsEntry]) -> None:
    """Write entries atomically: a temporary name, fsync, rename."""
    from safetensors.numpy import save

    from genmetrics import __version__

    described = []
    arrays: dict[str, np.ndarray] = {}
    for i, entry in enumerate(entries):
        plain = {name: np.ascontiguousarray(array) for name, array in entry.arrays.items()}
        described.append(
            {
                "extractor": entry.extractor,
                "fingerprint": fingerprint_of(entry.extractor),
                "n": entry.n,
                "arrays": {name: _sha256(array) for name, array in sorted(plain.items())},
            }
        )
        arrays |= {f"{i}.{name}": array for name, array in plain.items()}
    header = {"schema": SCHEMA, "genmetrics": __version__, "entries": described}
    write_atomic(path, save(arrays, metadata={"genmetrics": canonical_json(header)}))


def read_statistics(path: str | Path, *, allow_unverified: bool = False) -> Statistics:
    """Read a statistics file.

    Args:
        path: A ``.safetensors`` file of ``stats build``, or another tool's ``.npz`` with ``mu`` and
            ``sigma``.
        allow_unverified: Accept such an npz, which does not say what made it.

    Raises:
        InputError: Missing, damaged, of another schema, or an npz without ``allow_unverified``.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is not a file; pass a statistics file of `stats build`")
    if path.suffix == ".npz":
        return _read_npz(path, allow_unverified)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            header = json.loads((file.metadata() or {}).get("genmetrics", "null"))
            if not isinstance(header, dict) or header.get("schema") != SCHEMA:
                raise InputError(
                    f"{path} is not a statistics file of genmetrics (schema {SCHEMA}); make one"
                    " with `genmetrics stats build`"
                )
            entries = tuple(
                StatisticsEntry(
                    extractor=dict(described["extractor"]),
                    n=int(described["n"]),
                    arrays=_sound_arrays(file, i, described["arrays"]),
                    source=str(path),
                )
                for i, described in enumerate(header["entries"])
            )
        if not entries:
            raise ValueError("it holds no entry")
    except InputError:
        raise
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error}); build it again") from error
    return Statistics(entries, str(path), digest_of(path))


def _sound_arrays(file: Any, i: int, sums: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Read the arrays of one entry, each against its own hash."""
    arrays = {name: file.get_tensor(f"{i}.{name}") for name in sums}
    for name, array in arrays.items():
        if _sha256(array) != sums[name]:
            raise ValueError(f"{name} does not have the sha256 it was written with")
    return arrays


def _sha256(array: np.ndarray) -> str:
    """Hash dtype, shape and content."""
    digest = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _npz_keys(path: Path) -> list[str]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return list(file.files)
    except (OSError, ValueError, BadZipFile):
        return []


def _read_npz(path: Path, allow_unverified: bool) -> Statistics:
    if "mu" not in _npz_keys(path) or "sigma" not in _npz_keys(path):
        raise InputError(f"{path} holds no mu and sigma; pass a statistics file")
    if not allow_unverified:
        raise InputError(
            f"{path} does not say which protocol made it; pass --allow-unverified-ref to use it, or"
            " make one with `genmetrics stats build`"
        )
    entry = StatisticsEntry(None, 0, read_moments(path, "*"), str(path))
    return Statistics((entry,), str(path), digest_of(path))


def read_moments(path: Path, output: str) -> dict[str, np.ndarray]:
    """Read ``mu`` and ``sigma`` of another tool's ``.npz``; nothing is unpickled.

    Args:
        path: The file.
        output: The extractor's output they are of, such as ``"2048"``.

    Returns:
        ``"OUTPUT.mean"`` ``(d,)`` and ``"OUTPUT.cov"`` ``(d, d)`` in float64, as in
        :class:`StatisticsEntry`.

    Raises:
        InputError: Damaged, no finite numbers, or shapes that do not fit; names the file.
    """
    found = _numbers(path, ("mu", "sigma"))
    mean, cov = np.atleast_1d(found["mu"]), np.atleast_2d(found["sigma"])
    if cov.shape != (len(mean), len(mean)):
        raise InputError(f"{path} has mu of {mean.shape} and sigma of {cov.shape}; they must fit")
    return {f"{output}.mean": mean.astype(np.float64), f"{output}.cov": cov.astype(np.float64)}


def read_features(path: Path, output: str) -> dict[str, np.ndarray]:
    """Read ``feats`` of another tool's ``.npz``: ``"OUTPUT.features"``, a row an image.

    Raises:
        InputError: Damaged, or not a matrix of finite numbers; names the file.
    """
    rows = _numbers(path, ("feats",))["feats"]
    if rows.ndim != 2:
        raise InputError(f"{path} has feats of {rows.shape}; a row an image is needed")
    return {f"{output}.features": rows}


def _numbers(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: np.asarray(file[name]) for name in names}
        for name, array in found.items():
            if array.dtype.kind not in "fiu":
                raise ValueError(f"{name} is {array.dtype}; numbers are needed")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} is not finite")
    except (OSError, ValueError, KeyError, BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged ({error}); copy it again") from error
    return found


def digest_of(path: Path) -> str:
    """Return ``"sha256:..."`` of a file."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
