"""A stage of an extraction: extractors that share a pass over the samples they lack."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

from genmetrics.core.batching import Batches
from genmetrics.core.errors import ModelError, OutOfMemoryError
from genmetrics.core.extractor import Extractor
from genmetrics.core.rows import Features, concatenate
from genmetrics.core.views import View, view_of
from genmetrics.run.batch_size import measure, remember, remembered
from genmetrics.run.batches import Batch, cut
from genmetrics.run.keep import FAULTS, Keeper, failure_of, known_keys
from genmetrics.run.prepare import Chunk, Preparer
from genmetrics.run.ranks import Ranks
from genmetrics.run.store import FeatureStore
from genmetrics.run.work import Extraction, How, Job, Place, Prepared, Who
from genmetrics.run.writer import Writer
from genmetrics.samples.check import NAMING


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
        self.one_by_one = self.view.parts
        """Whether each sample is a batch of its own."""
        self.mine = Extraction()
        """What this rank did."""
        self.extractors: dict[int, Extractor] = {}
        self.preparer = Preparer(jobs, self.extractors, how)
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
                found = self.preparer.first(who, (i,))
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
        with closing(self.preparer.chunks(batches, self.mine.batch_size)) as chunks:
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
        except FAULTS as error:
            if len(prepared) == 1:
                self.mine.fail(failure_of(prepared[0].who, error, self.jobs[i].spec))
                return [], {}
            return self._one_by_one(i, prepared, error)
        return self._one_by_one(i, prepared)

    def _one_by_one(
        self, i: int, prepared: Sequence[Prepared], met: BaseException | None = None
    ) -> tuple[list[Prepared], Features]:
        """Run each by itself, so that the error of one names that one.

        Raises:
            ModelError: None fails by itself, so what the batch ``met`` is the fault of no sample.
        """
        first, last = prepared[0].who, prepared[-1].who
        told = failure_of(first, met, self.jobs[i].spec).reason if met is not None else ""
        kept, pieces = [], []
        for one in prepared:
            try:
                pieces.append(self.runs[i].run([one.inputs[i]]))
                kept.append(one)
            except FAULTS as error:
                self.mine.fail(failure_of(one.who, error, self.jobs[i].spec))
                if self.how.on_error == "fail":
                    break  # one culprit is enough to end the run
        if met is not None and len(kept) == len(prepared):
            raise ModelError(
                f"{told}; it failed for the batch of {len(kept)} samples from {first.sample.id!r}"
                f" to {last.sample.id!r}, and for none of them alone: run again"
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
