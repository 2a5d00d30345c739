"""Evaluation: plan, extract, decide."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import nan
from pathlib import Path
from typing import Any, Literal

from genmetrics.core.errors import (
    UsageError,
    require_choice,
    require_number,
)
from genmetrics.core.extractor import ExtractorSpec, Features
from genmetrics.core.metric import Metric
from genmetrics.core.result import Result
from genmetrics.core.sample import Sample
from genmetrics.run.agreement import same_arguments
from genmetrics.run.extract import (
    CONVERSIONS,
    Extraction,
    Failure,
    How,
    OnError,
    Side,
    count_conversions,
    extract,
)
from genmetrics.run.plan import Plan, SideSet, without
from genmetrics.run.progress import Progress, Silent
from genmetrics.run.ranks import ALONE, Ranks
from genmetrics.run.store import FeatureStore

BATCH = {"cpu": 32, "cuda": 128}
"""Batch size of ``"auto"`` by kind of device, where none was measured (see
:mod:`genmetrics.run.batch_size`). On a CPU no backbone gets faster beyond 32."""

# What belongs to generated samples, and its name in the report's inputs.
_BESIDE = {"reference": "counterparts", "mask": "masks", "prompt": "prompts", "spec": "specs"}

Cache = str | Path | Literal[False] | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Mapping[str, Result]):
    """What a run found: ``report["fid@clean"]``, or ``report["fid"]``, is a Result."""

    results: Mapping[str, Result]
    inputs: Mapping[str, Mapping[str, Any]]
    samples: tuple[Sample, ...]
    """Generated samples in natural order of id, those that failed included."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Ids with the options they were asked for, to their keys in ``results``."""

    failures: tuple[Failure, ...] = ()
    missing: tuple[str, ...] = ()
    conversions: Mapping[str, int] = field(default_factory=dict)
    runtime: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""

    def __getitem__(self, name: str) -> Result:
        if name in self.results:
            return self.results[name]
        if name in self.asked:
            return self.results[self.asked[name]]
        close = [key for key in self.results if name in _shorter(key)]
        if len(close) == 1:
            return self.results[close[0]]
        if close:
            raise KeyError(f"{name!r} is not one metric here; ask for one of {', '.join(close)}")
        raise KeyError(f"{name!r} is not in this report, which has {', '.join(self.results)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={result.value}" for name, result in self.results.items())
        return f"Report({values})"

    @property
    def ok(self) -> bool:
        """Whether every metric has a value and nothing was skipped or missing."""
        complete = not self.failures and not self.missing
        return complete and all(r.status == "ok" for r in self.results.values())


def _shorter(key: str) -> tuple[str, str]:
    """The key without its options, and without its variant."""
    base = key.split(":")[0]
    return base, base.split("@")[0]


def how_to_run(
    *,
    device: str = "auto",
    batch_size: int | Literal["auto"] = "auto",
    workers: int | None = None,
    on_error: OnError = "fail",
    progress: Progress | None = None,
    ranks: Ranks = ALONE,
) -> How:
    """Settle how to run.

    Args:
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:N"``.
        batch_size: Samples a forward pass; ``"auto"`` measures on a GPU, once an extractor and a
            card, and halves where memory ends; on a CPU it is 32.
        workers: Decoding threads of a rank; None is one for each of its cores.
        on_error: Whether an unusable sample stops the run or is left out and named.
        progress: Told how far the run is.
        ranks: The world this process belongs to.

    Raises:
        UsageError: One of them does not exist or does not fit.
    """
    device = ranks.device(device)
    workers = ranks.cores if workers is None else workers
    require_number("run", "workers", workers, 1)
    require_choice("run", "on_error", on_error, ("fail", "skip"))
    same_arguments(ranks, batch_size=batch_size, on_error=on_error)
    return How(
        device=device,
        batch_size=first_batch_size(batch_size, device),
        shrink=batch_size == "auto",
        workers=workers,
        on_error=on_error,
        progress=progress or Silent(),
        ranks=ranks,
    )


def run_plan(plan: Plan, how: How, *, cache: Cache = None) -> Report:
    """Extract what the plan's metrics ask for and compute them all.

    Every rank extracts; the main rank decides, with all cores, and every rank gets its report.

    Args:
        plan: From :func:`genmetrics.run.plan.make_plan`, in the same world.
        how: From :func:`how_to_run`.
        cache: Folder of the feature store; None is the default one, False keeps nothing.
    """
    started = time.monotonic()
    samples = _all_samples(plan)
    with open_store(cache) as store:
        extraction = extract(plan.jobs(), store, how)
        plan = without(plan, list(extraction.failures.values()))

        def decide() -> Report:
            reader = _Reader(store)
            with how.ranks.deciding():
                results = {name: _decide(plan, m, reader) for name, m in plan.metrics.items()}
            conversions = reader.conversions(plan)
            return Report(
                results=results,
                asked=plan.asked,
                inputs=_describe_inputs(plan),
                samples=tuple(samples),
                failures=tuple(plan.failures),
                missing=tuple(plan.missing),
                conversions=conversions,
                runtime=_describe_runtime(extraction, plan, how, time.monotonic() - started),
                created=datetime.now(UTC).isoformat(timespec="seconds"),
            )

        return how.ranks.share(decide)


