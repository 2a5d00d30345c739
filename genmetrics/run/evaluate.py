"""The whole of a run: plan, extract, decide."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from genmetrics.core.errors import UsageError, require_choice, require_number
from genmetrics.run.agreement import same_arguments
from genmetrics.run.build import Asked
from genmetrics.run.decide import Decider, Report, all_samples, describe_inputs
from genmetrics.run.extract import extract
from genmetrics.run.inputs import Inputs
from genmetrics.run.plan import Plan, make_plan
from genmetrics.run.progress import Progress, Silent
from genmetrics.run.ranks import ALONE, Ranks
from genmetrics.run.store import FeatureStore
from genmetrics.run.work import QUEUE_MB, Extraction, How, OnError, Side

BATCH = {"cpu": 32, "cuda": 128}
"""Batch size of ``"auto"`` by kind of device, where none was measured (see
:mod:`genmetrics.run.batch_size`). On a CPU no backbone gets faster beyond 32."""

LARGEST = 1 << 16
"""Largest batch: every one is filled up to its size."""

Cache = str | Path | Literal[False] | None


@dataclass(frozen=True, kw_only=True)
class Running:
    """How to run; of all this only the batch size moves numbers, in their last digits.

    Attributes:
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:N"``.
        batch_size: Samples a forward pass; ``"auto"`` measures on a GPU, once an extractor and a
            card, and halves where memory ends; on a CPU it is 32.
        workers: Decoding threads of a rank; None is one for each of its cores.
        queue_mb: Most MiB of prepared inputs that wait for the models.
        cache: Folder of the feature store; None is the default one, False keeps nothing.
    """

    device: str = "auto"
    batch_size: int | Literal["auto"] = "auto"
    workers: int | None = None
    queue_mb: int = QUEUE_MB
    cache: Cache = None


class Extracted(NamedTuple):
    """A plan whose features are in the store."""

    plan: Plan
    store: FeatureStore
    how: How
    extraction: Extraction
    started: float


def evaluate(
    inputs: Inputs,
    asked: Asked,
    running: Running,
    *,
    ranks: Ranks = ALONE,
    progress: Progress | None = None,
    show: Callable[[Plan], object] = lambda plan: None,
) -> dict[Side, Report]:
    """Extract what the metrics ask for and compute them all, for each generated set.

    Every rank extracts; the main rank decides, with all cores, and every rank gets the reports.

    Args:
        inputs: Where the samples come from.
        asked: What is to be computed.
        running: How.
        ranks: The world this process belongs to.
        progress: Told how far the run is.
        show: Called with the plan before a model loads.

    Raises:
        GenmetricsError: Bad input or usage, in one line.
    """
    with extracted(inputs, asked, running, ranks, progress, show) as done:
        return ranks.share(lambda: _decide(done))


@contextmanager
def extracted(
    inputs: Inputs,
    asked: Asked,
    running: Running,
    ranks: Ranks,
    progress: Progress | None,
    show: Callable[[Plan], object] = lambda plan: None,
) -> Iterator[Extracted]:
    """Plan and extract; the features are there as long as the block lasts."""
    how = how_to_run(running, inputs.on_error, ranks=ranks, progress=progress)
    plan = make_plan(inputs, asked, device=running.device, workers=how.workers, ranks=ranks)
    show(plan)
    started = time.monotonic()
    with feature_store(running.cache) as store:
        extraction = extract(plan.jobs(), store, how)
        plan = plan.without(list(extraction.failures.values()))
        yield Extracted(plan, store, how, extraction, started)


def _decide(done: Extracted) -> dict[Side, Report]:
    plan, store, how, extraction, started = done
    decider = Decider(plan, store)
    with how.ranks.deciding():
        results = decider.results()
    runtime = _describe_runtime(extraction, plan, how, time.monotonic() - started)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        side: Report(
            name=side,
            results=found,
            asked=plan.asked,
            inputs=describe_inputs(plan, side),
            samples=all_samples(plan, side),
            failures=tuple(f for f in plan.failures if f.who.side not in results.keys() - {side}),
            missing=plan.missing.get(side, ()),
            conversions=decider.conversions(side),
            notes=plan.notes_of(side),
            runtime=runtime,
            created=created,
        )
        for side, found in results.items()
    }


def how_to_run(
    running: Running,
    on_error: OnError = "fail",
    *,
    ranks: Ranks = ALONE,
    progress: Progress | None = None,
) -> How:
    """Settle how to run.

    Raises:
        UsageError: A choice does not exist or does not fit.
    """
    device = ranks.device(running.device)
    workers = ranks.cores if running.workers is None else running.workers
    require_number("run", "workers", workers, 1)
    require_number("run", "queue_mb", running.queue_mb, 1)
    require_choice("run", "on_error", on_error, ("fail", "skip"))
    same_arguments(ranks, batch_size=running.batch_size, on_error=on_error)
    return How(
        device=device,
        devices=devices_of(device, ranks),
        batch_size=first_batch_size(running.batch_size, device),
        shrink=running.batch_size == "auto",
        workers=workers,
        on_error=on_error,
        progress=progress or Silent(),
        ranks=ranks,
        queue_bytes=running.queue_mb << 20,
    )


def devices_of(device: str, ranks: Ranks) -> tuple[str, ...]:
    """Return the devices of a rank: every card for a process alone that asked for no certain one.

    Args:
        device: As :meth:`Ranks.device` gives it.
        ranks: The world this process belongs to.
    """
    if device != "cuda" or ranks.world > 1:
        return (device,)
    import torch

    return tuple(f"cuda:{i}" for i in range(torch.cuda.device_count()))


def first_batch_size(batch_size: int | Literal["auto"], device: str) -> int:
    """Return the batch size a run starts with.

    Raises:
        UsageError: Below 1.
    """
    if batch_size == "auto":
        return BATCH.get(device.split(":")[0], BATCH["cpu"])
    if not isinstance(batch_size, int) or not 1 <= batch_size <= LARGEST:
        raise UsageError(f"batch size is {batch_size!r}; it must be 1 to {LARGEST}, or auto")
    return batch_size


@contextmanager
def feature_store(cache: Cache) -> Iterator[FeatureStore]:
    """Open the feature store; without a cache it lives only as long as the run."""
    if cache is False:
        with tempfile.TemporaryDirectory(prefix="genmetrics-") as folder:
            yield FeatureStore(folder, durable=False)
        return
    if cache is None:
        from genmetrics.weights import home

        cache = home() / "features"
    if not isinstance(cache, str | Path):
        raise UsageError(f"cache={cache!r}; pass a folder, False to keep nothing, or None")
    root = Path(cache).expanduser()
    existing = next(place for place in (root, *root.absolute().parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "may not be written" if existing.is_dir() else "is a file"
        raise UsageError(f"cache {root}: {existing} {why}; pass another --cache, or --no-cache")
    yield FeatureStore(root)


def _describe_runtime(
    extraction: Extraction, plan: Plan, how: How, seconds: float
) -> dict[str, Any]:
    images = sum(len(found.samples) for found in plan.sets.values())
    return {
        "device": how.device,
        "precision": _precision(plan),
        "processes": how.ranks.world,
        "batch_size": extraction.batch_size,
        "workers": how.workers,
        "features_computed": extraction.computed,
        "features_reused": extraction.reused,
        "seconds": round(seconds, 3),
        "images_per_second": round(images / seconds, 3) if seconds > 0 else None,
    }


def _precision(plan: Plan) -> str:
    """How the plan's networks compute; fp32 where there is none."""
    found = {
        precision
        for metric in plan.metrics.values()
        for spec in metric.extractors.values()
        if (precision := getattr(spec, "precision", None)) is not None
    }
    return ", ".join(sorted(found)) or "fp32"
