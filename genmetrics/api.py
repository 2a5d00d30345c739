"""The whole evaluation in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from genmetrics.core.metric import Metric
from genmetrics.report.files import check_out, write_report
from genmetrics.run.evaluate import Cache, Report, how_to_run, run_plan
from genmetrics.run.launch import joined
from genmetrics.run.plan import Inputs, make_plan
from genmetrics.run.progress import Progress
from genmetrics.run.ranks import ALONE


def evaluate(
    generated: str | Path,
    reference: str | Path | None = None,
    metrics: str | Metric | Sequence[str | Metric] = (),
    *,
    suite: str | Sequence[str] = (),
    pair_with: str | Path | None = None,
    pair_by: Literal["stem", "order"] = "stem",
    masks: str | Path | None = None,
    prompts: str | Path | None = None,
    layout: str = "auto",
    recursive: bool = False,
    limit: int | None = None,
    device: str = "auto",
    precision: Literal["fp32", "tf32", "bf16"] = "fp32",
    compiled: bool = False,
    decode: Literal["pil", "nvjpeg"] = "pil",
    batch_size: int | Literal["auto"] = "auto",
    workers: int | None = None,
    cache: Cache = None,
    out: str | Path | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    allow_missing: bool = False,
    allow_unverified_reference: bool = False,
    seed: int | None = None,
    weights: Mapping[str, str | Path] | None = None,
    progress: Progress | None = None,
    distributed: bool = False,
) -> Report:
    """Evaluate generated images: one decode, one pass an extractor, every metric.

    Args:
        generated: Folder, archive, manifest or npz of images.
        reference: Reference set in the same forms, or a statistics file of ``stats build``.
        metrics: Metric ids such as ``"fid@clean"`` or ``"kid@tf1:subsets=50"``, or Metric objects.
        suite: Names of suites, such as ``"lite"``.
        pair_with: Folder with the counterpart of each image, for psnr, ssim and their kin.
        pair_by: Pair by file stem, or by natural order.
        masks: Folder of masks, white where an image was allowed to change.
        prompts: jsonl or csv with ``id`` (or ``file``) and ``prompt``.
        layout: How ``generated`` is laid out.
        recursive: Read sub-folders too.
        limit: Use only the first images of each set, in natural order.
        device: Where models run.
        precision: How networks compute; anything but fp32 gives other numbers and another
            fingerprint.
        compiled: Run networks through ``torch.compile``; enters the fingerprint too.
        decode: Who decodes plain JPEGs: Pillow, or on a CUDA device nvJPEG, whose pixels are not
            quite the same; enters the fingerprint too.
        batch_size: Samples a forward pass; ``"auto"`` measures on a GPU, and is 32 on a CPU.
        workers: Decoding threads; None is one a core.
        cache: Folder of the feature store; None is the default, False keeps nothing.
        out: Folder for results.json, samples.jsonl and report.html.
        on_error: ``"fail"`` lists every unusable file and stops; ``"skip"`` leaves them out.
        allow_missing: Score what has a partner or prompt, and report what has none.
        allow_unverified_reference: Accept a bare npz with mu and sigma.
        seed: Replaces the seed of every metric that has one.
        weights: Weight id to a local file that replaces the manifest's.
        progress: Told how far the run is.
        distributed: Share the work among all ranks of the process group, or of torchrun or
            ``accelerate launch``. Every rank must call this with the same arguments, and gets the
            same report; files are written by rank 0. Otherwise this process works alone.

    Returns:
        The report; ``report["fid@clean"].value`` is a number.

    Raises:
        GenmetricsError: Bad input or usage, in one line, before anything was written.
    """
    folder = None if out is None else check_out(Path(out))
    inputs = Inputs(
        generated=generated,
        reference=reference,
        pair_with=pair_with,
        pair_by=pair_by,
        masks=masks,
        prompts=prompts,
        layout=layout,
        recursive=recursive,
        limit=limit,
        on_error=on_error,
        allow_missing=allow_missing,
        allow_unverified_reference=allow_unverified_reference,
    )
    with joined(device) if distributed else ALONE as ranks:
        how = how_to_run(
            device=device,
            batch_size=batch_size,
            workers=workers,
            on_error=on_error,
            progress=progress if ranks.main else None,
            ranks=ranks,
        )
        plan = make_plan(
            inputs,
            [metrics] if isinstance(metrics, str | Metric) else metrics,
            suites=[suite] if isinstance(suite, str) else suite,
            device=device,
            weights=weights,
            seed=seed,
            precision=precision,
            compiled=compiled,
            decode=decode,
            workers=how.workers,
            ranks=ranks,
        )
        report = run_plan(plan, how, cache=cache)
        if folder is not None and ranks.main:
            write_report(report, folder)
    return report
