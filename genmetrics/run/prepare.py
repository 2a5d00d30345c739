"""Samples are decoded and prepared by threads, ahead of the models that read them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from genmetrics.core.batching import no_parts
from genmetrics.core.extractor import Extractor
from genmetrics.core.sample import Item
from genmetrics.core.threads import single_threaded
from genmetrics.core.views import Load, View, view_of
from genmetrics.extractors.decoders import decodes_of
from genmetrics.run.batches import Batch
from genmetrics.run.keep import FAULTS, failure_of
from genmetrics.run.window import Task, ahead, size_of
from genmetrics.run.work import Failure, How, Job, Prepared, Who
from genmetrics.samples.items import load_item

_AHEAD = 2  # batches decoded ahead of the model: one being prepared, one ready


class Chunk(NamedTuple):
    """What goes through the models together: a batch, or some parts of one sample."""

    batch: Batch
    prepared: list[Prepared]
    last: bool


class Preparer:
    """Makes of samples what the extractors of one view compute on.

    Args:
        jobs: The extractors' jobs; all of one view.
        extractors: Those that are loaded, by position in the list of jobs; filled by the caller.
        how: Threads, bound of bytes, ranks.
    """

    def __init__(self, jobs: Sequence[Job], extractors: Mapping[int, Extractor], how: How) -> None:
        self._jobs, self._extractors, self._how = jobs, extractors, how
        self._view: View = view_of(jobs[0].spec.view)
        self._reading: dict[tuple[int, ...], tuple[list[str], frozenset[str]]] = {}

    def chunks(self, batches: Sequence[Batch], size: int) -> Generator[Chunk]:
        """Claim batches and yield them with their samples prepared, ahead of the caller.

        Args:
            batches: Those of all ranks.
            size: Samples of a batch.
        """
        # one future an image is half of the cost of a small one; one a batch leaves threads idle
        step = max(1, size // (4 * self._how.workers))
        with single_threaded(self._how.workers, "genmetrics-decode") as pool:
            cut = self._parts if self._view.parts else self._wholes
            done: list[Prepared] = []
            try:
                results = ahead(
                    pool,
                    cut(batches, step),
                    limit=self._how.queue_bytes,
                    most=_AHEAD * max(self._how.workers, -(-size // step)),
                    size=lambda some: sum(size_of(v) for one in some for v in one.inputs.values()),
                )
                for (batch, complete, last), result in results:
                    done += result
                    del result  # so that what was computed is not kept until the next is prepared
                    if complete:
                        chunk, done = Chunk(batch, done, last), []
                        yield chunk
                        del chunk
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _wholes(self, batches: Sequence[Batch], step: int) -> Iterator[Task | None]:
        """Yield what prepares the samples of claimed batches, ``step`` at a time.

        A rank that takes over what another has not begun takes one batch at a time: the last ones
        are done by whoever is free, not by whoever asked first.
        """
        for claim in self._how.ranks.claims(len(batches)):
            batch = batches[claim.position]
            for start in range(0, len(batch.members), step):
                some = batch.members[start : start + step]
                last = start + step >= len(batch.members)
                yield Task((batch, last, last), partial(self._whole, some, batch.wanted))
            if not claim.own:
                yield None

    def _whole(self, some: Iterable[Who], wanted: Sequence[int]) -> list[Prepared]:
        return [self._prepare(who, wanted, partial(self._load, who, wanted)) for who in some]

    def _parts(self, batches: Sequence[Batch], step: int) -> Iterator[Task | None]:
        """Yield what prepares the parts of claimed samples, ``step`` at a time."""
        for claim in self._how.ranks.claims(len(batches)):
            batch = batches[claim.position]
            loads = self._loads(batch.members[0], batch.wanted)
            if isinstance(loads, Prepared):
                yield Task((batch, True, True), partial(list, [loads]))
            else:
                yield from self._cut(batch, loads, step)
            if not claim.own:
                yield None

    def _cut(self, batch: Batch, loads: Sequence[Load], step: int) -> Iterator[Task]:
        """Cut the parts of one sample; within it, so that no bit depends on the one before it."""
        (who,) = batch.members
        size = max(1, self._how.batch_size)
        for start in range(0, len(loads), size):
            end = min(start + size, len(loads))
            for first in range(start, end, step):
                some = loads[first : min(first + step, end)]
                complete = first + step >= end
                tag = batch, complete, complete and end == len(loads)
                yield Task(tag, partial(self._some, who, batch.wanted, some))

    def parts(self, who: Who, wanted: Sequence[int]) -> list[Prepared]:
        """Prepare a sample or all of its parts; one entry where it cannot be read or cut."""
        loads = self._loads(who, wanted)
        return [loads] if isinstance(loads, Prepared) else self._some(who, wanted, loads)

    def first(self, who: Who, wanted: Sequence[int]) -> Prepared:
        """Prepare a sample or the first of its parts."""
        loads = self._loads(who, wanted)
        return loads if isinstance(loads, Prepared) else self._prepare(who, wanted, loads[0])

    def _loads(self, who: Who, wanted: Sequence[int]) -> list[Load] | Prepared:
        """Return what gives the parts of a sample, or with what it fails.

        What cannot be read fails for everybody; what cannot be cut, for the extractors that want
        its parts.
        """
        try:
            item = self._load(who, wanted)
        except FAULTS as error:
            return Prepared(who, {}, failed=(failure_of(who, error),))
        try:
            loads = list(self._view.loads(item))
            if not loads:
                raise no_parts(who.sample.id, self._view)
            return loads
        except FAULTS as error:
            specs = [self._jobs[i].spec for i in wanted]
            return Prepared(who, {}, failed=tuple(failure_of(who, error, s) for s in specs))

    def _some(self, who: Who, wanted: Sequence[int], loads: Iterable[Load]) -> list[Prepared]:
        return [self._prepare(who, wanted, load) for load in loads]

    def _load(self, who: Who, wanted: Sequence[int]) -> Item:
        """Decode what the extractors read; of clips no frame yet."""
        key = tuple(wanted)
        if key not in self._reading:
            specs = [self._jobs[i].spec for i in key]
            fields = sorted({name for spec in specs for name in spec.reads})
            self._reading[key] = fields, decodes_of(specs)
        return load_item(who.sample, *self._reading[key], self._how.device)

    def _prepare(self, who: Who, wanted: Sequence[int], load: Load) -> Prepared:
        """Load a part and prepare it for each extractor; what goes wrong is noted beside it."""
        try:
            item = load()
        except FAULTS as error:
            return Prepared(who, {}, failed=(failure_of(who, error),))
        inputs: dict[int, Any] = {}
        failed: list[Failure] = []
        for i in wanted:
            try:
                inputs[i] = self._extractors[i].prepare(item)
            except FAULTS as error:
                failed.append(failure_of(who, error, self._jobs[i].spec))
        return Prepared(who, inputs, item.conversions, tuple(failed))
