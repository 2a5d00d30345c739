"""Prompts, references, masks and the like joined to samples, by name and never by guess."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from genmetrics.core.errors import InputError, PairingError, UsageError
from genmetrics.core.fields import FIELDS, Field
from genmetrics.core.sample import Sample
from genmetrics.core.state import natural_key
from genmetrics.samples.check import in_slices
from genmetrics.samples.listing import quoted, without_suffix
from genmetrics.samples.names import forms_differ, nfc, partners, unambiguous
from genmetrics.samples.sources import read_samples
from genmetrics.samples.tables import Row, cell, read_table

Attached = tuple[list[Sample], list[str]]
"""The samples that are complete, and the names of what has no counterpart, on either side."""


def attach(
    samples: Sequence[Sample],
    field: Field,
    source: str | os.PathLike[str],
    *,
    by: str = "stem",
    allow_missing: bool = False,
) -> Attached:
    """Set a field of each sample: from another set whose files have the samples' names, or a table.

    Args:
        samples: The generated side.
        field: What is set; a row of :data:`genmetrics.core.fields.FIELDS`.
        source: Anything :func:`~genmetrics.samples.sources.read_samples` reads, or a table with
            ``id`` or ``file`` and a column of the field's name, as the row says.
        by: ``"stem"`` pairs equal ids. ``"order"`` pairs both sides in natural order and needs
            equal counts; only sound where both sides were numbered together.
        allow_missing: Leave out what has no counterpart instead of refusing. A sample without a
            field that is optional stays.

    Returns:
        The samples that have it, and the names without counterpart, on either side.

    Raises:
        UsageError: Unknown ``by``, or a field that only a layout or manifest carries.
        PairingError: Names without counterpart (all are listed), or unequal counts.
        InputError: Two rows for one sample, or a cell that is missing or empty.
    """
    if by not in ("stem", "order"):
        raise UsageError(f"pairing by {by!r} is unknown; there is stem, order")
    if field.joins == "table":
        return _attach_column(samples, field, Path(source), allow_missing)
    if field.joins == "layout":
        raise UsageError(f"{field.called} cannot be joined from {source}; pass {field.option}")
    others = _read_counterparts(samples, source)
    if by == "order" and not field.optional:
        return _by_order(samples, others, field, source), []
    found, missing = _by_stem(samples, others, source, field, allow_missing)
    if field.optional:
        having = {sample.id: sample for sample in found}
        found = [having.get(sample.id, sample) for sample in samples]
    return found, missing


def _attach_column(
    samples: Sequence[Sample], field: Field, path: Path, allow_missing: bool
) -> Attached:
    """Set a field from a column.

    A key is the sample's id or file name, with or without suffix or leading folders. Texts are
    taken as they are: case, newlines and slashes count.
    """
    index = _Index(samples)
    cells: dict[str, Any] = {}
    lines: dict[str, str] = {}
    strangers: list[str] = []
    for row in read_table(path):
        key = _key(row, field)
        id_ = index.find(key)
        known = id_ if id_ is not None else f"\0{key}"  # keys without image must differ as well
        if known in lines:
            raise InputError(f"{row.where} gives {key!r} a second time (first: {lines[known]})")
        lines[known] = row.where
        if id_ is None:
            strangers.append(key)
        else:
            cells[id_] = cell(row, field)
    bare = [sample.id for sample in samples if sample.id not in cells]
    if (strangers or bare) and not (allow_missing and cells):
        raise PairingError(
            f"{path}: {_count(strangers, field.called, field.several, 'has no image')}"
            f"{_count(bare, 'image', 'images', f'has no {field.called}')}"
            f"{forms_differ(strangers, (s.id for s in samples))}"
            f"add them{_ALLOW if cells else ''}"
        )
    found = [s.having(**{field.name: cells[s.id]}) for s in samples if s.id in cells]
    require_filled(found, field, str(path))
    return found, [*strangers, *bare]


def _by_order(
    samples: Sequence[Sample],
    others: Sequence[Sample],
    field: Field,
    path: str | os.PathLike[str],
) -> list[Sample]:
    if len(samples) != len(others):
        raise PairingError(
            f"{len(samples)} images against {len(others)} {field.several} in {path}; pairing by"
            " order needs equal counts"
        )
    ordered = sorted(samples, key=lambda sample: natural_key(sample.id))
    pairs = zip(ordered, others, strict=True)
    return [sample.having(**{field.name: other.image}) for sample, other in pairs]


def require_filled(samples: Iterable[Sample], field: Field, where: str) -> None:
    """Raise :class:`InputError` naming every sample without a field; an empty text is none."""
    empty = [sample.id for sample in samples if not carries(sample, field.name)]
    if empty:
        samples_have = "1 sample has" if len(empty) == 1 else f"{len(empty)} samples have"
        raise InputError(
            f"{where}: {samples_have} an empty {field.called} or none: {quoted(empty)}; fill the"
            f" column {field.name!r}, which must have one for each"
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
        Samples with what ``fields`` asks for, and the ids of the
        others. An image without mask stays, as in :func:`attach`, and is named. A field that
        no sample has is left to the metrics, which say where it can come from.

    Raises:
        PairingError: Some lack a field, all are listed; or none has all of them.
    """
    gone: dict[str, list[str]] = {}
    for field in (f for f in FIELDS if f in fields):
        bare = [sample.id for sample in samples if not carries(sample, field)]
        if bare and len(bare) < len(samples):
            gone[field] = bare
    lacking = {id_ for field in gone if not FIELDS[field].optional for id_ in gone[field]}
    kept = [sample for sample in samples if sample.id not in lacking]
    if gone and not (allow_missing and kept):
        counts = [_count(bare, *_whole(field), f"has no {field}") for field, bare in gone.items()]
        fix = f"add them{_ALLOW if kept else ''}"
        raise PairingError(f"{os.fspath(path)}: {''.join(counts)}{fix}")
    return kept, list(dict.fromkeys(id_ for bare in gone.values() for id_ in bare))


