"""Where the samples of a run come from, and reading them; no picture is opened."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from genmetrics.core.errors import UsageError, shown
from genmetrics.core.fields import FIELDS, field_of
from genmetrics.core.files import is_path, require_local
from genmetrics.core.sample import Sample
from genmetrics.extractors.published import find_reference
from genmetrics.run.work import GENERATED, REFERENCE, OnError, Side
from genmetrics.samples.statistics import Statistics, is_statistics, read_statistics

if TYPE_CHECKING:
    from genmetrics.samples.listing import ListedSamples


NAME = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)
"""What a set may be called: its results get a folder of that name."""


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

    def __post_init__(self) -> None:
        """Refuse names that are no names of folders, or the reference's.

        Raises:
            UsageError: Names the set.
        """
        for name in self.generated:
            if not (isinstance(name, str) and NAME.fullmatch(name)):
                raise UsageError(
                    f"a set cannot be called {name!r}; use letters, digits, dots and dashes"
                )
            if name == REFERENCE or (name == GENERATED and len(self.generated) > 1):
                raise UsageError(f"the name {name!r} is taken; give each set its own")
        for name, source in self.joined.items():
            if not is_path(source):
                raise UsageError(
                    f"{FIELDS[name].several} are {shown(source)}; pass the path of a set of files"
                    " or of a table, or bring them in a manifest"
                )


def joined_fields(
    further: Mapping[str, str | Path],
    *,
    pair_with: str | Path | None,
    masks: str | Path | None,
    prompts: str | Path | None,
) -> dict[str, str | Path]:
    """Put what has an option of its own beside further fields, by name.

    Raises:
        UsageError: No such field, or one given twice.
    """
    own = {"reference": pair_with, "mask": masks, "prompt": prompts}
    given = {name: source for name, source in own.items() if source is not None}
    for name in further:
        field_of(name)
        if name in given:
            raise UsageError(f"{name} is given twice: {given[name]} and {further[name]}; drop one")
    return {**given, **further}


@dataclass(frozen=True)
class SampleSet:
    """The samples of one set, in natural order of id, and where they lie."""

    path: str
    samples: tuple[Sample, ...]
    _digests: dict[tuple[str, ...], str] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def digest(self, *fields: str) -> str:
        """sha256 over the sorted content digests of each sample's fields.

        Equal sets have equal digests, whatever their names and order.
        """
        if fields not in self._digests:
            self._digests[fields] = self._digest(fields)
        return self._digests[fields]

    def _digest(self, fields: tuple[str, ...]) -> str:
        digests = sorted(sample.digest(fields) for sample in self.samples)
        return "sha256:" + hashlib.sha256("\n".join(digests).encode()).hexdigest()


class Listed(NamedTuple):
    """What the inputs hold.

    Attributes:
        sets: Every set by name, the reference among them.
        statistics: What stands for a reference set.
        missing: Names without a partner, of each set.
        notes: What a reader should know of each set's files.
    """

    sets: dict[Side, SampleSet]
    statistics: Statistics | None
    missing: dict[Side, tuple[str, ...]]
    notes: dict[Side, tuple[str, ...]]


def read_inputs(inputs: Inputs, reads: frozenset[str]) -> Listed:
    """List all sets and join what belongs to the generated ones.

    Args:
        inputs: Where they lie.
        reads: Fields of samples that the metrics read.

    Raises:
        InputError: One cannot be read, or holds no samples.
        PairingError: What belongs together does not meet.
    """
    for name, source in [*inputs.generated.items(), (REFERENCE, inputs.reference)]:
        if is_path(source):
            require_local(name, source)
    for name, source in inputs.joined.items():
        require_local(name, source)
    sets: dict[Side, SampleSet] = {}
    missing: dict[Side, tuple[str, ...]] = {}
    notes: dict[Side, tuple[str, ...]] = {}
    statistics = None
    if is_path(inputs.reference):
        statistics = find_reference(inputs.reference)
        if statistics is None and is_statistics(path := Path(inputs.reference)):
            statistics = read_statistics(path, allow_unverified=inputs.allow_unverified_reference)
    if inputs.reference is not None and statistics is None:
        sets[REFERENCE], out = _read(REFERENCE, inputs.reference, inputs, limit=inputs.limit)
        notes[REFERENCE] = tuple(out.notes(sets[REFERENCE].path))
    for name, source in inputs.generated.items():
        sets[name], out = _read(name, source, inputs, layout=inputs.layout)
        sets[name], missing[name] = _join(sets[name], out.missing, inputs, reads)
        notes[name] = tuple(out.notes(sets[name].path))
    return Listed(sets, statistics, missing, notes)


def _read(
    name: Side, source: Any, inputs: Inputs, *, layout: str = "auto", limit: int | None = None
) -> tuple[SampleSet, ListedSamples]:
    from genmetrics.samples.memory import described
    from genmetrics.samples.sources import list_samples

    found = list_samples(
        source,
        name=name,
        recursive=inputs.recursive,
        layout=layout,
        limit=limit,
        allow_missing=inputs.allow_missing,
    )
    return SampleSet(described(source), tuple(found.samples)), found


def _join(
    found: SampleSet, lacking: Sequence[str], inputs: Inputs, reads: frozenset[str]
) -> tuple[SampleSet, tuple[str, ...]]:
    """Join what belongs to the samples of a whole set, and only then cut it to the limit."""
    from genmetrics.samples.attach import attach, without_missing

    samples, missing = list(found.samples), list(lacking)
    allow = inputs.allow_missing
    for row in (row for row in FIELDS.values() if row.name in inputs.joined):
        source = inputs.joined[row.name]
        samples, gone = attach(samples, row, source, by=inputs.pair_by, allow_missing=allow)
        missing += gone
    samples, gone = without_missing(samples, reads, found.path, allow_missing=allow)
    # what lacks a prompt may lack its counterpart too
    missing = list(dict.fromkeys([*missing, *gone]))
    return replace(found, samples=tuple(samples[: inputs.limit])), tuple(missing)
