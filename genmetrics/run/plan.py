"""The plan: everything a run needs, validated before a model loads."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from genmetrics.core.device import resolve_device
from genmetrics.core.errors import TooFewSamplesError, UsageError, require_number
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.metric import Metric
from genmetrics.core.registry import Request, create, parse
from genmetrics.core.sample import Sample
from genmetrics.extractors._model import precision_on, require_decode
from genmetrics.metrics.base import SetMetric
from genmetrics.run.agreement import same_arguments, same_files, same_models
from genmetrics.run.extract import Failure, Job, OnError, Side, Who, describe_failures
from genmetrics.run.ranks import ALONE, Ranks
from genmetrics.run.suites import suite
from genmetrics.samples.statistics import Statistics, is_statistics, read_statistics

Metrics = Sequence[str | Metric]

# What to pass so that a metric's input is there.
_NAMES = {"reference": "counterpart", "reference_set": "reference set"}
_SOURCES = {
    "prompt": "--prompts FILE (jsonl or csv with id and prompt)",
    "reference": "--pair-with DIR",
    "reference_set": "--ref DIR or a statistics file",
    "spec": "a layout that carries it, such as --layout geneval",
}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Where the samples of a run come from; the arguments of ``evaluate`` that name data."""

    generated: str | Path
    reference: str | Path | None = None
    pair_with: str | Path | None = None
    pair_by: Literal["stem", "order"] = "stem"
    masks: str | Path | None = None
    prompts: str | Path | None = None
    layout: str = "auto"
    recursive: bool = False
    limit: int | None = None
    on_error: OnError = "fail"
    allow_missing: bool = False
    allow_unverified_reference: bool = False


@dataclass
class SideSet:
    """The samples of one side, in natural order of id."""

    path: str
    samples: list[Sample]
    notes: tuple[str, ...] = ()
    """What every metric of this side should say of the files, such as those that are no images."""

    def digest(self, *fields: str) -> str:
        """sha256 over the sorted content digests of each sample's fields.

        Equal sets have equal digests, whatever their names and order.
        """
        digests = sorted(sample.digest(fields) for sample in self.samples)
        return "sha256:" + hashlib.sha256("\n".join(digests).encode()).hexdigest()


@dataclass
class Plan:
    """Validated inputs and metrics of a run."""

    metrics: dict[str, Metric]
    sides: dict[Side, SideSet]
    statistics: Statistics | None = None
    failures: list[Failure] = field(default_factory=list)
    """Samples already known to be unusable; they are in no side."""
    missing: list[str] = field(default_factory=list)
    """Names without a partner, allowed by ``allow_missing``."""
    asked: dict[str, str] = field(default_factory=dict)
    """Ids with the options they were asked for, to their keys in ``metrics``."""

    sources: dict[str, str] = field(default_factory=dict)
    """Field of the generated samples to the path it was read from, where that is another one."""

    def notes(self, metric: Metric) -> list[str]:
        """What a reader of a metric should know of the files, and of copies in sets."""
        notes = list(self.sides["generated"].notes)
        if self.reads_reference(metric):
            notes += self.sides["reference"].notes
        if not isinstance(metric, SetMetric):
            return notes
        generated = self._contents("generated")
        copies = len(generated) - len(set(generated))
        if copies:
            notes.append(f"{copies} of {len(generated)} generated images are copies of others")
        if self.reads_reference(metric):
            common = set(generated) & set(self._contents("reference"))
            if common:
                notes.append(
                    f"{len(common)} images are in both the generated and the reference set"
                )
        return notes

    def _contents(self, side: Side) -> list[str]:
        return [sample.digest(("image",)) for sample in self.sides[side].samples]

    def members(self, metric: Metric) -> list[Who]:
        """Samples the metric must see, the reference side first."""
        sides: tuple[Side, ...] = ("generated",)
        if self.reads_reference(metric):
            sides = ("reference", "generated")
        return [Who(side, sample) for side in sides for sample in self.sides[side].samples]

    def reads_reference(self, metric: Metric) -> bool:
        """Whether the metric extracts features of a reference set in this run."""
        return (
            isinstance(metric, SetMetric)
            and metric.needs_reference
            and self.statistics is None
            and "reference" in self.sides
        )

    def jobs(self) -> list[Job]:
        """One job an extractor, however many metrics ask for it."""
        members: dict[str, dict[tuple[Side, str], Who]] = {}
        specs: dict[str, ExtractorSpec] = {}
        for metric in self.metrics.values():
            for spec in metric.extractors.values():
                specs.setdefault(spec.fingerprint, spec)
                seen = members.setdefault(spec.fingerprint, {})
                seen.update({who.place: who for who in self.members(metric)})
        return [Job(specs[key], tuple(_ordered(members[key].values()))) for key in specs]