def first_batch_size(batch_size: int | Literal["auto"], device: str) -> int:
    """Return the batch size a run starts with.

    Raises:
        UsageError: Below 1.
    """
    if batch_size == "auto":
        return BATCH.get(device.split(":")[0], BATCH["cpu"])
    if not isinstance(batch_size, int) or batch_size < 1:
        raise UsageError(f"batch size is {batch_size!r}; it must be 1 or more, or auto")
    return batch_size


@contextmanager
def open_store(cache: Cache) -> Iterator[FeatureStore]:
    """Open the feature store; without a cache it lives only as long as the run."""
    if cache is False:
        with tempfile.TemporaryDirectory(prefix="genmetrics-") as folder:
            yield FeatureStore(folder)
        return
    if cache is None:
        from genmetrics.weights import home

        cache = home() / "features"
    root = Path(cache).expanduser()
    existing = next(place for place in (root, *root.absolute().parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "may not be written" if existing.is_dir() else "is a file"
        raise UsageError(f"cache {root}: {existing} {why}; pass another --cache, or --no-cache")
    yield FeatureStore(root)


class _Reader:
    """Reads features of a side once, whatever the number of metrics that use them."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self._known: dict[tuple[str, Side], Features] = {}

    def read(self, spec: ExtractorSpec, side: Side, samples: list[Sample]) -> Features:
        key = (spec.fingerprint, side)
        if key not in self._known:
            digests = [sample.digest(spec.inputs) for sample in samples]
            self._known[key] = self.store.read(spec, digests)
        return self._known[key]

    def conversions(self, plan: Plan) -> dict[str, int]:
        """Count conversions over all decoded samples, each once."""
        names: dict[tuple[Side, str], set[str]] = {}
        for (_, side), features in self._known.items():
            rows = features[CONVERSIONS]
            for sample, row in zip(plan.sides[side].samples, rows, strict=True):
                names.setdefault((side, sample.id), set()).update(row)
        return dict(sorted(count_conversions(sorted(row) for row in names.values()).items()))


def _decide(plan: Plan, metric: Metric, reader: _Reader) -> Result:
    """Give a metric its features in natural order of id and compute."""
    counts = {side: len(found.samples) for side, found in plan.sides.items()}
    sides: tuple[Side, ...] = ("generated",)
    if plan.reads_reference(metric):
        sides = ("reference", "generated")
    try:
        metric.reset()  # a plan may be run twice
        for side in sides:
            samples = plan.sides[side].samples
            if not samples:
                raise UsageError(f"no {side} image is left; see what was skipped")
            features = {
                role: reader.read(spec, side, samples) for role, spec in metric.extractors.items()
            }
            metric.update_features(samples, features, real=side == "reference")
        result = metric.compute()
    except Exception as error:
        # Whatever a metric or a library under it raises must not take the other metrics' results
        # along, after hours of extraction; it is told in the result and by the exit code.
        return metric.failed(error, n=counts["generated"], n_reference=counts.get("reference", 0))
    notes = plan.notes(metric)
    asked = [name for name, key in plan.asked.items() if plan.metrics[key] is metric]
    if asked and ":" in asked[0]:
        notes.append(f"options: {asked[0].partition(':')[2]}")
    if plan.missing:
        notes.append(f"not comparable: {len(plan.missing)} names had no counterpart, left out")
    result = replace(result, warnings=(*result.warnings, *notes))
    failed = [f.who.sample.id for f in plan.failures if f.who.side == "generated"]
    if failed and result.per_sample is not None:
        result = replace(result, per_sample={**result.per_sample, **dict.fromkeys(failed, nan)})
    return result


def _all_samples(plan: Plan) -> list[Sample]:
    from genmetrics.core.state import natural_key

    failed = [f.who.sample for f in plan.failures if f.who.side == "generated"]
    return sorted([*plan.sides["generated"].samples, *failed], key=lambda s: natural_key(s.id))


def _describe_inputs(plan: Plan) -> dict[str, dict[str, Any]]:
    described: dict[str, dict[str, Any]] = {
        side: {"path": found.path, "n": len(found.samples), "digest": found.digest("image")}
        for side, found in plan.sides.items()
    }
    generated = plan.sides["generated"]
    for kind, name in _BESIDE.items():
        having = [s for s in generated.samples if getattr(s, kind) is not None]
        if having:
            described[name] = {
                "path": plan.sources.get(kind, generated.path),
                "n": len(having),
                # with the image, because it matters which belongs to which
                "digest": SideSet(generated.path, having).digest("image", kind),
            }
    for metric in plan.metrics.values():
        described |= metric.recorded_inputs()
    if plan.statistics is not None:
        described["reference"] = {
            "path": plan.statistics.source,
            "n": max((entry.n for entry in plan.statistics.entries), default=0),
            "digest": plan.statistics.digest,
            "verified": all(entry.verified for entry in plan.statistics.entries),
        }
    return dict(sorted(described.items()))


def _describe_runtime(
    extraction: Extraction, plan: Plan, how: How, seconds: float
) -> dict[str, Any]:
    images = sum(len(found.samples) for found in plan.sides.values())
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
