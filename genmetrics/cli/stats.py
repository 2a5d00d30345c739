"""``genmetrics stats``: statistics of a reference set, extracted once and reused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from genmetrics.cli import options, output
from genmetrics.core.errors import UsageError
from genmetrics.run.work import QUEUE_MB

app = typer.Typer(help="Build statistics files for --ref.")


@app.callback()
def _root() -> None:
    """Build statistics files for --ref."""


@app.command()
def build(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Reference set: folder, archive, manifest or npz.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="Statistics file, .safetensors.",
            rich_help_panel=options.OUTPUT,
        ),
    ],
    metrics: options.MetricIds = None,
    weights: options.Weights = None,
    device: options.Device = "auto",
    precision: options.Precision = "fp32",
    compiled: options.Compile = False,
    decode: options.Decode = "pil",
    batch_size: options.BatchSize = "auto",
    workers: options.Workers = None,
    queue_mb: options.QueueMb = QUEUE_MB,
    processes: options.Processes = None,
    cache: options.Cache = None,
    no_cache: options.NoCache = False,
    recursive: options.Recursive = False,
    limit: options.Limit = None,
    on_error: options.OnErrorOption = "fail",
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Replace FILE if it is there.", rich_help_panel=options.OUTPUT
        ),
    ] = False,
    quiet: options.Quiet = False,
) -> int:
    """Extract a reference set and keep what the metrics need of it."""
    from genmetrics.run.build import Asked
    from genmetrics.run.build_statistics import build_statistics
    from genmetrics.run.evaluate import Running
    from genmetrics.run.inputs import Inputs
    from genmetrics.samples.statistics import write_statistics

    inputs = Inputs(
        generated={}, reference=folder, recursive=recursive, limit=limit, on_error=on_error
    )
    asked = Asked(
        metrics=metrics or (),
        weights=options.weights(weights),
        precision=precision,
        compiled=compiled,
        decode=decode,
    )
    running = Running(
        device=device,
        batch_size=options.batch_size(batch_size),
        workers=workers,
        queue_mb=queue_mb,
        cache=options.cache(cache, no_cache),
    )
    _check_file(out, force)
    with output.only_data_on_stdout(), output.world(processes, device) as ranks:
        from genmetrics.report.progress import on_stderr

        progress = on_stderr(quiet=quiet or not ranks.main)
        built = build_statistics(inputs, asked, running, ranks=ranks, progress=progress)
        if ranks.main:
            write_statistics(out, built.entries)
    if not ranks.main:
        return 1 if built.failures else 0
    for failure in built.failures:
        output.tell(f"skipped {failure.who.sample.path}: {failure.reason}", quiet=quiet)
    names = [f"{e.n:,} images by {(e.extractor or {}).get('extractor')}" for e in built.entries]
    output.emit(f"{out}: {', '.join(names)}\n")
    return 1 if built.failures else 0


def _check_file(out: Path, force: bool) -> None:
    """Refuse a bad target before the work."""
    from genmetrics.report.files import check_out

    if out.suffix != ".safetensors":
        raise UsageError(f"-o {out}: name it FILE.safetensors, which --ref recognises")
    if out.is_dir():
        raise UsageError(f"-o {out} is a folder; pass a file")
    if out.exists() and not force:
        raise UsageError(f"-o {out} exists; pass --force to replace it")
    check_out(out.parent)