def _whole(field: str) -> tuple[str, str]:
    """What lacks a field, for one and for several."""
    return ("sample", "samples") if field in ("image", "video") else ("image", "images")


def carries(sample: Sample, field: str) -> bool:
    """Tell whether a sample has a field; an empty prompt is none."""
    value = getattr(sample, field)
    return bool(value.strip() if isinstance(value, str) else value)


def check_sizes(samples: Sequence[Sample], fields: Sequence[str], *, workers: int = 8) -> None:
    """Compare the sizes of images with those of their partners, from headers.

    Raises:
        PairingError: Some differ; the message shows paths and sizes of the first.
        InputError: A header cannot be read.
    """
    faults = in_slices(samples, lambda sample: _size_faults(sample, fields), workers)
    wrong = [text for texts in faults for text in texts]
    if wrong:
        more = f" ({len(wrong)} such pairs)" if len(wrong) > 1 else ""
        raise PairingError(f"{wrong[0]}{more}; resize or replace the files")


def _size_faults(sample: Sample, fields: Sequence[str]) -> list[str]:
    partners = [media for field in fields if (media := getattr(sample, field)) is not None]
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


def _by_stem(
    samples: Sequence[Sample],
    others: Sequence[Sample],
    path: str | os.PathLike[str],
    field: Field,
    allow_missing: bool,
) -> Attached:
    what = field.called
    media = {other.id: other.image for other in others}
    ids = [sample.id for sample in samples]
    partner = partners(ids, media)
    alone = [id_ for id_ in ids if id_ not in partner]
    met = set(partner.values())
    strangers = [other for other in media if other not in met]
    if (alone or strangers) and not (allow_missing and partner):
        order = not field.optional and len(samples) == len(others)
        hint = "; --pair-by order pairs both sides in natural order" if order else ""
        raise PairingError(
            f"{os.fspath(path)}: {_count(alone, 'image', 'images', f'has no {what}')}"
            f"{_count(strangers, what, field.several, 'has no image')}"
            f"{forms_differ(alone, media) or forms_differ(strangers, ids)}"
            f"pair equal names{_ALLOW if partner else hint}"
        )
    paired = [s.having(**{field.name: media[partner[s.id]]}) for s in samples if s.id in partner]
    return paired, [*alone, *strangers]


_ALLOW = ", or pass --allow-missing"
"""Of no use where nothing has a partner."""


def _count(names: Sequence[str], one: str, several: str, lacks: str) -> str:
    if not names:
        return ""
    said = f"{one} {lacks}" if len(names) == 1 else f"{several} {lacks.replace('has', 'have', 1)}"
    return f"{len(names)} {said} ({quoted(names)}); "


def _key(row: Row, field: Field) -> str:
    if field.name not in row.cells:
        columns = ", ".join(row.cells) or "none"
        raise InputError(f"{row.where} has no {field.name!r} (columns: {columns})")
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
