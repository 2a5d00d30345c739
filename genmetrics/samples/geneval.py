"""GenEval's folder layout: a numbered folder a prompt, with ``metadata.jsonl`` and ``samples/``."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Sample
from genmetrics.core.state import natural_key
from genmetrics.samples.kinds import kind_of
from genmetrics.samples.listing import ListedSamples, quoted, scan
from genmetrics.samples.media import FileMedia
from genmetrics.samples.tables import Row, read_table

METADATA = "metadata.jsonl"
_IMAGE = re.compile(r"\d+\.png")


def is_geneval(folder: Path) -> bool:
    """Tell whether any numbered folder carries metadata."""
    return any((entry / METADATA).is_file() for entry in _numbered(folder))


def read_geneval(folder: Path, *, allow_missing: bool = False) -> ListedSamples:
    """Read ``<folder>/00000/{metadata.jsonl, samples/0000.png, ...}``.

    Only folders named by digits and images named by digits with ``.png`` count, as in the public
    evaluation script (so ``grid.png`` does not). Prompt and spec are the metadata; the id is
    ``"00000/0000"``.

    Args:
        folder: What the generation script wrote.
        allow_missing: Leave out prompts without images instead of refusing the set.

    Returns:
        Also the folders of such prompts, and other files in ``samples/``.

    Raises:
        InputError: Folders without metadata, without a prompt, or without images; all are listed.
    """
    samples: list[Sample] = []
    ignored: Counter[str] = Counter()
    bare: list[str] = []
    empty: dict[str, str] = {}
    for entry in _numbered(folder):
        if not (entry / METADATA).is_file():
            bare.append(entry.name)
            continue
        row = _metadata(entry)
        images, others = _images(entry)
        ignored.update(others)
        if not images:
            empty[entry.name] = f"{entry.name}: {row.text('prompt')}"
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
            f"{folder}: {len(empty)} prompts have no images in samples/:"
            f" {quoted([*empty.values()])}; generate them, or pass --allow-missing (the score"
            " is then not comparable)"
        )
    return ListedSamples(samples, ignored, list(empty))


def _numbered(folder: Path) -> list[Path]:
    names = [entry.name for entry in scan(folder) if entry.name.isdecimal() and entry.is_dir()]
    return [folder / name for name in sorted(names, key=natural_key)]


def _images(entry: Path) -> tuple[list[Path], list[str]]:
    """Return the images of a prompt in order, and the kinds of the files beside them."""
    samples = entry / "samples"
    if not samples.is_dir():
        return [], []
    names = [found.name for found in scan(samples) if not found.name.startswith(".")]
    images = sorted(filter(_IMAGE.fullmatch, names), key=natural_key)
    others = [kind_of(name) for name in names if not _IMAGE.fullmatch(name)]
    return [samples / name for name in images], others


def _metadata(entry: Path) -> Row:
    rows = read_table(entry / METADATA)
    if len(rows) != 1:
        raise InputError(f"{entry / METADATA} has {len(rows)} rows; expected one")
    if not rows[0].text("prompt"):
        raise InputError(f"{rows[0].where} has no prompt")
    return rows[0]
