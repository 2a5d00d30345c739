"""GenEval's folder layout: a numbered folder a prompt, with ``metadata.jsonl`` and ``samples/``."""

from __future__ import annotations

import re
from pathlib import Path

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Sample
from genmetrics.core.state import natural_key
from genmetrics.samples.listing import quoted, scan
from genmetrics.samples.media import FileMedia
from genmetrics.samples.tables import Row, read_table

METADATA = "metadata.jsonl"
_IMAGE = re.compile(r"\d+\.png")


def is_geneval(folder: Path) -> bool:
    """Tell whether any numbered folder carries metadata."""
    return any((entry / METADATA).is_file() for entry in _numbered(folder))


def read_geneval(folder: Path, *, allow_missing: bool = False) -> list[Sample]:
    """Read ``<folder>/00000/{metadata.jsonl, samples/0000.png, ...}``.

    Only folders named by digits and images named by digits with ``.png`` count, as in the public
    evaluation script (so ``grid.png`` does not). Prompt and spec are the metadata; the id is
    ``"00000/0000"``.

    Args:
        folder: What the generation script wrote.
        allow_missing: Leave out prompts without images instead of refusing the set;
            :func:`prompts_without_images` names them.

    Raises:
        InputError: Folders without metadata, without a prompt, or without images; all are listed.
    """
    samples: list[Sample] = []
    bare: list[str] = []
    empty: list[str] = []
    for entry in _numbered(folder):
        if not (entry / METADATA).is_file():
            bare.append(entry.name)
            continue
        row = _metadata(entry)
        images = _images(entry)
        if not images:
            empty.append(f"{entry.name}: {row.text('prompt')}")
        samples += [
            Sample(
                id=f"{entry.name}/{image.stem}",
                image=FileMedia(str(image)),
                prompt=row.text("prompt"),
                spec=row.cells,
            )
            for image in images
        ]
    if bare:
        raise InputError(f"{folder}: {len(bare)} folders lack {METADATA}: {quoted(bare)}")
    if empty and not allow_missing:
        raise InputError(
            f"{folder}: {len(empty)} prompts have no images in samples/: {quoted(empty)}; generate"
            " them, or pass --allow-missing (the score is then not comparable)"
        )
    return samples


def prompts_without_images(folder: Path) -> list[str]:
    """Name the numbered folders that have metadata but no image."""
    return [
        entry.name
        for entry in _numbered(folder)
        if (entry / METADATA).is_file() and not _images(entry)
    ]


def _numbered(folder: Path) -> list[Path]:
    names = [entry.name for entry in scan(folder) if entry.name.isdecimal() and entry.is_dir()]
    return [folder / name for name in sorted(names, key=natural_key)]


def _images(entry: Path) -> list[Path]:
    samples = entry / "samples"
    if not samples.is_dir():
        return []
    names = [image.name for image in scan(samples) if _IMAGE.fullmatch(image.name)]
    return [samples / name for name in sorted(names, key=natural_key)]


def _metadata(entry: Path) -> Row:
    rows = read_table(entry / METADATA)
    if len(rows) != 1:
        raise InputError(f"{entry / METADATA} has {len(rows)} rows; expected one")
    if not rows[0].text("prompt"):
        raise InputError(f"{rows[0].where} has no prompt")
    return rows[0]
