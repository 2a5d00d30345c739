"""What a run works on: sets, samples, extractors, and what could not be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from genmetrics.core.errors import grouped
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.sample import Sample
from genmetrics.run.progress import Progress
from genmetrics.run.ranks import ALONE, Ranks

Side = str
"""Name of a set: :data:`REFERENCE`, or that of a generated set."""

REFERENCE: Side = "reference"
GENERATED: Side = "generated"
"""Name of the generated set where there is only one and nobody named it."""

OnError = Literal["fail", "skip"]
Place = tuple[Side, str]

QUEUE_MB = 256
"""Default bound of what is prepared ahead of the models, in MiB."""

_SHOWN = 100  # failures listed in one error


class Who(NamedTuple):
    """A sample and the set it belongs to; ids are unique within a set only."""

    side: Side
    sample: Sample

    @property
    def place(self) -> Place:
        """What tells samples of a run apart."""
        return self.side, self.sample.id


@dataclass(frozen=True)
class Job:
    """One extractor and the samples it must see, in natural order of id."""

    spec: ExtractorSpec
    members: tuple[Who, ...]

    @cached_property
    def keys(self) -> list[str]:
        """Content digest of each member: where the store keeps its row."""
        reads = self.spec.reads
        return [who.sample.digest(reads) for who in self.members]


class Failure(NamedTuple):
    """A sample that could not be used, and why in one line.

    Attributes:
        who: The sample.
        reason: One line.
        extractor: Fingerprint of the extractor that has nothing for it: it stays in the metrics
            that do not ask for that one. None where the sample itself cannot be used by any.
        model: Name of that extractor.
        answered: False where the model gave no answer, which is no fault of the run: it goes on,
            and the next one asks again.
        raised: Whether it was an error nobody foresaw.
    """

    who: Who
    reason: str
    extractor: str | None = None
    model: str | None = None
    answered: bool = True
    raised: bool = False

    @property
    def fatal(self) -> bool:
        """Whether it ends a run that does not skip failures."""
        return self.answered


class Prepared(NamedTuple):
    """A sample, or a part of one, ready for the extractors that miss it and can read it."""

    who: Who
    inputs: Mapping[int, Any]
    conversions: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()


@dataclass
class Extraction:
    """What an extraction did, on all ranks."""

    failures: dict[tuple[Place, str | None], Failure] = field(default_factory=dict)
    computed: int = 0
    """Rows of features computed now."""
    reused: int = 0
    """Rows found in the store."""
    batch_size: int = 0
    """Size of the batches; smaller than asked for where the device's memory ran out."""
    unseen: int = 0
    """Samples nobody looked at, because the run was known to fail."""

    def fail(self, failure: Failure) -> None:
        """Note a failure; the first reason of a sample stays."""
        self.failures.setdefault((failure.who.place, failure.extractor), failure)

    def has_failed(self, who: Who, extractor: str) -> bool:
        """Tell whether a sample is of no use to an extractor."""
        return (who.place, None) in self.failures or (who.place, extractor) in self.failures

    @property
    def fatal(self) -> bool:
        """Whether there is a failure that ends a run which does not skip them."""
        return any(failure.fatal for failure in self.failures.values())


@dataclass(frozen=True, kw_only=True)
class How:
    """How to run. Of all this only the batch size moves numbers, in their last digits."""

    device: str
    devices: tuple[str, ...] = ()
    """All that this rank may use; a model of lane ``alone`` may lie on several."""
    batch_size: int
    shrink: bool
    """Whether a batch that does not fit the device's memory is halved."""
    workers: int
    on_error: OnError
    progress: Progress
    ranks: Ranks = ALONE
    queue_bytes: int = QUEUE_MB << 20
    """Most bytes of prepared inputs that wait for the models."""


def describe_failures(failures: Sequence[Failure], unseen: int = 0) -> str:
    """One line that names every sample that cannot be used."""
    named = [(f.who.sample.path or f.who.sample.id, f.reason) for f in failures]
    shown = grouped(named, most=_SHOWN)
    rest = f"; {unseen} were not looked at any more" if unseen else ""
    what = "sample" if len(failures) == 1 else "samples"
    return (
        f"{len(failures)} {what} cannot be used: {shown}{rest}. Fix or remove what is named,"
        " or pass --on-error skip"
    )
