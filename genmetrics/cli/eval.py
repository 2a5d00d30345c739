"""``genmetrics eval``: judge a set of generated images."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from genmetrics.cli import options, output
from genmetrics.run.work import GENERATED, QUEUE_MB

if TYPE_CHECKING:
    from genmetrics.report.record import RunRecord
    from genmetrics.run.plan import Plan


def evaluate(
    generated: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]GENERATED...",
            help="Folder, archive, manifest or npz; of several sets NAME=DIR each.",
        ),
    ],
    ref: Annotated[
        str | None,
        typer.Option(
            "--ref",
            metavar="DIR|STATS",
            help="Reference set for metrics of sets: folder, archive or statistics file.",
            rich_help_panel=options.INPUTS,
        ),
    ] = None,
    pair_with: Annotated[
        str | None,
        typer.Option(
            "--pair-with",
            metavar="DIR",
            help="Counterpart of each image, for psnr, ssim and their kin.",
            rich_help_panel=options.INPUTS,
        ),
    ] = None,
    pair_by: Annotated[
        Literal["stem", "order"],
        typer.Option(
            "--pair-by",
            help="Pair by file stem or by natural order.",
            rich_help_panel=options.INPUTS,
        ),
    ] = "stem",
    masks: Annotated[
        str | None,
        typer.Option(
            "--masks",
            metavar="DIR",
            help="Masks, white where an image was allowed to change.",
            rich_help_panel=options.INPUTS,
        ),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="jsonl or csv with id (or file) and prompt.",
            rich_help_panel=options.INPUTS,
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="FIELD=PATH",
            help="A further field of samples: files of their names, or a table. Repeatable.",
            rich_help_panel=options.INPUTS,
        ),
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            "--layout",
            help="How GENERATED is laid out, such as folder, manifest or geneval.",
            rich_help_panel=options.INPUTS,
        ),
    ] = "auto",
    recursive: options.Recursive = False,
    limit: options.Limit = None,
    on_error: options.OnErrorOption = "fail",
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="Score what has a partner or prompt, and report what has none.",
            rich_help_panel=options.INPUTS,
        ),
    ] = False,
    allow_unverified_ref: Annotated[
        bool,
        typer.Option(
            "--allow-unverified-ref",
            help="Accept an npz of mu and sigma that does not say what made it.",
            rich_help_panel=options.INPUTS,
        ),
    ] = False,
    metrics: options.MetricIds = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite",
            metavar="NAME",
            help="Named set of metrics; `lite` needs no download. Repeatable.",
            rich_help_panel=options.METRICS,
        ),
    ] = None,
    weights: options.Weights = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            max=2**32 - 1,
            metavar="N",
            help="Seed of every metric that draws.",
            rich_help_panel=options.METRICS,
        ),
    ] = None,
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
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write results.json, samples.jsonl and report.html; of several sets in DIR/NAME.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace another run's results in --out.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="The results document on stdout; everything else goes to stderr.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    quiet: options.Quiet = False,
) -> int:
    """Judge generated images: one decode, one pass a model, every metric."""
    from genmetrics.run.build import Asked
    from genmetrics.run.evaluate import Running
    from genmetrics.run.evaluate import evaluate as run
    from genmetrics.run.inputs import Inputs, joined_fields

    sets = options.named_sets(generated)
    inputs = Inputs(
        generated=sets or {GENERATED: generated[0]},
        reference=ref,
        joined=joined_fields(
            options.pairs("--with", fields), pair_with=pair_with, masks=masks, prompts=prompts
        ),
        pair_by=pair_by,
        layout=layout,
        recursive=recursive,
        limit=limit,
        on_error=on_error,
        allow_missing=allow_missing,
        allow_unverified_reference=allow_unverified_ref,
    )
    asked = Asked(
        metrics=metrics or (),
        suites=suite or (),
        weights=options.weights(weights),
        seed=seed,
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
    if out is not None:
        from genmetrics.report.files import check_out, check_runs

        check_out(out)
    with output.only_data_on_stdout(), output.world(processes, device) as ranks:
        from genmetrics.report.progress import on_stderr

        quiet = quiet or not ranks.main

        def show(plan: Plan) -> None:
            if out is not None and ranks.main:
                check_runs(plan, out, several=bool(sets), force=force)
            _tell_plan(plan, quiet)

        reports = run(
            inputs,
            asked,
            running,
            ranks=ranks,
            progress=on_stderr(quiet=quiet),
            show=show,
        )
    if ranks.main:
        from genmetrics.report.record import RunRecord

        how = {"argv": ["genmetrics", *output.ARGUMENTS], "overrides": asked.weights}
        records = {name: RunRecord.of(each, command=how) for name, each in reports.items()}
        _show(records, as_json, quiet)
        if out is not None:
            with output.only_data_on_stdout():
                _write(records, out, several=bool(sets), quiet=quiet)
    return 0 if all(report.ok for report in reports.values()) else 1


def _tell_plan(plan: Plan, quiet: bool) -> None:
    """Say what is about to be compared, so that a wrong folder is seen before the work."""
    for side, found in plan.sets.items():
        samples = found.samples
        ends = f", {samples[0].id} to {samples[-1].id}" if samples else ""
        output.tell(f"{side}: {len(samples):,} images in {found.path}{ends}", quiet=quiet)
    if plan.statistics is not None:
        output.tell(f"reference: statistics of {plan.statistics.source}", quiet=quiet)
    for side in plan.generated:
        pairs = [s for s in plan.sets[side].samples if s.reference is not None]
        for sample in pairs[:1] + pairs[1:][-1:]:
            output.tell(f"pair: {sample.path} with {sample.reference.name}", quiet=quiet)
    for note in dict.fromkeys(n for side in plan.generated for n in plan.notes_of(side)):
        output.tell(f"note: {note}", quiet=quiet)
    output.tell(f"metrics: {', '.join(plan.metrics)}", quiet=quiet)


def _write(records: Mapping[str, RunRecord], out: Path, *, several: bool, quiet: bool) -> None:
    from genmetrics.report.files import write_records

    written = write_records(records, out, several=several)
    output.tell(f"wrote {', '.join(str(path) for path in written)}", quiet=quiet)


def _tables(records: Mapping[str, RunRecord], file: TextIO) -> str:
    title = "{}\n" if len(records) > 1 else ""
    shown = [title.format(name) + output.table(each, file) for name, each in records.items()]
    return "\n".join(shown)


def _show(records: Mapping[str, RunRecord], as_json: bool, quiet: bool) -> None:
    if not as_json:
        output.emit(_tables(records, sys.stdout))
        return
    from genmetrics.report.document import document, to_json

    documents = [document(record) for record in records.values()]
    whole = documents[0] if len(documents) == 1 else documents
    output.emit(f"{to_json(whole, indent=2)}\n")
    if not quiet:
        output.tell_lines(_tables(records, sys.stderr))
