"""Statistics of a reference set: extracted once, stored, used as ``--ref`` ever after."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from genmetrics.core.errors import UsageError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.metrics.base import SetMetric
from genmetrics.run.build import Asked
from genmetrics.run.evaluate import Extracted, Running, extracted
from genmetrics.run.inputs import Inputs
from genmetrics.run.plan import Plan
from genmetrics.run.progress import Progress
from genmetrics.run.ranks import ALONE, Ranks
from genmetrics.run.work import REFERENCE, Failure
from genmetrics.samples.statistics import StatisticsEntry


class BuiltStatistics(NamedTuple):
    """Entries for :func:`~genmetrics.samples.statistics.write_statistics`, and who was left out."""

    entries: list[StatisticsEntry]
    failures: tuple[Failure, ...]


def build_statistics(
    inputs: Inputs,
    asked: Asked,
    running: Running,
    *,
    ranks: Ranks = ALONE,
    progress: Progress | None = None,
) -> BuiltStatistics:
    """Extract the reference side of set metrics; there is no generated set.

    Args:
        inputs: Its ``reference`` is the set.
        asked: Metrics that compare with a reference set.
        running: How to run; every rank gets the entries.
        ranks: The world this process belongs to.
        progress: Told how far the run is.

    Returns:
        One entry an extractor; metrics that share one share its entry.

    Raises:
        GenmetricsError: Bad input or usage, in one line.
    """
    with extracted(inputs, asked, running, ranks, progress, _require_set_metrics) as done:
        return ranks.share(lambda: BuiltStatistics(_entries(done), done.plan.failures))


def _require_set_metrics(plan: Plan) -> None:
    if plan.statistics is not None:
        raise UsageError(f"{plan.statistics.source} holds statistics already; pass images")
    for name, metric in plan.metrics.items():
        if not isinstance(metric, SetMetric) or not metric.needs_reference:
            raise UsageError(f"{name} has no reference set, so there is nothing to build; drop it")


def _entries(done: Extracted) -> list[StatisticsEntry]:
    found = done.plan.sets[REFERENCE]
    arrays: dict[str, dict[str, np.ndarray]] = {}
    specs: dict[str, ExtractorSpec] = {}
    with done.how.ranks.deciding():
        for metric in done.plan.metrics.values():
            assert isinstance(metric, SetMetric)
            spec = metric.spec
            digests = [sample.digest(spec.reads) for sample in found.samples]
            metric.update_features(
                found.samples, {metric.role: done.store.open(spec, digests)}, real=True
            )
            specs[spec.fingerprint] = spec
            _, these = metric.reference_arrays()
            arrays.setdefault(spec.fingerprint, {}).update(these)
            metric.reset()  # rows of one metric at a time are enough to hold
    return [
        StatisticsEntry(specs[key].to_dict(), len(found.samples), arrays[key], found.path)
        for key in specs
    ]
