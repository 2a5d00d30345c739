"""Extraction: decode each sample once, run every extractor on it, keep the features."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple, Self, TypeVar

from genmetrics.core.errors import GenmetricsError, InputError, UsageError
from genmetrics.core.extractor import Extractor, ExtractorSpec, Features, broken_rows, take
from genmetrics.core.sample import Sample
from genmetrics.run.progress import Progress
from genmetrics.run.store import FeatureStore

Side = Literal["generated", "reference"]
OnError = Literal["fail", "skip"]
Place = tuple[Side, str]
T = TypeVar("T")

MEDIA = ("image", "reference", "mask")
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
    """What an extraction did."""

    failures: dict[Place, Failure] = field(default_factory=dict)
    computed: int = 0
    """Rows of features computed now."""
    reused: int = 0
    """Rows found in the store."""
    batch_size: int = 0
    """Largest batch that was run; smaller than asked for where the device's memory ran out."""

    def fail(self, who: Who, reason: str) -> None:
        """Note a failure; the first reason of a sample stays."""
        self.failures.setdefault(who.place, Failure(who, reason))


class Prepared(NamedTuple):
    """One sample, ready for the extractors that miss it."""

    who: Who
    inputs: Mapping[int, Any]
    conversions: tuple[str, ...]


class Batch(NamedTuple):
    """Samples that the same extractors (positions in the list of jobs) have not seen."""

    members: tuple[Who, ...]
    wanted: tuple[int, ...]


def extract(
    jobs: Sequence[Job],
    store: FeatureStore,
    *,
    device: str,
    batch_size: int,
    workers: int,
    on_error: OnError,
    progress: Progress,
    shrink: bool = False,
) -> Extraction:
    """Bring the features of every job into the store.

    Nothing that the store holds is computed again, and models that have nothing to do are not
    loaded. Extractors that read pictures share one decode of each sample. With ``shrink`` a batch
    that does not fit the device's memory is halved, for this extractor and from then on.

    Raises:
        UsageError: A batch does not fit the device's memory and may not shrink.
        InputError: With ``on_error="fail"``, after every remaining file was decoded once: the line
            lists all that cannot be used.
    """
    outcome = Extraction(batch_size=batch_size)
    pictures = [job for job in jobs if any(name in MEDIA for name in job.spec.inputs)]
    texts = [job for job in jobs if job not in pictures]
    for what, some in (("images", pictures), ("texts", texts)):
        if some:
            stage = _Stage(some, store, outcome, device, batch_size, workers, on_error, shrink)
            stage.run(what, progress)
    if on_error == "fail" and outcome.failures:
        raise InputError(describe_failures(list(outcome.failures.values())))
    return outcome


def describe_failures(failures: Sequence[Failure]) -> str:
    """One line that names every sample that cannot be used."""
    shown = "; ".join(name_failure(failure) for failure in failures[:_SHOWN])
    more = f"; and {len(failures) - _SHOWN} more" if len(failures) > _SHOWN else ""
    what = "sample" if len(failures) == 1 else "samples"
    return (
        f"{len(failures)} {what} cannot be used: {shown}{more}. Fix or remove what is named, or"
        " pass --on-error skip"
    )


def name_failure(failure: Failure) -> str:
    """Name the file and the reason; most reasons begin with the file."""
    path = failure.who.sample.path or failure.who.sample.id
    return failure.reason if path in failure.reason else f"{path}: {failure.reason}"


