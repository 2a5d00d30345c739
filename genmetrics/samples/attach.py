"""Prompts, references and masks joined to samples, by name and never by guess."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from genmetrics.core.errors import InputError, PairingError, UsageError
from genmetrics.core.sample import Media, Sample
from genmetrics.core.state import natural_key
from genmetrics.samples.listing import quoted, without_suffix
from genmetrics.samples.names import forms_differ, meet, nfc, unambiguous
from genmetrics.samples.sources import read_samples
from genmetrics.samples.tables import Row, read_table

Attached = tuple[list[Sample], list[str]]
"""The samples that are complete, and the names of what has no counterpart, on either side."""


def attach_prompts(
    samples: Sequence[Sample],
    file: str | os.PathLike[str],
    *,
    allow_missing: bool = False,
) -> Attached:
    """Set the prompt of each sample from a table with ``id`` or ``file``, and ``prompt``.

    A key is the sample's id or file name, with or without suffix or leading folders. Prompts are
    taken as they are: case, newlines and slashes count.

    Returns:
        Samples with their prompts, and the keys of rows without image and ids of images without
        prompt (empty unless ``allow_missing``; such images are left out).

    Raises:
        PairingError: Rows without image or images without prompt; all are listed.
        InputError: Two rows for one image, or a prompt that is missing or empty.
    """
    path = Path(file)
    index = _Index(samples)
    prompts: dict[str, str] = {}
    lines: dict[str, str] = {}
    strangers: list[str] = []
    for row in read_table(path):
        key = _key(row)
        id_ = index.find(key)
        known = id_ if id_ is not None else f"\0{key}"  # keys without image must differ as well
        if known in lines:
            raise InputError(f"{row.where} gives {key!r} a second time (first: {lines[known]})")
        lines[known] = row.where
        if id_ is None:
            strangers.append(key)
        else:
            prompts[id_] = row.text("prompt") or ""
    bare = [sample.id for sample in samples if sample.id not in prompts]
    if (strangers or bare) and not (allow_missing and prompts):
        raise PairingError(
            f"{path}: {_count(strangers, 'prompt', 'has no image')}"
            f"{_count(bare, 'image', 'has no prompt')}"
            f"{forms_differ(strangers, (s.id for s in samples))}"
            f"add them{_ALLOW if prompts else ''}"
        )
    found = [replace(s, prompt=prompts[s.id]) for s in samples if s.id in prompts]
    require_prompts(found, str(path))
    return found, [*strangers, *bare]


def require_prompts(samples: Iterable[Sample], where: str) -> None:
    """Raise :class:`InputError` naming every sample without a prompt; an empty one is none."""
    empty = [sample.id for sample in samples if not carries(sample, "prompt")]
    if empty:
        raise InputError(
            f"{where}: {len(empty)} samples have an empty prompt or none: {quoted(empty)}; text"
            " metrics need one"
        )


def without_missing(
    samples: Sequence[Sample],
    fields: Collection[str],
    path: str | os.PathLike[str],
    *,
    allow_missing: bool = False,
) -> Attached:
    """Leave out what lacks a field that others of a set carry: a manifest with empty cells.

    Args:
        samples: The generated side, with what was attached.
        fields: What the metrics read.
        path: Where the samples come from, for errors.
        allow_missing: Leave them out instead of refusing.

    Returns:
        Samples with the prompt, reference and spec that ``fields`` asks for, and the ids of the
        others. An image without mask stays, as in :func:`attach_masks`, and is named. A field that
        no sample has is left to the metrics, which say where it can come from.

    Raises:
        PairingError: Some lack a field, all are listed; or none has all of them.
    """
    gone: dict[str, list[str]] = {}
    for field in (f for f in _BESIDE if f in fields):
        bare = [sample.id for sample in samples if not carries(sample, field)]
        if bare and len(bare) < len(samples):
            gone[field] = bare
    lacking = {id_ for field in gone if field != "mask" for id_ in gone[field]}
    kept = [sample for sample in samples if sample.id not in lacking]
    if gone and not (allow_missing and kept):
        counts = [_count(bare, "image", f"has no {field}") for field, bare in gone.items()]
        fix = f"add them{_ALLOW if kept else ''}"
        raise PairingError(f"{os.fspath(path)}: {''.join(counts)}{fix}")
    return kept, list(dict.fromkeys(id_ for bare in gone.values() for id_ in bare))


_BESIDE = ("prompt", "reference", "mask", "spec")


def carries(sample: Sample, field: str) -> bool:
    """Tell whether a sample has a field; an empty prompt is none."""
    value = getattr(sample, field)
    return bool(value.strip() if isinstance(value, str) else value)


def attach_pairs(
    samples: Sequence[Sample],
    path: str | os.PathLike[str],
    *,
    by: str = "stem",
    allow_missing: bool = False,
) -> Attached:
    """Set the reference of each sample from another set of images.

    Args:
        samples: The generated side.
        path: The reference side: anything :func:`~genmetrics.samples.sources.read_samples` reads.
        by: ``"stem"`` pairs equal ids. ``"order"`` pairs both sides in natural order and needs
            equal counts; only sound where both sides were numbered together.
        allow_missing: Leave out what has no counterpart instead of refusing.

    Returns:
        Samples with references, and the ids without counterpart, on either side.

    Raises:
        PairingError: Ids without counterpart (all are listed), or unequal counts.
    """
    if by not in ("stem", "order"):
        raise UsageError(f"pairing by {by!r} is unknown; there is stem, order")
    others = _read_counterparts(samples, path)
    if by == "stem":
        return _by_stem(samples, others, path, "counterpart", _set_reference, allow_missing)
    if len(samples) != len(others):
        raise PairingError(
            f"{len(samples)} images against {len(others)} counterparts in {path}; pairing by order"
            " needs equal counts"
        )
    ordered = sorted(samples, key=lambda sample: natural_key(sample.id))
    pairs = zip(ordered, others, strict=True)
    return [_set_reference(sample, other.image) for sample, other in pairs], []


def attach_masks(
    samples: Sequence[Sample],
    path: str | os.PathLike[str],
    *,
    allow_missing: bool = False,
) -> Attached:
    """Set the mask of each sample by stem. Each image needs one unless ``allow_missing``.

    Returns:
        All samples, and the ids without counterpart on either side. An image without mask stays: no
        mask means that nothing was allowed to change.

    Raises:
        PairingError: Ids without counterpart; all are listed.
    """
    others = _read_counterparts(samples, path)
    with_masks, missing = _by_stem(samples, others, path, "mask", _set_mask, allow_missing)
    masked = {sample.id: sample for sample in with_masks}
    return [masked.get(sample.id, sample) for sample in samples], missing


def check_pair_sizes(samples: Sequence[Sample], *, workers: int = 8) -> None:
    """Compare the sizes of images with those of their references and masks, from headers.

    Raises:
        PairingError: Some differ; the message shows paths and sizes of the first.
        InputError: A header cannot be read.
    """
    with ThreadPoolExecutor(workers) as pool:
        wrong = [text for texts in pool.map(_size_faults, samples) for text in texts]
    if wrong:
        more = f" ({len(wrong)} such pairs)" if len(wrong) > 1 else ""
        raise PairingError(f"{wrong[0]}{more}; resize or replace the files")


def _size_faults(sample: Sample) -> list[str]:
    partners = [media for media in (sample.reference, sample.mask) if media is not None]
    if sample.image is None or not partners:
        return []
    width, height = sample.image.size()
    faults = []
    for media in partners:
        other = media.size()
        if other != (width, height):
            faults.append(
                f"{sample.image.name} is {width}×{height} but {media.name} is {other[0]}×{other[1]}"
            )
    return faults


def _read_counterparts(samples: Sequence[Sample], path: str | os.PathLike[str]) -> Sequence[Sample]:
    nested = any("/" in sample.id for sample in samples)
    return read_samples(path, recursive=nested)


def _set_reference(sample: Sample, media: Media | None) -> Sample:
    return replace(sample, reference=media)


def _set_mask(sample: Sample, media: Media | None) -> Sample:
    return replace(sample, mask=media)


def _by_stem(
    samples: Sequence[Sample],
    others: Sequence[Sample],
    path: str | os.PathLike[str],
    what: str,
    setter: Callable[[Sample, Media | None], Sample],
    allow_missing: bool,
) -> Attached:
    media = {other.id: other.image for other in others}
    ids = [sample.id for sample in samples]
    partner = meet(ids, media)
    alone = [id_ for id_ in ids if id_ not in partner]
    met = set(partner.values())
    strangers = [other for other in media if other not in met]
    if (alone or strangers) and not (allow_missing and partner):
        order = what == "counterpart" and len(samples) == len(others)
        hint = "; --pair-by order pairs both sides in natural order" if order else ""
        raise PairingError(
            f"{os.fspath(path)}: {_count(alone, 'image', f'has no {what}')}"
            f"{_count(strangers, what, 'has no image')}"
            f"{forms_differ(alone, media) or forms_differ(strangers, ids)}"
            f"pair equal names{_ALLOW if partner else hint}"
        )
    paired = [setter(s, media[partner[s.id]]) for s in samples if s.id in partner]
    return paired, [*alone, *strangers]


_ALLOW = ", or pass --allow-missing"
"""Of no use where nothing has a partner."""


def _count(names: Sequence[str], what: str, lacks: str) -> str:
    if not names:
        return ""
    plural = what if len(names) == 1 else f"{what}s"
    verb = lacks if len(names) == 1 else lacks.replace("has", "have", 1)
    return f"{len(names)} {plural} {verb} ({quoted(names)}); "


def _key(row: Row) -> str:
    if "prompt" not in row.cells:
        columns = ", ".join(row.cells) or "none"
        raise InputError(f"{row.where} has no 'prompt' (columns: {columns})")
    key = row.text("id") or row.text("file")
    if not key:
        columns = ", ".join(row.cells)
        raise InputError(f"{row.where} has no 'id' and no 'file' (columns: {columns})")
    return key


class _Index:
    """Finds the sample a table's key means."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._full = dict(unambiguous((s.id, s.id) for s in samples))
        self._full |= unambiguous(
            (f"{s.id}{suffix}", s.id) for s in samples if (suffix := _suffix(s))
        )
        self._last = unambiguous((key.rsplit("/", 1)[-1], id_) for key, id_ in self._full.items())

    def find(self, key: str) -> str | None:
        """Return the sample's id; the most literal reading of ``key`` wins."""
        parts = key.replace("\\", "/").removeprefix("./").split("/")
        tails = [key, *("/".join(parts[i:]) for i in range(len(parts)))]
        found = _first(tails, (self._full, self._last))
        return found or _first(map(nfc, tails), self._composed)

    @cached_property
    def _composed(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The tables under NFC, for keys that passed through another system."""
        full, last = (
            unambiguous((nfc(key), id_) for key, id_ in table.items())
            for table in (self._full, self._last)
        )
        return full, last


def _first(tails: Iterable[str], tables: Iterable[Mapping[str, str]]) -> str | None:
    listed = list(tails)
    for table in tables:
        for tail in listed:
            found = table.get(tail) or table.get(without_suffix(tail))
            if found is not None:
                return found
    return None


def _suffix(sample: Sample) -> str:
    """Return what the file's name has beyond the id; empty where the id keeps the suffix."""
    name = (sample.path or "").replace("\\", "/").rsplit("/", 1)[-1]
    suffix = name[len(without_suffix(name)) :]
    return "" if sample.id.endswith(suffix) else suffix
