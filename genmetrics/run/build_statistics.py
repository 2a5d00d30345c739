"""Statistics of a reference set: extracted once, stored, used as ``--ref`` ever after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from genmetrics.core.device import resolve_device
from genmetrics.core.errors import UsageError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.metric import Metric
from genmetrics.metrics.base import SetMetric
from genmetrics.run.evaluate import Cache, default_workers, first_batch_size, open_store
from genmetrics.run.extract import Failure, OnError, Who, describe_failures, extract
from genmetrics.run.plan import Plan, SideSet, build_metrics, without
from genmetrics.run.progress import Progress, Silent
from genmetrics.samples.statistics import StatisticsEntry


class Built(NamedTuple):
    """Entries for :func:`~genmetrics.samples.statistics.write_statistics`, and who was left out."""

    entries: list[StatisticsEntry]
    failures: list[Failure]


def build_statistics(
    folder: str | Path,
    metrics: Sequence[str],
    *,
    weights: Mapping[str, str | Path] | None = None,
    device: str = "auto",
    precision: str = "fp32",
    compiled: bool = False,
    batch_size: int | Literal["auto"] = "auto",
    workers: int | None = None,
    cache: Cache = None,
    recursive: bool = False,
    limit: int | None = None,
    on_error: OnError = "fail",
    progress: Progress | None = None,
) -> Built:
    """Extract the reference side of set metrics.

    Args:
        folder: The reference set, in any form ``evaluate`` reads.
        metrics: Ids of metrics that compare with a reference set.
        weights: Weight id to a local file that replaces the manifest's.
        device: Where models run.
        precision: How networks compute, as in an evaluation.
        compiled: Whether networks are compiled, as in an evaluation.
        batch_size: Samples a forward pass; ``"auto"`` as in an evaluation.
        workers: Decoding threads; None is one a core.
        cache: Folder of the feature store; None is the default one, False keeps nothing.
        recursive: Read sub-folders too.
        limit: Use only the first images, in natural order.
        on_error: Whether an unusable sample stops the work or is left out and named.
        progress: Told how far the work is.

    Returns:
        One entry an extractor; metrics that share one share its entry.

    Raises:
        GenmetricsError: Bad input or usage, in one line.
    """
    built = _set_metrics(
        build_metrics(
            metrics, device=device, weights=weights, precision=precision, compiled=compiled
        )
    )
    workers = default_workers() if workers is None else workers
    plan = _plan(built, Path(folder), recursive, limit, on_error, workers)
    with open_store(cache) as store:
        extraction = extract(
            plan.jobs(),
            store,
            device=resolve_device(device),
            batch_size=first_batch_size(batch_size, resolve_device(device)),
            shrink=batch_size == "auto",
            workers=workers,
            on_error=on_error,
            progress=progress or Silent(),
        )
        plan = without(plan, list(extraction.failures.values()))
        samples = plan.sides["reference"].samples
        arrays: dict[str, dict[str, np.ndarray]] = {}
        specs: dict[str, ExtractorSpec] = {}
        for metric in built.values():
            spec = metric.spec
            digests = [sample.digest(spec.inputs) for sample in samples]
            metric.update_features(samples, {metric.role: store.read(spec, digests)}, real=True)
            _, found = metric.reference_arrays()
            specs[spec.fingerprint] = spec
            arrays.setdefault(spec.fingerprint, {}).update(found)
            metric.reset()  # rows of one metric at a time are enough to hold
    entries = [
        StatisticsEntry(specs[key].to_dict(), len(samples), arrays[key], str(folder))
        for key in specs
    ]
    return Built(entries, plan.failures)


def _set_metrics(metrics: Mapping[str, Metric]) -> dict[str, SetMetric]:
    found = {}
    for name, metric in metrics.items():
        if not isinstance(metric, SetMetric) or not metric.needs_reference:
            raise UsageError(f"{name} has no reference set, so there is nothing to build; drop it")
        found[name] = metric
    return found


def _plan(
    metrics: Mapping[str, SetMetric],
    folder: Path,
    recursive: bool,
    limit: int | None,
    on_error: OnError,
    workers: int,
) -> Plan:
    """Read and check everything before a model loads."""
    from genmetrics.samples.check import check_media
    from genmetrics.samples.sources import read_samples

    for metric in metrics.values():
        metric.spec.check()
    samples = read_samples(folder, recursive=recursive, limit=limit)
    reasons = check_media(samples, workers=workers)
    failures = [Failure(Who("reference", s), reasons[s.id]) for s in samples if s.id in reasons]
    if failures and on_error == "fail":
        raise UsageError(describe_failures(failures))
    kept = [sample for sample in samples if sample.id not in reasons]
    least = max(metric.minimum for metric in metrics.values())
    if len(kept) < least:
        raise UsageError(f"{folder} has {len(kept)} usable images, needs at least {least}")
    sides = {"reference": SideSet(str(folder), kept), "generated": SideSet("", [])}
    return Plan(dict(metrics), sides, failures=failures)  # type: ignore[arg-type]
