"""Extraction: decode each sample once, run every extractor on it, keep the features."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from genmetrics.core.errors import GenmetricsError, InputError, UsageError
from genmetrics.core.extractor import Extractor, ExtractorSpec, Features, broken_rows, take
from genmetrics.core.sample import Sample
from genmetrics.core.threads import single_threaded
from genmetrics.run.batch_size import measure, remember, remembered
from genmetrics.run.collect import collect
from genmetrics.run.progress import Progress
from genmetrics.run.ranks import ALONE, Ranks
from genmetrics.run.store import FeatureStore, Writer
from genmetrics.samples.check import MEDIA, NAMING

Side = Literal["generated", "reference"]
OnError = Literal["fail", "skip"]
Place = tuple[Side, str]
T = TypeVar("T")

CONVERSIONS = "_conversions"
"""Stored beside the outputs, one list of names a sample, so a resumed run counts the same."""
_SHOWN = 100  # failures listed in one error
_AHEAD = 2  # batches decoded ahead of the model: one being prepared, one ready


class Who(NamedTuple):
    """A sample and the side it belongs to; ids are unique within a side only."""

    side: Side
    sample: Sample

    @property
    def place(self) -> Place:
        """What tells samples of a run apart."""
        return self.side, self.sample.id


class Job(NamedTuple):
    """One extractor and the samples it must see, in natural order of id."""

    spec: ExtractorSpec
    members: tuple[Who, ...]


class Failure(NamedTuple):
    """A sample that could not be used, and why in one line."""

    who: Who
    reason: str


@dataclass
class Extraction:
    """What an extraction did, on all ranks."""

    failures: dict[Place, Failure] = field(default_factory=dict)
    computed: int = 0
    """Rows of features computed now."""
    reused: int = 0
    """Rows found in the store."""
    batch_size: int = 0
    """Size of the batches; smaller than asked for where the device's memory ran out."""
    unseen: int = 0
    """Samples nobody looked at, because the run was known to fail."""

    def fail(self, who: Who, reason: str) -> None:
        """Note a failure; the first reason of a sample stays."""
        self.failures.setdefault(who.place, Failure(who, reason))


@dataclass(frozen=True, kw_only=True)
class How:
    """How to run. Of all this only the batch size moves numbers, in their last digits."""

    device: str
    batch_size: int
    shrink: bool
    """Whether a batch that does not fit the device's memory is halved."""
    workers: int
    on_error: OnError
    progress: Progress
    ranks: Ranks = ALONE


class Prepared(NamedTuple):
    """One sample, ready for the extractors that miss it."""

    who: Who
    inputs: Mapping[int, Any]
    conversions: tuple[str, ...]


class Batch(NamedTuple):
    """Samples that the same extractors (positions in the list of jobs) have not seen."""

    members: tuple[Who, ...]
    wanted: tuple[int, ...]


def extract(jobs: Sequence[Job], store: FeatureStore, how: How) -> Extraction:
    """Bring the features of every job into the main rank's store.

    Nothing that a rank's store holds is computed again, and models that have nothing to do are not
    loaded. Extractors that read pictures share one decode of each sample. With ``how.shrink`` a
    batch that does not fit the device's memory is halved, for this extractor and from then on.

    Returns:
        The same on every rank.

    Raises:
        UsageError: A batch does not fit the device's memory and may not shrink.
        InputError: With ``on_error="fail"``, after the remaining files were decoded once (for at
            most :data:`NAMING` seconds): the line lists all that cannot be used.
        RankError: Another rank ended.
    """
    outcome = Extraction()
    pictures = [job for job in jobs if any(name in MEDIA for name in job.spec.inputs)]
    texts = [job for job in jobs if job not in pictures]
    for what, some in (("images", pictures), ("texts", texts)):
        if some:
            _Stage(some, store, outcome, how).run(what)
    if how.on_error == "fail" and outcome.failures:
        raise InputError(describe_failures(list(outcome.failures.values()), outcome.unseen))
    for job in jobs:
        collect(job, store, how.ranks)
    return outcome


