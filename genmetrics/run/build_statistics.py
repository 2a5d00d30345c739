"""Statistics of a reference set: extracted once, stored, used as ``--ref`` ever after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from genmetrics.core.errors import UsageError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.metric import Metric
from genmetrics.metrics.base import SetMetric
from genmetrics.run.agreement import same_arguments, same_files, same_models
from genmetrics.run.evaluate import Cache, open_store
from genmetrics.run.extract import Failure, How, Side, Who, describe_failures, extract
from genmetrics.run.plan import Plan, SideSet, build_metrics, look_at, without
from genmetrics.run.store import FeatureStore
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
    how: How,
    precision: str = "fp32",
    compiled: bool = False,
    decode: str = "pil",
    cache: Cache = None,
    recursive: bool = False,
    limit: int | None = None,
) -> Built:
    """Extract the reference side of set metrics.

    Args:
        folder: The reference set, in any form ``evaluate`` reads.
        metrics: Ids of metrics that compare with a reference set.
        weights: Weight id to a local file that replaces the manifest's.
        how: From :func:`genmetrics.run.evaluate.how_to_run`; every rank gets the entries.
        precision: How networks compute, as in an evaluation.
        compiled: Whether networks are compiled, as in an evaluation.
        decode: What decodes image files, as in an evaluation.
        cache: Folder of the feature store; None is the default one, False keeps nothing.
        recursive: Read sub-folders too.
        limit: Use only the first images, in natural order.

    Returns:
        One entry an extractor; metrics that share one share its entry.

    Raises:
        GenmetricsError: Bad input or usage, in one line.
    """
    built = _set_metrics(
        build_metrics(
            metrics,
            device=how.device,
            weights=weights,
            precision=precision,
            compiled=compiled,
            decode=decode,
        )
    )
    plan = _plan(built, Path(folder), recursive, limit, how)
    with open_store(cache) as store:
        extraction = extract(plan.jobs(), store, how)
        plan = without(plan, list(extraction.failures.values()))
        return how.ranks.share(lambda: Built(_entries(plan, built, store, how), plan.failures))


def _entries(
    plan: Plan, metrics: Mapping[str, SetMetric], store: FeatureStore, how: How
) -> list[StatisticsEntry]:
    found = plan.sides["reference"]
    arrays: dict[str, dict[str, np.ndarray]] = {}
    specs: dict[str, ExtractorSpec] = {}
    with how.ranks.deciding():
        for metric in metrics.values():
            spec = metric.spec
            digests = [sample.digest(spec.inputs) for sample in found.samples]
            features = {metric.role: store.read(spec, digests)}
            metric.update_features(found.samples, features, real=True)
            specs[spec.fingerprint] = spec
            _, these = metric.reference_arrays()
            arrays.setdefault(spec.fingerprint, {}).update(these)
            metric.reset()  # rows of one metric at a time are enough to hold
    return [
        StatisticsEntry(specs[key].to_dict(), len(found.samples), arrays[key], found.path)
        for key in specs
    ]


def _set_metrics(metrics: Mapping[str, Metric]) -> dict[str, SetMetric]:
    found = {}
    for name, metric in metrics.items():
        if not isinstance(metric, SetMetric) or not metric.needs_reference:
            raise UsageError(f"{name} has no reference set, so there is nothing to build; drop it")
        found[name] = metric
    return found


def _plan(
    metrics: Mapping[str, SetMetric], folder: Path, recursive: bool, limit: int | None, how: How
) -> Plan:
    """Read and check everything before a model loads."""
    from genmetrics.samples.check import check_media
    from genmetrics.samples.sources import read_samples

    same_arguments(how.ranks, folder=folder, recursive=recursive, limit=limit)
    for metric in metrics.values():
        metric.spec.check()
    side = how.ranks.share(
        lambda: SideSet(str(folder), read_samples(folder, recursive=recursive, limit=limit))
    )
    same_models(metrics, how.ranks)
    same_files(side.samples, how.ranks)
    reasons = look_at(side, check_media, how.workers, how.ranks)
    failures = [
        Failure(Who("reference", s), reasons[s.id]) for s in side.samples if s.id in reasons
    ]
    if failures and how.on_error == "fail":
        raise UsageError(describe_failures(failures))
    side.samples = [sample for sample in side.samples if sample.id not in reasons]
    least = max(metric.minimum for metric in metrics.values())
    if len(side.samples) < least:
        raise UsageError(f"{folder} has {len(side.samples)} usable images, needs at least {least}")
    sides: dict[Side, SideSet] = {"reference": side, "generated": SideSet("", [])}
    return Plan(dict(metrics), sides, failures=failures)
