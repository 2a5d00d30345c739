"""``genmetrics cache``: what the feature store holds, and how to make room."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genmetrics.cli import options
from genmetrics.cli.output import emit
from genmetrics.core.errors import UsageError, did_you_mean, shown
from genmetrics.core.files import require_local
from genmetrics.report.text import counted

if TYPE_CHECKING:
    from genmetrics.run.store import FeatureStore, Usage

app = typer.Typer(help="Show and prune cached features.")

Folder = Annotated[
    Path | None, typer.Option("--cache", metavar="DIR", help="The cache, if not the default one.")
]
_DAY = 86400.0


@app.command()
def info(cache: Folder = None, as_json: options.Json = False) -> None:
    """Show what each extractor keeps: rows, shards, size, date, place, and what tells it apart."""
    store = _store(cache)
    usages = list(store.usage())
    rows = [
        {
            "extractor": usage.extractor,
            "fingerprint": usage.fingerprint,
            "spec": usage.spec,
            "rows": usage.rows,
            "shards": usage.shards,
            "bytes": usage.bytes,
            "written": time.strftime("%Y-%m-%d %H:%M", time.localtime(_newest(usage))),
            "age_days": round(_age(usage), 2),
            "path": str(usage.folder),
        }
        for usage in usages
    ]
    if as_json:
        found = {"path": str(store.root), "extractors": rows, "damaged": [*map(str, store.damaged)]}
        emit(f"{json.dumps(found, indent=1)}\n")
        return
    total = sum(usage.bytes for usage in usages)
    emit(f"{store.root}: {counted(len(rows), 'extractor')}, {size(total)}\n")
    differences = _differences([usage.spec for usage in usages])
    for row, usage, own in zip(rows, usages, differences, strict=True):
        emit(
            f"  {usage.extractor}{own}  {counted(usage.rows, 'row')} in"
            f" {counted(usage.shards, 'shard')}, {size(usage.bytes)}, last written"
            f" {row['written']} ({row['age_days']} days ago)\n"
            f"    {usage.folder}\n"
        )
    for path in store.damaged:
        emit(f"  damaged, will be computed again: {path}\n")


def _differences(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each extractor, the choices in which those of its name differ: ``" (resize=clean)"``.

    A choice that an extractor does not have goes unsaid.
    """
    texts = []
    for spec in specs:
        kin = [other for other in specs if other.get("extractor") == spec.get("extractor")]
        keys = dict.fromkeys(key for other in kin for key in other)
        apart = [key for key in keys if any(_choice(o, key) != _choice(spec, key) for o in kin)]
        choices = ", ".join(f"{key}={_brief(spec[key])}" for key in apart if key in spec)
        texts.append(f" ({choices})" if choices else "")
    return texts


def _choice(spec: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    """A choice, which may be None, or nothing where there is none to make."""
    return (spec[key],) if key in spec else ()


def _brief(value: object) -> str:
    """Write a choice's value; of a hash, the first digits."""
    text = str(value)
    return text[:8] if re.fullmatch(r"[0-9a-f]{32,}", text) else shown(text)


@app.command()
def prune(
    cache: Folder = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than", min=0, metavar="DAYS", help="Only extractors not written to since."
        ),
    ] = None,
    extractor: Annotated[
        str | None,
        typer.Option(
            "--extractor", metavar="NAME|FINGERPRINT", help="Only this one, as `info` shows it."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete cached features; they are computed again when needed."""
    if not everything and older_than is None and extractor is None:
        raise UsageError("say what to prune: --older-than DAYS, --extractor NAME, or --all")
    if everything and (older_than is not None or extractor is not None):
        raise UsageError("--all excludes --older-than and --extractor; drop one")
    store = _store(cache)
    usages = list(store.usage())
    if extractor is not None and not any(_matches(u, None, extractor) for u in usages):
        hint = did_you_mean(extractor, [usage.extractor for usage in usages])
        raise UsageError(
            f"{store.root} has no extractor {extractor!r}{hint}; see `genmetrics cache info`"
        )
    chosen = [usage for usage in usages if _matches(usage, older_than, extractor)]
    what = (
        f"{counted(len(chosen), 'extractor')}, {size(sum(u.bytes for u in chosen))} in {store.root}"
    )
    if chosen and not yes:
        _confirm(f"delete {what}")
    for usage in chosen:
        store.remove(usage)
    emit(f"deleted {what}\n")


def size(count: int) -> str:
    """Format a number of bytes."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def _store(folder: Path | None) -> FeatureStore:
    from genmetrics.run.evaluate import feature_store

    if folder is not None:
        require_local("--cache", folder, "pass a folder of this machine")
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--cache {folder} is not a folder")
    with feature_store(folder) as store:
        return store


def _newest(usage: Usage) -> float:
    """When the extractor's newest features were written, in seconds since 1970."""
    return max((path.stat().st_mtime for path in usage.folder.iterdir()), default=0.0)


def _age(usage: Usage) -> float:
    """Days since the extractor's newest features were written."""
    return max((time.time() - _newest(usage)) / _DAY, 0.0)


def _matches(usage: Usage, older_than: float | None, extractor: str | None) -> bool:
    if older_than is not None and _age(usage) < older_than:
        return False
    if extractor is None or usage.extractor == extractor:
        return True
    prefix = extractor.removeprefix("sha256:")
    return len(prefix) >= 6 and usage.fingerprint.startswith(prefix[:32])


def _confirm(what: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{what}? pass --yes, stdin is not a terminal to ask at")
    typer.confirm(f"{what}?", abort=True, err=True)
