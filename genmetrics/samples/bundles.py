"""Sets made of several files: brace patterns, wildcards, folders of shards; chosen fields."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

from genmetrics.core.errors import InputError, UsageError, did_you_mean, shown
from genmetrics.core.files import require_local
from genmetrics.core.state import natural_key
from genmetrics.samples.archives import TARS
from genmetrics.samples.image import read_file
from genmetrics.samples.listing import quoted, scan

CHOICES = ("image", "prompt", "id")
"""What may be chosen behind a path, as ``data.parquet:image=edited,prompt=caption``."""

KINDS = {"tar": TARS, "parquet": (".parquet",), "arrow": (".arrow",)}
"""Kind of shard to its suffixes."""

_MOST = 100_000  # shards of one pattern; a mistyped number must not fill the memory
_CHOICE = re.compile(r"(?s)(.+):(\w+=[^:,/]*(?:,\w+=[^:,/]*)*)")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")


class Bundle(NamedTuple):
    """Files that make one set, and the fields chosen among theirs."""

    where: str
    """What the user passed, without the choice."""
    files: Sequence[str]
    fields: Mapping[str, str]


def find_bundle(text: str) -> Bundle | None:
    """Read a path as a pattern or with a choice of fields; None where it names a file or folder.

    Raises:
        InputError: Nothing is there, or a shard of a brace pattern is missing.
        UsageError: An address, or an unknown field.
    """
    if os.path.lexists(text):
        return None
    require_local("", text)
    where, fields = _split(text)
    if os.path.exists(where):  # noqa: PTH110  # Path.exists raises without permission
        folder = os.path.isdir(where)  # noqa: PTH112
        files = bundle_files(Path(where)) if folder else [where]
        if not files:
            raise UsageError(
                f"{text}: {where} has no fields to choose from; drop the part behind :"
            )
        return Bundle(where, files, fields)
    files = _expand(where)
    if not files:
        fix = "no file fits it, check the pattern" if _is_pattern(where) else "check the path"
        raise InputError(f"{where} does not exist (0 files seen); {fix}")
    return Bundle(where, files, fields)


def bundle_files(folder: Path) -> list[str]:
    """Return the shards of a folder: what ``Dataset.save_to_disk`` wrote, or files of one kind.

    Returns:
        Paths in order; empty where the folder holds none.

    Raises:
        InputError: Several splits or several kinds; each is named.
    """
    if (folder / "dataset_dict.json").is_file():
        names = [f"{folder / name}" for name in _json(folder / "dataset_dict.json", "splits", str)]
        raise InputError(f"{folder} holds several splits; pass one of {', '.join(names)}")
    if (folder / "state.json").is_file():
        return _saved_files(folder)
    names = sorted((entry.name for entry in scan(folder)), key=natural_key)
    names = [name for name in names if not name.startswith(".")]
    found = {kind: [n for n in names if n.lower().endswith(KINDS[kind])] for kind in KINDS}
    kinds = [kind for kind in KINDS if found[kind]]
    if len(kinds) > 1:
        counts = ", ".join(f"{len(found[kind])} {kind}" for kind in kinds)
        raise InputError(f"{folder} holds {counts} files; pass one kind as '{folder}/*.{kinds[0]}'")
    files = found[kinds[0]] if kinds else []
    splits = sorted({match[1] for name in files if (match := _split_of(name))})
    if len(splits) > 1:
        patterns = ", ".join(f"'{folder}/{split}-*'" for split in splits)
        raise InputError(f"{folder} holds several splits; pass one of {patterns}")
    return [str(folder / name) for name in files]


def kind_of_shard(file: str) -> str | None:
    """Tell by the suffix, a key of :data:`KINDS`; None for what is no shard."""
    return next((kind for kind in KINDS if file.lower().endswith(KINDS[kind])), None)


def _split(text: str) -> tuple[str, dict[str, str]]:
    """Cut the choice of fields off a path."""
    match = _CHOICE.fullmatch(text)
    if match is None:
        return text, {}
    fields: dict[str, str] = {}
    for part in match[2].split(","):
        key, _, value = part.partition("=")
        if key not in CHOICES:
            hint = did_you_mean(key, CHOICES)
            raise UsageError(f"{text}: unknown field {key!r}{hint}; there is {', '.join(CHOICES)}")
        fields[key] = value
    return match[1], fields


def _is_pattern(text: str) -> bool:
    return has_magic(text) or _BRACES.search(text) is not None


def _expand(pattern: str) -> list[str]:
    """Expand braces, then wildcards. Each name that braces spell out must exist."""
    if not _is_pattern(pattern):
        return []
    found: list[str] = []
    missing: list[str] = []
    for name in _expand_braces(pattern):
        if has_magic(name):
            found += sorted(glob(name), key=natural_key)  # noqa: PTH207  # patterns may be absolute
        elif os.path.exists(name):  # noqa: PTH110
            found.append(name)
        else:
            missing.append(name)
    if missing and (found or len(missing) > 1):
        raise InputError(f"{pattern}: {len(missing)} files are missing: {quoted(missing)}")
    return list(dict.fromkeys(found))


def _expand_braces(pattern: str) -> list[str]:
    """``a-{08..11}.tar`` to four names, ``{train,test}.tar`` to two, as a shell does."""
    parts = _BRACES.split(pattern)
    choices = [_alternatives(part, pattern) if i % 2 else [part] for i, part in enumerate(parts)]
    _require_few(math.prod(map(len, choices)), pattern)
    return ["".join(combination) for combination in itertools.product(*choices)]


def _require_few(count: int, pattern: str) -> None:
    if count > _MOST:
        raise InputError(f"{pattern} stands for {count} files, at most {_MOST} are read; check it")


def _alternatives(inner: str, pattern: str) -> Sequence[str]:
    match = _RANGE.fullmatch(inner)
    if match is None:
        return inner.split(",") if "," in inner else [f"{{{inner}}}"]
    first, last = int(match[1]), int(match[2])
    _require_few(abs(last - first) + 1, pattern)
    padded = any(text.startswith("0") and len(text) > 1 for text in match.groups())
    width = max(map(len, match.groups())) if padded else 0
    step = 1 if last >= first else -1
    return [f"{number:0{width}d}" for number in range(first, last + step, step)]


def _split_of(name: str) -> re.Match[str] | None:
    """Match how the Hugging Face hub names the shards of a split."""
    return re.fullmatch(r"(.+)-\d{5}-of-\d{5}(?:-[0-9a-f]+)?\.\w+", name)


def _saved_files(folder: Path) -> list[str]:
    """List the files of a data set saved by ``Dataset.save_to_disk``, in its order."""
    state = folder / "state.json"
    if _json(state, "_indices_data_files", object, optional=True):
        raise InputError(f"{state} selects rows by an index file; save it again with datasets>=2.0")
    files = []
    for row in _json(state, "_data_files", dict):
        name = row.get("filename")
        if not isinstance(name, str) or not (folder / name).is_file():
            raise InputError(f"{state} names the file {name!r}, which is missing; copy it again")
        files.append(str(folder / name))
    if not files:
        raise InputError(f"{folder} is a data set without rows")
    return files


def _json(path: Path, key: str, kind: type, *, optional: bool = False) -> list:  # type: ignore[type-arg]
    """Read a list of ``kind`` under ``key``."""
    try:
        value = json.loads(read_file(path)).get(key, [] if optional else None)
        if optional and value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
            raise ValueError(f"{key!r} is {shown(value)}")
    except InputError:
        raise
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} is not what Dataset.save_to_disk writes: {error}; save it again"
        ) from error
    return value
