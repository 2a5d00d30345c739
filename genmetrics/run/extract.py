"""Extraction: decode each sample once, run every extractor on it, keep the features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genmetrics.core.errors import InputError, ModelError
from genmetrics.core.fields import FIELDS
from genmetrics.core.state import natural_key
from genmetrics.run.collect import collect
from genmetrics.run.remote import RemoteStage
from genmetrics.run.stage import Stage
from genmetrics.run.store import FeatureStore
from genmetrics.run.work import REFERENCE, Extraction, Failure, How, Job, Place, describe_failures


def extract(jobs: Sequence[Job], store: FeatureStore, how: How) -> Extraction:
    """Bring the features of every job into the main rank's store.

    Nothing that a rank's store holds is computed again, and models that have nothing to do are not
    loaded. Extractors in lane ``shared`` that read the same view share one decode of each sample;
    each of the other lanes has a pass of its own, and its model is gone before the next one comes.
    With ``how.shrink`` a batch that does not fit the device's memory is halved, for this extractor
    and from then on.

    Returns:
        The same on every rank.

    Raises:
        OutOfMemoryError: A batch does not fit the device's memory and may not shrink.
        InputError: With ``on_error="fail"``, after the remaining files were decoded once (for at
            most :data:`genmetrics.samples.check.NAMING` seconds): lists all that cannot be used.
        ModelError: With ``on_error="fail"``, a model raised; names the sample.
        RankError: Another rank ended.
    """
    outcome = Extraction()
    for what, some in stages(jobs):
        kind = RemoteStage if some[0].spec.lane == "remote" else Stage
        kind(some, store, outcome, how).run(what)
    fatal = [failure for failure in outcome.failures.values() if failure.fatal]
    if how.on_error == "fail" and fatal:
        error = ModelError if all(failure.raised for failure in fatal) else InputError
        raise error(describe_failures(fatal, outcome.unseen))
    for job in jobs:
        collect(job, store, how.ranks)
    # in an order that does not depend on who was first to fail
    outcome.failures = dict(sorted(outcome.failures.items(), key=_place))
    return outcome


def stages(jobs: Sequence[Job]) -> list[tuple[str, list[Job]]]:
    """Group jobs by the pass they share, and name what each pass reads.

    Shared passes come first, and of these the ones that open files; a large model comes last, when
    nothing else is on the device.
    """
    groups: dict[tuple[int, str, int], list[Job]] = {}
    for i, job in enumerate(jobs):
        shared = job.spec.lane == "shared"
        key = ("shared", "remote", "alone").index(job.spec.lane), _reads(job), -1 if shared else i
        groups.setdefault(key, []).append(job)
    order = sorted(groups, key=lambda key: (key[0], key[1] == "texts", key[2]))
    return [(key[1], groups[key]) for key in order]


def _place(entry: tuple[tuple[Place, str | None], Failure]) -> tuple[Any, ...]:
    (side, id_), extractor = entry[0]
    return side != REFERENCE, side, natural_key(id_), extractor or ""


def _reads(job: Job) -> str:
    spec = job.spec
    if spec.view != "whole":
        return spec.view.replace("_", " ")
    stored = any(name in FIELDS and FIELDS[name].stored for name in spec.reads)
    return "images" if stored else "texts"
