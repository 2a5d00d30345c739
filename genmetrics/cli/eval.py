"""``genmetrics eval``: judge a set of generated images."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from genmetrics.cli import options, output

if TYPE_CHECKING:
    from genmetrics.run.evaluate import Report
    from genmetrics.run.plan import Plan


def evaluate(
    generated: Annotated[
        Path, typer.Argument(metavar="GENERATED", help="Folder, archive, manifest or npz.")
    ],
    ref: Annotated[
        Path | None,
        typer.Option(
            "--ref",
            metavar="DIR|STATS",
            help="Reference set for metrics of sets: folder, archive or statistics file.",
            rich_help_panel=options.INPUTS,
        ),
    ] = None,
    pair_with: Annotated[
        Path | None,
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
        Path | None,
        typer.Option(
            "--masks",
            metavar="DIR",
            help="Masks, white where an image was allowed to change.",
            rich_help_panel=options.INPUTS,
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="jsonl or csv with id (or file) and prompt.",
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
    processes: options.Processes = None,
    cache: options.Cache = None,
    no_cache: options.NoCache = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write results.json, samples.jsonl and report.html.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
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
    size = options.batch_size(batch_size)
    folder = options.cache(cache, no_cache)
    replaced = options.weights(weights)
    if out is not None:
        from genmetrics.report.files import check_out

        check_out(out)
    with output.only_data_on_stdout(), output.world(processes, device) as ranks:
        from genmetrics.report.progress import on_stderr
        from genmetrics.run.evaluate import how_to_run, run_plan
        from genmetrics.run.plan import Inputs, make_plan

        quiet = quiet or not ranks.main
        how = how_to_run(
            device=device,
            batch_size=size,
            workers=workers,
            on_error=on_error,
            progress=on_stderr(quiet=quiet),
            ranks=ranks,
        )
        plan = make_plan(
            Inputs(
                generated=generated,
                reference=ref,
                pair_with=pair_with,
                pair_by=pair_by,
                masks=masks,
                prompts=prompts,
                layout=layout,
                recursive=recursive,
                limit=limit,
                on_error=on_error,
                allow_missing=allow_missing,
                allow_unverified_reference=allow_unverified_ref,
            ),
            metrics or (),
            suites=suite or (),
            device=device,
            weights=replaced,
            seed=seed,
            precision=precision,
            compiled=compiled,
            decode=decode,
            workers=how.workers,
            ranks=ranks,
        )
        _tell_plan(plan, quiet)
        report = run_plan(plan, how, cache=folder)
    if ranks.main:
        _show(report, as_json, quiet)
        if out is not None:
            with output.only_data_on_stdout():
                _write(report, out, quiet)
    return 0 if report.ok else 1


def _tell_plan(plan: Plan, quiet: bool) -> None:
    """Say what is about to be compared, so that a wrong folder is seen before the work."""
    for side, found in plan.sides.items():
        samples = found.samples
        ends = f", {samples[0].id} to {samples[-1].id}" if samples else ""
        output.tell(f"{side}: {len(samples):,} images in {found.path}{ends}", quiet=quiet)
    if plan.statistics is not None:
        output.tell(f"reference: statistics of {plan.statistics.source}", quiet=quiet)
    pairs = [s for s in plan.sides["generated"].samples if s.reference is not None]
    for sample in pairs[:1] + pairs[1:][-1:]:
        assert sample.reference is not None
        output.tell(f"pair: {sample.path} with {sample.reference.name}", quiet=quiet)
    output.tell(f"metrics: {', '.join(plan.metrics)}", quiet=quiet)


def _write(report: Report, out: Path, quiet: bool) -> None:
    from genmetrics.report.files import write_report

    written = write_report(report, out, command=shlex.join(["genmetrics", *output.ARGUMENTS]))
    output.tell(f"wrote {', '.join(str(path) for path in written)}", quiet=quiet)


def _show(report: Report, as_json: bool, quiet: bool) -> None:
    if not as_json:
        output.emit(output.table(report, sys.stdout))
        return
    from genmetrics.report.document import document, to_json

    output.emit(f"{to_json(document(report), indent=2)}\n")
    if not quiet:
        output.tell_lines(output.table(report, sys.stderr))