def _ordered(members: Any) -> list[Who]:
    """Reference first, each side in the order of its samples."""
    listed = list(members)
    return [who for side in ("reference", "generated") for who in listed if who.side == side]


def make_plan(
    inputs: Inputs,
    metrics: Metrics = (),
    *,
    suites: Sequence[str] = (),
    device: str = "auto",
    weights: Mapping[str, str | Path] | None = None,
    seed: int | None = None,
    precision: str = "fp32",
    compiled: bool = False,
    decode: str = "pil",
    workers: int = 4,
    ranks: Ranks = ALONE,
) -> Plan:
    """Read every input, build every metric, and refuse what cannot work, before a model loads.

    The main rank lists the samples; each rank opens and hashes its part of them. Every rank gets
    the same plan.

    Raises:
        GenmetricsError: One line that says what, where, the value found, and the fix.
    """
    require_number("run", "workers", workers, 1)
    choices = {"suites": list(suites), "seed": seed, "precision": precision, "compiled": compiled}
    same_arguments(ranks, **vars(inputs), **choices, decode=decode)
    asked: dict[str, str] = {}
    built = build_metrics(
        metrics,
        asked=asked,
        suites=suites,
        device=ranks.device(device),
        weights=weights,
        seed=seed,
        precision=precision,
        compiled=compiled,
        decode=decode,
    )
    _require_sources(built, inputs)
    reads = _fields_read(built)
    sides, statistics, missing = ranks.share(lambda: _read_inputs(inputs, reads))
    sources = {
        field: str(path)
        for field, path in (
            ("prompt", inputs.prompts),
            ("reference", inputs.pair_with),
            ("mask", inputs.masks),
        )
        if path is not None
    }
    plan = Plan(built, sides, statistics, missing=missing, asked=asked, sources=sources)
    for metric in built.values():
        if statistics is not None and isinstance(metric, SetMetric) and metric.needs_reference:
            metric.load_reference(statistics.entry(metric.spec))
        for spec in metric.extractors.values():
            spec.check()
    same_models(built, ranks)
    for found in sides.values():
        same_files(found.samples, ranks)
    _check_media(plan, inputs, workers, ranks)
    _require_counts(plan)
    return plan


def _fields_read(metrics: Mapping[str, Metric]) -> frozenset[str]:
    """Fields of samples that some metric needs, or an extractor reads."""
    needs = {field for metric in metrics.values() for field in metric.inputs}
    specs = [spec for metric in metrics.values() for spec in metric.extractors.values()]
    return frozenset(needs.union(*(spec.inputs for spec in specs)))