def describe_failures(failures: Sequence[Failure], unseen: int = 0) -> str:
    """One line that names every sample that cannot be used."""
    shown = "; ".join(name_failure(failure) for failure in failures[:_SHOWN])
    more = f"; and {len(failures) - _SHOWN} more" if len(failures) > _SHOWN else ""
    rest = f"; {unseen} were not looked at any more" if unseen else ""
    what = "sample" if len(failures) == 1 else "samples"
    return (
        f"{len(failures)} {what} cannot be used: {shown}{more}{rest}. Fix or remove what is named,"
        " or pass --on-error skip"
    )


def name_failure(failure: Failure) -> str:
    """Name the file and the reason; most reasons begin with the file."""
    path = failure.who.sample.path or failure.who.sample.id
    return failure.reason if path in failure.reason else f"{path}: {failure.reason}"


class _Stage:
    """Extractors that read the same kind of input, over all their samples."""

    def __init__(
        self, jobs: Sequence[Job], store: FeatureStore, outcome: Extraction, how: How
    ) -> None:
        self.jobs = jobs
        self.store = store
        self.outcome = outcome
        self.how = how
        self.ranks = how.ranks
        self.mine = Extraction()
        """What this rank did."""
        self.extractors: dict[int, Extractor] = {}
        self.sizes: dict[int, int] = {}
        """Batch size of each extractor that has one of its own: measured, or halved."""

    def run(self, what: str) -> None:
        progress = self.how.progress
        known = self._known()
        order, wanted = self._missing(known)
        total = sum(bool(wants) for wants in wanted.values())
        progress.begin(what, total, len(order) - total)
        try:
            for i in sorted({i for wants in wanted.values() for i in wants}):
                self.extractors[i] = self.jobs[i].spec.build(self.how.device)
            self.sizes = self.ranks.share(lambda: self._measured(order, wanted))
            cut = max(self.sizes.values(), default=self.how.batch_size)
            batches = list(_batches(order, wanted, cut))
            self.mine.batch_size = cut
            with Writer(self.store) as writer:
                seen = self._pass(batches, writer)
            self._join(known, total, seen, cut)
        finally:
            progress.end()

    def _measured(
        self, order: Sequence[Who], wanted: Mapping[Place, tuple[int, ...]]
    ) -> dict[int, int]:
        """Batch size of each extractor that was measured on this card, now or in an earlier run."""
        device = self.how.device
        if not (self.how.shrink and device.startswith("cuda")):
            return {}
        sizes = {}
        for i, job in enumerate(self.jobs):
            folder = self.store.folder(job.spec)
            size = remembered(folder, device)
            if size is None and i in self.extractors:
                tried = (self._prepare(who, (i,)) for who in order if i in wanted[who.place])
                sound = next((one for one in tried if isinstance(one, Prepared)), None)
                if sound is not None:
                    size = measure(self.extractors[i], sound.inputs[i])
                    remember(folder, device, size)
            if size is not None:
                sizes[i] = size
        return sizes

    def _pass(self, batches: Sequence[Batch], writer: Writer) -> int:
        """Work through this rank's share of the batches; returns the number of samples seen."""
        seen = 0
        deadline = None
        with closing(self._decoded(batches)) as decoded:
            for batch, prepared in decoded:
                self.ranks.check()
                # once a run is known to fail, the rest is decoded only to name every bad file
                if self.how.on_error == "fail" and (self.mine.failures or self.ranks.flagged()):
                    if deadline is None:
                        self.ranks.flag()
                        deadline = time.monotonic() + NAMING
                    elif time.monotonic() > deadline:
                        break
                else:
                    for i in batch.wanted:
                        self._forward(i, prepared, writer)
                seen += len(batch.members)
                self._advance(len(batch.members))
        return seen

    def _advance(self, count: int) -> None:
        """Count samples as done, and tell how many all ranks have done since."""
        done = self.ranks.tally(count)
        if done:
            self.how.progress.advance(done)

    def _join(self, known: list[set[str]], total: int, seen: int, cut: int) -> None:
        """Add what every rank did to the outcome, in order of rank."""
        new = [
            set(self.store.keys(job.spec)) - old for job, old in zip(self.jobs, known, strict=True)
        ]
        shares = self.ranks.gather((self.mine, seen, new), lambda: self._advance(0))
        self._advance(0)
        before = len(self.outcome.failures)
        for mine, _, _ in shares:
            self.outcome.computed += mine.computed
            # of stages and ranks the smallest
            self.outcome.batch_size = min(self.outcome.batch_size or cut, mine.batch_size)
            for failure in mine.failures.values():
                self.outcome.fail(*failure)
        self.outcome.unseen += total - sum(seen for _, seen, _ in shares)
        if len(self.outcome.failures) > before:
            found = [old.union(*(new[i] for _, _, new in shares)) for i, old in enumerate(known)]
            self._fail_alike(found)

    def _fail_alike(self, known: list[set[str]]) -> None:
        """Fail the samples whose content equals that of a failed one: nobody else looked at it."""
        failures = list(self.outcome.failures.values())
        for job, keys in zip(self.jobs, known, strict=True):
            reasons = {f.who.sample.digest(job.spec.inputs): f.reason for f in failures}
            for who in job.members:
                key = who.sample.digest(job.spec.inputs)
                if key in reasons and key not in keys:
                    self.outcome.fail(who, reasons[key])

    def _known(self) -> list[set[str]]:
        """For each job, the digests of everything that some rank's store holds.

        Shards are named by their content, so a rank reads only those that none before it has: where
        all share a file system, the first reads them all.
        """
        specs = [job.spec for job in self.jobs]
        listings = self.ranks.gather([self.store.shards(spec) for spec in specs])
        for i, spec in enumerate(specs):
            before = {name for listing in listings[: self.ranks.rank] for name in listing[i]}
            self.store.scan(spec, [n for n in listings[self.ranks.rank][i] if n not in before])
        found = self.ranks.gather([set(self.store.keys(spec)) for spec in specs])
        return [set().union(*(keys[i] for keys in found)) for i in range(len(specs))]

    def _missing(self, known: Sequence[set[str]]) -> tuple[list[Who], dict[Place, tuple[int, ...]]]:
        """Samples in order, and for each the extractors that have not seen its content."""
        order: dict[Place, Who] = {}
        wanted: dict[Place, tuple[int, ...]] = {}
        for i, job in enumerate(self.jobs):
            keys = set(known[i])
            for who in job.members:
                order.setdefault(who.place, who)
                wants = wanted.setdefault(who.place, ())
                key = who.sample.digest(job.spec.inputs)
                if key in keys:
                    self.outcome.reused += 1
                else:
                    keys.add(key)  # equal content elsewhere in this run needs no second pass
                    wanted[who.place] = (*wants, i)
        return list(order.values()), wanted

    def _decoded(self, batches: Sequence[Batch]) -> Generator[tuple[Batch, list[Prepared]]]:
        """Claim batches and yield them with their samples prepared, ahead of the caller.

        A rank that takes over what another has not begun takes one batch at a time: the last ones
        are done by whoever is free, not by whoever asked first.
        """
        with single_threaded(self.how.workers, "genmetrics-decode") as pool:
            claims = self.ranks.claims(len(batches))
            waiting: deque[tuple[Batch, list[Future[Prepared | Failure]]]] = deque()

            def fill(ahead: int) -> None:
                while len(waiting) < ahead and (claim := next(claims, None)) is not None:
                    batch = batches[claim.position]
                    waiting.append(
                        (
                            batch,
                            [pool.submit(self._prepare, w, batch.wanted) for w in batch.members],
                        )
                    )
                    ahead = _AHEAD if claim.own else 1

            try:
                fill(_AHEAD)
                while waiting:
                    batch, futures = waiting.popleft()
                    done = [future.result() for future in futures]
                    fill(_AHEAD)
                    yield batch, self._sound(done)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _prepare(self, who: Who, wanted: Sequence[int]) -> Prepared | Failure:
        import torch

        from genmetrics.extractors._model import decodes_of
        from genmetrics.samples.items import load_item

        fields = sorted({name for i in wanted for name in self.jobs[i].spec.inputs})
        try:
            decodes = decodes_of(self.jobs[i].spec for i in wanted)
            item, conversions = load_item(who.sample, fields, decodes, self.how.device)
            inputs = {i: self.extractors[i].prepare(item) for i in wanted}
        except GenmetricsError as error:
            return Failure(who, str(error))
        except torch.OutOfMemoryError as error:
            raise UsageError(
                f"pictures of the batches ahead do not fit the memory of {self.how.device}; pass a"
                " smaller --batch-size"
            ) from error
        return Prepared(who, inputs, conversions)

    def _sound(self, results: Iterable[Prepared | Failure]) -> list[Prepared]:
        sound = []
        for result in results:
            if isinstance(result, Failure):
                self.mine.fail(*result)
            else:
                sound.append(result)
        return sound

    def _forward(self, i: int, prepared: Sequence[Prepared], writer: Writer) -> None:
        """Run one extractor on a batch and store the rows that can be right."""
        if not prepared:
            return
        spec = self.jobs[i].spec
        found = self._run(i, [p.inputs[i] for p in prepared])
        features: Features = {**found, CONVERSIONS: [list(p.conversions) for p in prepared]}
        broken = broken_rows(spec, features)
        for row, reason in broken.items():
            self.mine.fail(prepared[row].who, reason)
        good = [row for row in range(len(prepared)) if row not in broken]
        if broken:
            features = take(features, good)
        if good:
            keys = [prepared[row].who.sample.digest(spec.inputs) for row in good]
            writer.write(spec, keys, features)
            self.mine.computed += len(good)

    def _run(self, i: int, inputs: Sequence[Any]) -> Features:
        """Run one extractor, in smaller batches from the first that does not fit the memory."""
        import torch

        while True:
            size = self.sizes.get(i, self.how.batch_size)
            try:
                return self.extractors[i].extract(inputs, size)
            except torch.OutOfMemoryError as error:
                if size == 1 or not self.how.shrink:
                    raise UsageError(
                        f"a batch of {size} does not fit the memory of {self.how.device} with"
                        f" {self.jobs[i].spec.extractor}; pass a smaller --batch-size, or auto"
                    ) from error
            # outside the handler, whose traceback would keep the failed batch alive
            self.sizes[i] = self.mine.batch_size = size // 2
            torch.cuda.empty_cache()
            if self.how.device.startswith("cuda"):
                remember(self.store.folder(self.jobs[i].spec), self.how.device, size // 2)


def _batches(
    order: Sequence[Who], wanted: Mapping[Place, tuple[int, ...]], size: int
) -> Iterator[Batch]:
    """Cut the planned samples into batches that do not depend on what was done before.

    The cut is made over all planned samples, so a run that was killed and started again forms the
    same batches as one that was not, and so computes the same bits. Only pieces of which a part is
    known are taken apart; what they miss is joined into batches of its own.
    """
    rest: dict[tuple[int, ...], list[Who]] = {}
    for piece in _pieces(order, size):
        wants = {wanted[who.place] for who in piece}
        if len(wants) == 1:
            (want,) = wants
            if want:
                yield Batch(piece, want)
            continue
        for who in piece:
            if wanted[who.place]:
                rest.setdefault(wanted[who.place], []).append(who)
    for want, members in rest.items():
        for piece in _pieces(members, size):
            yield Batch(piece, want)


def _pieces(members: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    for start in range(0, len(members), size):
        yield tuple(members[start : start + size])


def count_conversions(rows: Iterable[Sequence[str]]) -> Counter[str]:
    """Count conversion names over samples."""
    return Counter(name for names in rows for name in names)
