"""``genmetrics weights``: what there is, get it, check it, where it lies."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from genmetrics.weights import Check
    from genmetrics.weights.download import Received

app = typer.Typer(no_args_is_help=True, help="List, fetch and verify model weights.")


@app.command("list")
def list_weights(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    references: Annotated[
        bool,
        typer.Option("--references", help="List the reference statistics for --ref instead."),
    ] = False,
) -> None:
    """Show every weight file genmetrics knows, and whether it is here."""
    from genmetrics import weights

    if references:
        _list_references(as_json)
        return
    rows = []
    for entry in weights.entries().values():
        path = weights.path_of(entry.id)
        rows.append(
            {
                "id": entry.id,
                "bytes": entry.bytes or None,
                "licence": entry.licence,
                "present": path is not None,
                "path": None if path is None else str(path),
                "kind": entry.kind,
                "sha256": entry.sha256 or None,
                "revision": entry.revision or None,
                "used_for": entry.used_for,
            }
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    cells = [["id", "MB", "licence", "here", "used for"]]
    for row in rows:
        size = f"{row['bytes'] / 1e6:.2f}" if isinstance(row["bytes"], int) else "-"
        cells.append(
            [str(row["id"]), size, str(row["licence"]), _yes(row["path"]), str(row["used_for"])]
        )
    _print_table(cells)


def _list_references(as_json: bool) -> None:
    """Show what clean-fid publishes, and which of it is here; write NAME@PROTOCOL for a column."""
    from genmetrics.weights import path_of
    from genmetrics.weights.references import MODES, PREFIX, PUBLISHED, Reference, protocols_of

    rows: list[dict[str, Any]] = []
    for name, n in PUBLISHED.items():
        paths = {p: path_of(Reference(name, p, n).id) for p in protocols_of(name)}
        here = {protocol: path and str(path) for protocol, path in paths.items()}
        rows.append({"id": f"{PREFIX}{name}", "n": n, "paths": here})
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    cells = [["id", "images", *(f"@{protocol}" for protocol in MODES)]]
    for row in rows:
        states = ("-" if p not in row["paths"] else _yes(row["paths"][p]) for p in MODES)
        cells.append([row["id"], f"{row['n']:,}", *states])
    _print_table(cells)


def _yes(path: object) -> str:
    return "no" if path is None else "yes"


@app.command()
def fetch(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Weights, metrics, suites, hub models (ORG/NAME[@REVISION]), clean-fid:NAME.",
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Fetch what is here again.")] = False,
    accept_unpinned: Annotated[
        bool,
        typer.Option(
            "--accept-unpinned", help="Take files of unknown sha256 and record what came."
        ),
    ] = False,
) -> None:
    """Download weights, check them and print where they lie."""
    from genmetrics import weights

    for id in _resolve(ids):
        with _progress(id) as progress:
            path = weights.fetch(
                id, force=force, accept_unpinned=accept_unpinned, progress=progress
            )
        typer.echo(path)


@app.command()
def verify(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID...]", help="Weights, metrics or suites; default: all weights."),
    ] = None,
) -> None:
    """Read weights and compare them with their sha256; exit code 1 when any is not as it should."""
    from genmetrics import weights

    checks = [weights.verify(id) for id in (_resolve(ids) if ids else weights.entries())]
    cells = [["id", "status", "detail"]]
    for check in checks:
        cells.append([check.id, check.status, _detail(check)])
    _print_table(cells)
    bad = {"damaged", "missing"} if ids else {"damaged"}
    if any(check.status in bad for check in checks):
        raise typer.Exit(1)


@app.command()
def path(id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Print where verified weights lie."""
    from genmetrics import weights

    typer.echo(weights.require(id))


def _resolve(names: list[str]) -> list[str]:
    """Return ids of weights, each once; metrics and suites stand for the weights they need."""
    from genmetrics.weights import entries
    from genmetrics.weights.references import PREFIX

    ids: list[str] = []
    for name in names:
        hub = "/" in name and ":" not in name
        if hub or name in entries() or name.startswith(PREFIX):
            ids.append(name)
            continue
        found = _weights_behind(name)
        if not found:
            typer.echo(f"{name} needs no weights", err=True)
        ids += found
    return list(dict.fromkeys(ids))


def _weights_behind(name: str) -> list[str]:
    """Return what a metric or the metrics of a suite need.

    Raises:
        UsageError: Neither of the two.
    """
    import genmetrics.metrics  # noqa: F401  (registers them all)
    from genmetrics.core.errors import UsageError, did_you_mean
    from genmetrics.core.registry import create, parse, registered
    from genmetrics.extractors.needs import weights_of
    from genmetrics.run.suites import SUITES
    from genmetrics.weights import entries

    metrics = registered()
    if name not in SUITES and name.partition(":")[0].partition("@")[0] not in metrics:
        hint = did_you_mean(name, [*entries(), *metrics, *SUITES])
        raise UsageError(
            f"{name!r} is no weights, metric or suite{hint}; see `genmetrics weights list` and"
            " `genmetrics list`"
        )
    built = [create(request, device="cpu") for request in parse(SUITES.get(name, (name,)))]
    ids = [weights_of(spec) for metric in built for spec in metric.extractors.values()]
    return list(dict.fromkeys(filter(None, ids)))


def _detail(check: Check) -> str:
    if check.status == "missing":
        return f"genmetrics weights fetch {check.id}"
    if check.status == "damaged":
        return f"{check.path}: found {check.found}, expected {check.expected}"
    if check.status == "unpinned":
        return f"{check.path}: found {check.found}, the manifest does not know this content"
    return str(check.path)


def _print_table(rows: list[list[str]]) -> None:
    """Print columns padded to their widest cell: whole ids, whatever the terminal's width."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(line.rstrip())


@contextmanager
def _progress(id: str) -> Iterator[Received | None]:
    """Show a bar on stderr where somebody is looking."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    columns = (*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(id, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