class _Stage:
    """Extractors that read the same kind of input, over all their samples."""

    def __init__(
        self,
        jobs: Sequence[Job],
        store: FeatureStore,
        outcome: Extraction,
        device: str,
        batch_size: int,
        workers: int,
        on_error: OnError,
        shrink: bool,
    ) -> None:
        self.jobs = jobs
        self.store = store
        self.outcome = outcome
        self.device = device
        self.batch_size = batch_size
        self.workers = workers
        self.on_error = on_error
        self.shrink = shrink
        self.extractors: dict[int, Extractor] = {}
        self.sizes: dict[int, int] = {}
        """Batch size of each extractor that could not run the common one."""

    def run(self, what: str, progress: Progress) -> None:
        order, wanted = self._missing()
        batches = list(_batches(order, wanted, self.batch_size))
        total = sum(len(batch.members) for batch in batches)
        progress.begin(what, total, len(order) - total)
        try:
            for i in sorted({i for batch in batches for i in batch.wanted}):
                self.extractors[i] = self.jobs[i].spec.build(self.device)
            with _Writer(self.store) as writer:
                for batch, prepared in self._decoded(batches):
                    # once a run is known to fail, the rest is decoded only to name every bad file
                    if not (self.on_error == "fail" and self.outcome.failures):
                        for i in batch.wanted:
                            self._forward(i, prepared, writer)
                    progress.advance(len(batch.members))
            self._fail_alike()
        finally:
            progress.end()

    def _fail_alike(self) -> None:
        """Fail the samples whose content equals that of a failed one: nobody else looked at it."""
        failures = list(self.outcome.failures.values())
        for job in self.jobs if failures else ():
            reasons = {f.who.sample.digest(job.spec.inputs): f.reason for f in failures}
            known = self.store.keys(job.spec)
            for who in job.members:
                key = who.sample.digest(job.spec.inputs)
                if key in reasons and key not in known:
                    self.outcome.fail(who, reasons[key])

    def _missing(self) -> tuple[list[Who], dict[Place, tuple[int, ...]]]:
        """Samples in order, and for each the extractors that have not seen its content."""
        order: dict[Place, Who] = {}
        wanted: dict[Place, tuple[int, ...]] = {}
        for i, job in enumerate(self.jobs):
            known = set(self.store.keys(job.spec))
            for who in job.members:
                order.setdefault(who.place, who)
                wants = wanted.setdefault(who.place, ())
                key = who.sample.digest(job.spec.inputs)
                if key in known:
                    self.outcome.reused += 1
                else:
                    known.add(key)  # equal content elsewhere in this run needs no second pass
                    wanted[who.place] = (*wants, i)
        return list(order.values()), wanted

    def _decoded(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, list[Prepared]]]:
        """Yield batches with their samples prepared, a few batches ahead of the caller."""
        with ThreadPoolExecutor(max(1, self.workers), "genmetrics-decode") as pool:
            source = iter(batches)
            waiting: deque[tuple[Batch, list[Future[Prepared | Failure]]]] = deque()

            def submit(batch: Batch) -> None:
                futures = [pool.submit(self._prepare, who, batch.wanted) for who in batch.members]
                waiting.append((batch, futures))

            try:
                for batch in islice(source, _AHEAD):
                    submit(batch)
                while waiting:
                    batch, futures = waiting.popleft()
                    done = [future.result() for future in futures]
                    for following in islice(source, 1):
                        submit(following)
                    yield batch, self._sound(done)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _prepare(self, who: Who, wanted: Sequence[int]) -> Prepared | Failure:
        from genmetrics.samples.items import load_item

        fields = sorted({name for i in wanted for name in self.jobs[i].spec.inputs})
        try:
            item, conversions = load_item(who.sample, fields)
            inputs = {i: self.extractors[i].prepare(item) for i in wanted}
        except GenmetricsError as error:
            return Failure(who, str(error))
        return Prepared(who, inputs, conversions)

    def _sound(self, results: Iterable[Prepared | Failure]) -> list[Prepared]:
        sound = []
        for result in results:
            if isinstance(result, Failure):
                self.outcome.fail(*result)
            else:
                sound.append(result)
        return sound

    def _forward(self, i: int, prepared: Sequence[Prepared], writer: _Writer) -> None:
        """Run one extractor on a batch and store the rows that can be right."""
        if not prepared:
            return
        spec = self.jobs[i].spec
        found = self._run(i, [p.inputs[i] for p in prepared])
        features: Features = {**found, CONVERSIONS: [list(p.conversions) for p in prepared]}
        broken = broken_rows(spec, features)
        for row, reason in broken.items():
            self.outcome.fail(prepared[row].who, reason)
        good = [row for row in range(len(prepared)) if row not in broken]
        if broken:
            features = take(features, good)
        if good:
            keys = [prepared[row].who.sample.digest(spec.inputs) for row in good]
            writer.write(spec, keys, features)
            self.outcome.computed += len(good)

    def _run(self, i: int, inputs: Sequence[Any]) -> Features:
        """Run one extractor, in smaller batches from the first that does not fit the memory."""
        import torch

        while True:
            size = self.sizes.get(i, self.batch_size)
            try:
                return self.extractors[i].extract(inputs, size)
            except torch.OutOfMemoryError as error:
                if size == 1 or not self.shrink:
                    raise UsageError(
                        f"a batch of {size} does not fit the memory of {self.device} with"
                        f" {self.jobs[i].spec.extractor}; pass a smaller --batch-size, or auto"
                    ) from error
            # outside the handler, whose traceback would keep the failed batch alive
            self.sizes[i] = self.outcome.batch_size = size // 2
            torch.cuda.empty_cache()


class _Writer:
    """Writes batches to the store while the next one is computed; at most one is under way.

    So a run that is killed loses the batch being computed, and at most the one before it.
    """

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(1, "genmetrics-store")
        self._under_way: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def write(self, spec: ExtractorSpec, keys: Sequence[str], features: Features) -> None:
        """Hand a batch over once the one before is on disk; raises what that one met."""
        self._wait()
        self._under_way = self._pool.submit(self.store.write, spec, keys, features)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._wait()
        except GenmetricsError:
            if kind is None:  # else the run has already failed of something else
                raise
        finally:
            self._pool.shutdown()

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()


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
