"""Where the samples of a run come from, and reading them; no picture is opened."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from genmetrics.core.fields import FIELDS
from genmetrics.core.sample import Sample
from genmetrics.run.work import REFERENCE, OnError, Side
from genmetrics.samples.statistics import Statistics, is_statistics, read_statistics


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Where the samples of a run come from.

    Attributes:
        generated: Name of each generated set to where it lies.
        reference: Reference set, or a statistics file.
        joined: Name of a field of samples to what it is joined from: another set whose files have
            the samples' names, or a table.
        pair_by: How pictures of another set are joined.
        layout: How the generated sets are laid out.
        recursive: Read sub-folders too.
        limit: Use only the first samples of each set, in natural order.
        on_error: Whether an unusable sample ends the run or is left out and named.
        allow_missing: Judge what has all that belongs to it, and name the rest.
        allow_unverified_reference: Accept statistics that do not say what made them.
    """

    generated: Mapping[Side, Any]
    reference: Any = None
    joined: Mapping[str, str | Path] = field(default_factory=dict)
    pair_by: Literal["stem", "order"] = "stem"
    layout: str = "auto"
    recursive: bool = False
    limit: int | None = None
    on_error: OnError = "fail"
    allow_missing: bool = False
    allow_unverified_reference: bool = False


@dataclass(frozen=True)
class SampleSet:
    """The samples of one set, in natural order of id, and where they lie."""

    path: str
    samples: tuple[Sample, ...]

    def digest(self, *fields: str) -> str:
        """sha256 over the sorted content digests of each sample's fields.

        Equal sets have equal digests, whatever their names and order.
        """
        digests = sorted(sample.digest(fields) for sample in self.samples)
        return "sha256:" + hashlib.sha256("\n".join(digests).encode()).hexdigest()


class Listed(NamedTuple):
    """What the inputs hold.

    Attributes:
        sets: Every set by name, the reference among them.
        statistics: What stands for a reference set.
        missing: Names without a partner, of each set.
        notes: What a reader of the run should know of its inputs.
    """

    sets: dict[Side, SampleSet]
    statistics: Statistics | None
    missing: dict[Side, tuple[str, ...]]
    notes: tuple[str, ...]


def read_inputs(inputs: Inputs) -> Listed:
    """List all sets and join what belongs to the generated ones.

    Raises:
        InputError: One cannot be read, or holds no samples.
        PairingError: What belongs together does not meet.
    """
    sets: dict[Side, SampleSet] = {}
    missing: dict[Side, tuple[str, ...]] = {}
    statistics = None
    if inputs.reference is not None:
        path = Path(inputs.reference)
        if is_statistics(path):
            statistics = read_statistics(path, allow_unverified=inputs.allow_unverified_reference)
        else:
            sets[REFERENCE] = _read(path, inputs)
    for name, source in inputs.generated.items():
        sets[name], missing[name] = _read_generated(source, inputs)
    return Listed(sets, statistics, missing, ())


def _read(path: Path, inputs: Inputs) -> SampleSet:
    from genmetrics.samples.sources import read_samples

    samples = read_samples(path, recursive=inputs.recursive, limit=inputs.limit)
    return SampleSet(str(path), tuple(samples))


def _read_generated(source: Any, inputs: Inputs) -> tuple[SampleSet, tuple[str, ...]]:
    """Read a generated set whole, join what belongs to it, and only then cut it to the limit."""
    from genmetrics.samples.attach import attach
    from genmetrics.samples.geneval import prompts_without_images
    from genmetrics.samples.sources import read_samples

    path = Path(source)
    allow = inputs.allow_missing
    samples = read_samples(
        path, recursive=inputs.recursive, layout=inputs.layout, allow_missing=allow
    )
    missing = prompts_without_images(path) if allow and path.is_dir() else []
    for name, other in sorted(inputs.joined.items(), key=lambda item: list(FIELDS).index(item[0])):
        samples, gone = attach(samples, FIELDS[name], other, by=inputs.pair_by, allow_missing=allow)
        missing += gone
    # what lacks a prompt may lack its counterpart too
    return SampleSet(str(source), tuple(samples[: inputs.limit])), tuple(dict.fromkeys(missing))
