"""A stage of an extraction: extractors that share a pass over the samples they lack."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from genmetrics.core.batching import Batches, no_parts
from genmetrics.core.errors import ModelError, OutOfMemoryError
from genmetrics.core.extractor import Extractor
from genmetrics.core.rows import Features, concatenate
from genmetrics.core.sample import Item
from genmetrics.core.threads import single_threaded
from genmetrics.core.views import Load, View, view_of
from genmetrics.extractors._model import decodes_of
from genmetrics.run.batch_size import measure, remember, remembered
from genmetrics.run.batches import Batch, cut
from genmetrics.run.keep import Keeper, failure_of, known_keys
from genmetrics.run.ranks import Ranks
from genmetrics.run.store import FeatureStore
from genmetrics.run.window import Task, ahead, size_of
from genmetrics.run.work import Extraction, Failure, How, Job, Place, Prepared, Who
from genmetrics.run.writer import Writer
from genmetrics.samples.check import NAMING
from genmetrics.samples.items import load_item

_AHEAD = 2  # batches decoded ahead of the model: one being prepared, one ready


class Chunk(NamedTuple):
    """What goes through the models together: a batch, or some parts of one sample."""

    batch: Batch
    prepared: list[Prepared]
    last: bool


class Stage:
    """Extractors of one view and lane, over all their samples."""

    def __init__(
        self, jobs: Sequence[Job], store: FeatureStore, outcome: Extraction, how: How
    ) -> None:
        self.jobs = jobs
        self.store = store
        self.outcome = outcome
        self.how = how
        self.ranks: Ranks = how.ranks
        self.view: View = view_of(jobs[0].spec.view)
        self._reading: dict[tuple[int, ...], tuple[list[str], frozenset[str]]] = {}
        self.one_by_one = self.view.parts
        """Whether each sample is a batch of its own."""
        self.mine = Extraction()
        """What this rank did."""
        self.extractors: dict[int, Extractor] = {}
        self.runs: dict[int, Batches] = {}

    def run(self, what: str) -> None:
        """Compute what no rank's store holds; samples that fail are noted in the outcome."""
        progress = self.how.progress
        known = known_keys(self.jobs, self.store, self.ranks)
        order, wanted = self._missing(known)
        total = sum(bool(wants) for wants in wanted.values())
        progress.begin(what, total, len(order) - total)
        try:
            for i in sorted({i for wants in wanted.values() for i in wants}):
                self.extractors[i] = self.build(i)
            sizes = self.ranks.share(lambda: self._measured(order, wanted))
            size = max(sizes.values(), default=self.how.batch_size)
            self.mine.batch_size = size
            for i, extractor in self.extractors.items():
                self.runs[i] = Batches(
                    extractor,
                    sizes.get(i, self.how.batch_size),
                    shrink=self.how.shrink,
                    halved=partial(self._halved, i),
                )
            batches = list(cut(order, wanted, 1 if self.one_by_one else size))
            with Writer(self.store) as writer:
                seen = self.work(batches, writer)
            self._join(total, seen, size)
        finally:
            progress.end()
            self._free()

    def build(self, i: int) -> Extractor:
        """Load a model; a large one over all devices of this rank."""
        spec = self.jobs[i].spec
        if spec.lane == "alone":
            return spec.build_over(self.how.devices)
        return spec.build(self.how.device)

    def _free(self) -> None:
        """Let the models of this stage go before the next one loads its own."""
        alone = any(job.spec.lane == "alone" for job in self.jobs)
        self.extractors.clear()
        self.runs.clear()
        if alone:
            import torch

            gc.collect()  # a network with hooks or caches may hold itself
            torch.cuda.empty_cache()

    def _halved(self, i: int, size: int) -> None:
        self.mine.batch_size = min(size, self.mine.batch_size)
        if self.how.device.startswith("cuda"):
            remember(self.store.folder(self.jobs[i].spec), self.how.device, size)

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
                sound = next(self._first(order, wanted, i), None)
                if sound is not None:
                    size = measure(self.extractors[i], sound.inputs[i])
                    remember(folder, device, size)
            if size is not None:
                sizes[i] = size
        return sizes

    def _first(
        self, order: Sequence[Who], wanted: Mapping[Place, tuple[int, ...]], i: int
    ) -> Iterator[Prepared]:
        """Yield a prepared part of each sample that an extractor lacks, as far as they can be."""
        for who in order:
            if i in wanted[who.place]:
                loads = self.parts_of(who, (i,))
                found = loads if isinstance(loads, Prepared) else self._prepare(who, (i,), loads[0])
                if found.inputs:  # what fails is named by the pass
                    yield found

    # -- what is to be done ------------------------------------------------------------------------

    def _missing(self, known: Sequence[set[str]]) -> tuple[list[Who], dict[Place, tuple[int, ...]]]:
        """Samples in order, and for each the extractors that have not seen its content."""
        order: dict[Place, Who] = {}
        wanted: dict[Place, tuple[int, ...]] = {}
        for i, job in enumerate(self.jobs):
            keys = set(known[i])
            for who, key in zip(job.members, job.keys, strict=True):
                place = who.place
                order.setdefault(place, who)
                wants = wanted.setdefault(place, ())
                if key in keys:
                    self.outcome.reused += 1
                else:
                    keys.add(key)  # equal content elsewhere in this run needs no second pass
                    wanted[place] = (*wants, i)
        return list(order.values()), wanted

    # -- the pass ----------------------------------------------------------------------------------

    def work(self, batches: Sequence[Batch], writer: Writer) -> int:
        """Work through this rank's share of the batches; returns the number of samples seen."""
        keeper = Keeper(self.jobs, self.mine, writer)
        seen = 0
        deadline = None
        with closing(self._chunks(batches)) as chunks:
            for chunk in chunks:
                self.ranks.check()
                for failure in (failure for one in chunk.prepared for failure in one.failed):
                    self.mine.fail(failure)
                # once a run is known to fail, the rest is decoded only to name every bad file
                if self.how.on_error == "fail" and (self.mine.fatal or self.ranks.flagged()):
                    if deadline is None:
                        self.ranks.flag()
                        deadline = time.monotonic() + NAMING
                    elif time.monotonic() > deadline:
                        break
                else:
                    self._compute(chunk, keeper)
                if chunk.last:
                    seen += len(chunk.batch.members)
                    self._advance(len(chunk.batch.members))
        return seen

    def _compute(self, chunk: Chunk, keeper: Keeper) -> None:
        """Run every extractor that wants the chunk, and keep what comes out."""
        for i in chunk.batch.wanted:
            ready = [one for one in chunk.prepared if i in one.inputs]
            if self.view.parts:
                self._compute_parts(i, chunk, ready, keeper)
            elif ready:
                kept, features = self._run(i, ready)
                keeper.keep(i, kept, features)

    def _compute_parts(
        self, i: int, chunk: Chunk, ready: Sequence[Prepared], keeper: Keeper
    ) -> None:
        """Run some parts of one sample; with the last ones, keep its row."""
        (who,) = chunk.batch.members
        if not self.mine.has_failed(who, self.jobs[i].spec.fingerprint):
            kept, features = self._run(i, ready)
            keeper.gather(i, kept, features)
        if chunk.last:
            keeper.keep_gathered(i, who)

    def _run(self, i: int, prepared: Sequence[Prepared]) -> tuple[list[Prepared], Features]:
        """Run one extractor; what raises is found one by one, noted, and left out."""
        run = self.runs[i]
        if not prepared:
            return [], {}
        try:
            return list(prepared), run.run([p.inputs[i] for p in prepared])
        except OutOfMemoryError:
            if run.size > 1:
                raise  # a size that was asked for is not changed in silence
        except Exception as error:
            if len(prepared) == 1:
                self.mine.fail(failure_of(prepared[0].who, error, self.jobs[i].spec))
                return [], {}
            return self._one_by_one(i, prepared, error)
        return self._one_by_one(i, prepared)

    def _one_by_one(
        self, i: int, prepared: Sequence[Prepared], met: Exception | None = None
    ) -> tuple[list[Prepared], Features]:
        """Run each by itself, so that the error of one names that one.

        Raises:
            ModelError: None fails by itself, so what the batch ``met`` is the fault of no sample.
        """
        kept, pieces = [], []
        for one in prepared:
            try:
                pieces.append(self.runs[i].run([one.inputs[i]]))
                kept.append(one)
            except Exception as error:
                self.mine.fail(failure_of(one.who, error, self.jobs[i].spec))
                if self.how.on_error == "fail":
                    break  # one culprit is enough to end the run
        if met is not None and len(kept) == len(prepared):
            ids = [one.who.sample.id for one in (prepared[0], prepared[-1])]
            told = failure_of(prepared[0].who, met, self.jobs[i].spec).reason
            raise ModelError(
                f"{told}; it failed for the batch of {len(kept)} samples from {ids[0]!r} to"
                f" {ids[1]!r}, and for none of them alone: run again"
            ) from met
        return kept, concatenate(pieces) if pieces else {}

    def _advance(self, count: int) -> None:
        """Count samples as done, and tell how many all ranks have done since."""
        done = self.ranks.tally(count)
        if done:
            self.how.progress.advance(done)

    def _join(self, total: int, seen: int, size: int) -> None:
        """Add what every rank did to the outcome, in order of rank."""
        shares = self.ranks.gather((self.mine, seen), lambda: self._advance(0))
        self._advance(0)
        before = len(self.outcome.failures)
        for mine, _ in shares:
            self.outcome.computed += mine.computed
            # of stages and ranks the smallest
            self.outcome.batch_size = min(self.outcome.batch_size or size, mine.batch_size)
            for failure in mine.failures.values():
                self.outcome.fail(failure)
        self.outcome.unseen += total - sum(seen for _, seen in shares)
        if len(self.outcome.failures) > before:
            self._fail_alike(known_keys(self.jobs, self.store, self.ranks))

    def _fail_alike(self, known: Sequence[set[str]]) -> None:
        """Fail the samples whose content equals that of a failed one: nobody else looked at it."""
        for job, keys in zip(self.jobs, known, strict=True):
            fingerprint, reads = job.spec.fingerprint, job.spec.reads
            alike = {
                failure.who.sample.digest(reads): failure
                for failure in list(self.outcome.failures.values())
                if failure.extractor in (None, fingerprint)
            }
            for who, key in zip(job.members, job.keys, strict=True):
                if key in alike and key not in keys:
                    self.outcome.fail(alike[key]._replace(who=who))

    # -- decoding ----------------------------------------------------------------------------------

    def _chunks(self, batches: Sequence[Batch]) -> Generator[Chunk]:
        """Claim batches and yield them with their samples prepared, ahead of the caller."""
        with single_threaded(self.how.workers, "genmetrics-decode") as pool:
            tasks = self._parts(batches) if self.view.parts else self._wholes(batches)
            done: list[Prepared] = []
            try:
                results = ahead(
                    pool,
                    tasks,
                    limit=self.how.queue_bytes,
                    most=_AHEAD * self._tasks_a_batch,
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

    @property
    def _slice(self) -> int:
        """Samples or parts that a thread prepares at a time.

        One future an image is half of the cost of a small one; one a batch leaves threads idle.
        """
        size = self.mine.batch_size or self.how.batch_size
        return max(1, size // (4 * self.how.workers))

    @property
    def _tasks_a_batch(self) -> int:
        size = self.mine.batch_size or self.how.batch_size
        return max(self.how.workers, -(-size // self._slice))

    def _wholes(self, batches: Sequence[Batch]) -> Iterator[Task | None]:
        """Yield what prepares the samples of claimed batches, some at a time.

        A rank that takes over what another has not begun takes one batch at a time: the last ones
        are done by whoever is free, not by whoever asked first.
        """
        step = self._slice
        for claim in self.ranks.claims(len(batches)):
            batch = batches[claim.position]
            for start in range(0, len(batch.members), step):
                some = batch.members[start : start + step]
                last = start + step >= len(batch.members)
                yield Task((batch, last, last), partial(self._whole, some, batch.wanted))
            if not claim.own:
                yield None

    def _whole(self, some: Iterable[Who], wanted: Sequence[int]) -> list[Prepared]:
        return [self._prepare(who, wanted, partial(self._load, who, wanted)) for who in some]

    def _parts(self, batches: Sequence[Batch]) -> Iterator[Task | None]:
        """Yield what prepares the parts of claimed samples, some at a time.

        They are cut within the sample: no bit depends on the one before it.
        """
        step, size = self._slice, max(1, self.how.batch_size)
        for claim in self.ranks.claims(len(batches)):
            batch = batches[claim.position]
            (who,) = batch.members
            loads = self.parts_of(who, batch.wanted)
            if isinstance(loads, Prepared):
                yield Task((batch, True, True), partial(list, [loads]))
                continue
            for start in range(0, len(loads), size):
                end = min(start + size, len(loads))
                for first in range(start, end, step):
                    some = loads[first : min(first + step, end)]
                    complete = first + step >= end
                    last = complete and end == len(loads)
                    yield Task(
                        (batch, complete, last), partial(self._some, who, batch.wanted, some)
                    )
            if not claim.own:
                yield None

    def parts_of(self, who: Who, wanted: Sequence[int]) -> list[Load] | Prepared:
        """Return what gives the parts of a sample, or with what it fails.

        What cannot be read fails for everybody; what cannot be cut, for the extractors that want
        its parts.
        """
        try:
            item = self._load(who, wanted)
        except Exception as error:
            return Prepared(who, {}, failed=(failure_of(who, error),))
        try:
            loads = list(self.view.loads(item))
            if not loads:
                raise no_parts(who.sample.id, self.view)
            return loads
        except Exception as error:
            specs = [self.jobs[i].spec for i in wanted]
            return Prepared(who, {}, failed=tuple(failure_of(who, error, s) for s in specs))

    def _some(self, who: Who, wanted: Sequence[int], loads: Iterable[Load]) -> list[Prepared]:
        return [self._prepare(who, wanted, load) for load in loads]

    def _load(self, who: Who, wanted: Sequence[int]) -> Item:
        """Decode what the extractors read; of clips no frame yet."""
        key = tuple(wanted)
        if key not in self._reading:
            specs = [self.jobs[i].spec for i in key]
            fields = sorted({name for spec in specs for name in spec.reads})
            self._reading[key] = fields, decodes_of(specs)
        return load_item(who.sample, *self._reading[key], self.how.device)

    def _prepare(self, who: Who, wanted: Sequence[int], load: Load) -> Prepared:
        """Load a part and prepare it for each extractor; what goes wrong is noted beside it."""
        try:
            item = load()
        except Exception as error:
            return Prepared(who, {}, failed=(failure_of(who, error),))
        inputs: dict[int, Any] = {}
        failed: list[Failure] = []
        for i in wanted:
            try:
                inputs[i] = self.extractors[i].prepare(item)
            except Exception as error:
                failed.append(failure_of(who, error, self.jobs[i].spec))
        return Prepared(who, inputs, item.conversions, tuple(failed))