def build_metrics(
    metrics: Metrics,
    *,
    suites: Sequence[str] = (),
    device: str = "auto",
    weights: Mapping[str, str | Path] | None = None,
    seed: int | None = None,
    precision: str = "fp32",
    compiled: bool = False,
    decode: str = "pil",
    asked: dict[str, str] | None = None,
) -> dict[str, Metric]:
    """Build metrics by name; each is keyed by its id, with its options where two share an id.

    ``asked`` is filled with each id and its options, to the key.
    """
    import genmetrics.metrics  # noqa: F401  (registers them all)

    names = [m for m in metrics if isinstance(m, str)]
    requests = parse([*(name for each in suites for name in suite(each)), *names])
    given = [m for m in metrics if isinstance(m, Metric)]
    for wrong in metrics:
        if not isinstance(wrong, str | Metric):
            raise UsageError(f"metric {wrong!r} is neither an id nor a Metric object")
    if not requests and not given:
        raise UsageError("no metric asked for; pass -m ID or --suite NAME (see `genmetrics list`)")
    if seed is not None:
        requests = [_seeded(request, seed) for request in requests]
    _require_used(requests, weights)
    ids = [request.id for request in requests]
    built = {}
    for request in requests:
        key = request.id if ids.count(request.id) == 1 else request.name
        built[key] = create(request, device=device, weights=dict(weights or {}))
        if asked is not None:
            asked[request.name] = key
    _add_objects(built, given)
    if precision != "fp32" or compiled or decode != "pil":
        place = resolve_device(device)
        require_decode(place, decode)
        precision = precision_on(place, precision)
        for metric in built.values():
            metric.compute_with(precision=precision, compiled=compiled, decode=decode)
    return built


def _add_objects(built: dict[str, Metric], given: Sequence[Metric]) -> None:
    """Add copies of metric objects, so that the callers' keep what they have and bring nothing."""
    for original in given:
        metric = copy.copy(original).detached()
        name = metric.protocol.metric
        twin = built.get(name)
        if twin is not None and twin.protocol.fingerprint != metric.protocol.fingerprint:
            name = f"{name}:{metric.protocol.fingerprint[7:15]}"
        built[name] = metric


def _seeded(request: Request, seed: int) -> Request:
    from genmetrics.core.registry import options_of

    if "seed" not in options_of(request.metric) or "seed" in request.options:
        return request
    return request._replace(options={**request.options, "seed": seed})


def _require_used(requests: Sequence[Request], weights: Mapping[str, Any] | None) -> None:
    """An override of unknown weights is a spelling mistake, not something to ignore."""
    from genmetrics.weights import locate

    for name in weights or {}:
        locate(name, weights)


def _require_sources(metrics: Mapping[str, Metric], inputs: Inputs) -> None:
    if inputs.masks is not None and "mask" not in _fields_read(metrics):
        raise UsageError(f"masks {inputs.masks}: no metric of this run reads masks; drop --masks")
    for name, metric in metrics.items():
        for needed in metric.inputs:
            # a manifest or layout may carry the others; they are checked when it has been read
            if needed == "reference_set" and inputs.reference is None:
                raise UsageError(f"{name} needs a reference set: pass {_SOURCES[needed]}")


def _read_inputs(
    inputs: Inputs, reads: frozenset[str]
) -> tuple[dict[Side, SideSet], Statistics | None, list[str]]:
    """List both sides; no picture is opened. Also the statistics, and names without a partner."""
    missing: list[str] = []
    sides: dict[Side, SideSet] = {"generated": _read_generated(inputs, reads, missing)}
    if inputs.reference is None:
        return sides, None, missing
    path = Path(inputs.reference)
    if is_statistics(path):
        found = read_statistics(path, allow_unverified=inputs.allow_unverified_reference)
        return sides, found, missing
    sides["reference"] = _read(path, inputs)
    return sides, None, missing


def _read(path: Path, inputs: Inputs) -> SideSet:
    from genmetrics.samples.listing import LeftOut
    from genmetrics.samples.sources import read_samples

    out = LeftOut()
    samples = read_samples(path, recursive=inputs.recursive, limit=inputs.limit, left_out=out)
    return SideSet(str(path), samples, out.notes(path))


