"""The whole evaluation in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from genmetrics.core.errors import UsageError
from genmetrics.core.metric import Metric
from genmetrics.report.files import check_out, check_runs, write_records
from genmetrics.report.record import RunRecord
from genmetrics.run.build import Asked
from genmetrics.run.evaluate import Cache, Running
from genmetrics.run.evaluate import evaluate as run
from genmetrics.run.inputs import Inputs, joined_fields
from genmetrics.run.launch import joined
from genmetrics.run.plan import Plan
from genmetrics.run.progress import Progress
from genmetrics.run.ranks import ALONE
from genmetrics.run.work import GENERATED, QUEUE_MB


def evaluate(
    generated: Any,
    reference: Any = None,
    metrics: str | Metric | Sequence[str | Metric] = (),
    *,
    suite: str | Sequence[str] = (),
    pair_with: str | Path | None = None,
    pair_by: Literal["stem", "order"] = "stem",
    masks: str | Path | None = None,
    prompts: str | Path | None = None,
    fields: Mapping[str, str | Path] | None = None,
    layout: str = "auto",
    recursive: bool = False,
    limit: int | None = None,
    device: str = "auto",
    precision: Literal["fp32", "tf32", "bf16"] = "fp32",
    compiled: bool = False,
    decode: Literal["pil", "nvjpeg"] = "pil",
    batch_size: int | Literal["auto"] = "auto",
    workers: int | None = None,
    queue_mb: int = QUEUE_MB,
    cache: Cache = None,
    out: str | Path | None = None,
    force: bool = False,
    on_error: Literal["fail", "skip"] = "fail",
    allow_missing: bool = False,
    allow_unverified_reference: bool = False,
    seed: int | None = None,
    weights: Mapping[str, str | Path] | None = None,
    progress: Progress | None = None,
    distributed: bool = False,
) -> Any:
    """Evaluate generated images: one decode, one pass an extractor, every metric.

    Args:
        generated: Folder, archive, manifest or npz of images; or several such by name, which are
            judged in one pass.
        reference: Reference set in the same forms, or a statistics file of ``stats build``.
        metrics: Metric ids such as ``"fid@clean"`` or ``"kid@tf1:subsets=50"``, or Metric objects.
        suite: Names of suites, such as ``"lite"``.
        pair_with: Folder with the counterpart of each image, for psnr, ssim and their kin.
        pair_by: Pair by file stem, or by natural order.
        masks: Folder of masks, white where an image was allowed to change.
        prompts: jsonl or csv with ``id`` (or ``file``) and ``prompt``.
        fields: Further fields of samples by name, each a folder whose files have the names of the
            images, or a table.
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
        queue_mb: Most MiB of prepared images that wait for the models.
        cache: Folder of the feature store; None is the default, False keeps nothing.
        out: Folder for results.json, samples.jsonl and report.html; of several sets, one folder
            each in it.
        force: Replace another run's results in ``out``.
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
        The report; ``report["fid@clean"].value`` is a number. Of several sets, name to report.

    Raises:
        GenmetricsError: Bad input or usage, in one line, before anything was written.
    """
    folder = None if out is None else check_out(Path(out))
    several = isinstance(generated, Mapping)
    if several and not generated:
        raise UsageError("generated is empty; pass a set of images, or several by name")
    inputs = Inputs(
        generated=dict(generated) if several else {GENERATED: generated},
        reference=reference,
        joined=joined_fields({**(fields or {})}, pair_with=pair_with, masks=masks, prompts=prompts),
        pair_by=pair_by,
        layout=layout,
        recursive=recursive,
        limit=limit,
        on_error=on_error,
        allow_missing=allow_missing,
        allow_unverified_reference=allow_unverified_reference,
    )
    asked = Asked(
        metrics=[metrics] if isinstance(metrics, str | Metric) else metrics,
        suites=[suite] if isinstance(suite, str) else suite,
        weights=dict(weights or {}),
        seed=seed,
        precision=precision,
        compiled=compiled,
        decode=decode,
    )
    running = Running(
        device=device, batch_size=batch_size, workers=workers, queue_mb=queue_mb, cache=cache
    )
    with joined(device) if distributed else ALONE as ranks:

        def check(plan: Plan) -> None:
            if folder is not None and ranks.main:
                check_runs(plan, folder, several=several, force=force)

        shown = progress if ranks.main else None
        reports = run(inputs, asked, running, ranks=ranks, progress=shown, show=check)
        if folder is not None and ranks.main:
            how = {"overrides": asked.weights}
            records = {name: RunRecord.of(each, command=how) for name, each in reports.items()}
            write_records(records, folder, several=several)
    return reports if several else reports[GENERATED]