def _read_generated(inputs: Inputs, reads: frozenset[str], missing: list[str]) -> SideSet:
    """Read the generated side whole, join what belongs to it, and only then cut it to the limit."""
    from genmetrics.samples.attach import (
        attach_masks,
        attach_pairs,
        attach_prompts,
        without_missing,
    )
    from genmetrics.samples.listing import LeftOut
    from genmetrics.samples.sources import read_samples

    path = Path(inputs.generated)
    allow = inputs.allow_missing
    out = LeftOut()
    samples = read_samples(
        path,
        recursive=inputs.recursive,
        layout=inputs.layout,
        allow_missing=allow,
        left_out=out,
    )
    missing += out.missing
    if inputs.prompts is not None:
        samples, gone = attach_prompts(samples, inputs.prompts, allow_missing=allow)
        missing += gone
    if inputs.pair_with is not None:
        samples, gone = attach_pairs(
            samples, inputs.pair_with, by=inputs.pair_by, allow_missing=allow
        )
        missing += gone
    if inputs.masks is not None:
        samples, gone = attach_masks(samples, inputs.masks, allow_missing=allow)
        missing += gone
    samples, gone = without_missing(samples, reads, path, allow_missing=allow)
    missing += gone
    missing[:] = dict.fromkeys(missing)  # what lacks a prompt may lack its counterpart too
    return SideSet(str(inputs.generated), samples[: inputs.limit], out.notes(path))


def _check_media(plan: Plan, inputs: Inputs, workers: int, ranks: Ranks) -> None:
    """Open every header and hash every file; what fails is an error, or skipped and named."""
    from genmetrics.samples.attach import check_pair_sizes
    from genmetrics.samples.check import check_media, decode_media

    reasons = {
        side: look_at(found, check_media, workers, ranks) for side, found in plan.sides.items()
    }
    strict = inputs.on_error == "fail"
    if strict and any(reasons.values()):
        # the run ends here, so decode the rest too and name every bad file at once
        for side, found in plan.sides.items():
            reasons[side] |= look_at(found, decode_media, workers, ranks)
    for side, found in plan.sides.items():
        bad = reasons[side]
        plan.failures += [
            Failure(Who(side, sample), bad[sample.id])
            for sample in found.samples
            if sample.id in bad
        ]
        found.samples = [sample for sample in found.samples if sample.id not in bad]
    if strict and plan.failures:
        raise UsageError(describe_failures(plan.failures))
    if strict:
        # with "skip", a pair of two sizes is left out when it is decoded
        part = ranks.part(len(plan.sides["generated"].samples))
        check_pair_sizes(plan.sides["generated"].samples[part.start : part.stop], workers=workers)


def look_at(
    found: SideSet, look: Callable[..., dict[str, str]], workers: int, ranks: Ranks
) -> dict[str, str]:
    """Look at every sample of a side, each rank at its part.

    Samples come back as the rank that looked at them has them, with the digests it computed.
    """
    part = ranks.part(len(found.samples))
    mine = found.samples[part.start : part.stop]
    shares = ranks.gather((mine, look(mine, workers=workers)))
    found.samples = [sample for samples, _ in shares for sample in samples]
    return {id_: reason for _, reasons in shares for id_, reason in reasons.items()}


def _require_counts(plan: Plan) -> None:
    """Refuse too small sets and samples without what a metric reads, naming the first."""
    for name, metric in plan.metrics.items():
        samples = plan.sides["generated"].samples
        for needed in ("prompt", "reference", "spec"):
            lacking = [s.id for s in samples if not getattr(s, needed)]
            if needed in metric.inputs and lacking:
                what = _NAMES.get(needed, needed)
                raise UsageError(
                    f"{name} needs a {what} for each image; {len(lacking)} of {len(samples)} have"
                    f" none, first {lacking[0]!r}: pass {_SOURCES[needed]}"
                )
        counts = {"generated": len(samples)}
        if plan.reads_reference(metric):
            counts["reference"] = len(plan.sides["reference"].samples)
        for side, count in counts.items():
            if count < metric.minimum:
                raise TooFewSamplesError(
                    f"{name} has {count} {side} images, needs at least {metric.minimum}"
                )


def without(plan: Plan, failures: Sequence[Failure]) -> Plan:
    """Return the plan without samples that turned out to be unusable."""
    gone = {failure.who.place for failure in failures}
    sides: dict[Side, SideSet] = {
        side: replace(found, samples=[s for s in found.samples if (side, s.id) not in gone])
        for side, found in plan.sides.items()
    }
    return replace(plan, sides=sides, failures=[*plan.failures, *failures])
