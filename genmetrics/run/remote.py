"""Lane ``remote``: an endpoint is asked about several samples at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from genmetrics.core.extractor import Extractor
from genmetrics.core.outputs import checked
from genmetrics.core.rows import Features
from genmetrics.run.batches import Batch
from genmetrics.run.keep import FAULTS, Keeper, failure_of
from genmetrics.run.stage import Stage
from genmetrics.run.store import FeatureStore
from genmetrics.run.work import Extraction, How, Job, Prepared
from genmetrics.run.writer import Writer

Answer = tuple[Batch, list[Prepared], Features]


class RemoteStage(Stage):
    """A pass in which threads wait for answers. Each row is written as it comes.

    A run that is killed loses only the questions under way, and none is asked twice.
    """

    def __init__(
        self, jobs: Sequence[Job], store: FeatureStore, outcome: Extraction, how: How
    ) -> None:
        super().__init__(jobs, store, outcome, how)
        self.one_by_one = True

    def build(self, i: int) -> Extractor:
        """Make the client; no device is needed."""
        return self.jobs[i].spec.build("cpu")

    def work(self, batches: Sequence[Batch], writer: Writer) -> int:
        """Ask about this rank's share of the samples; returns how many were asked about."""
        keeper = Keeper(self.jobs, self.mine, writer)
        spec = self.jobs[0].spec
        pace = Pace(None if spec.per_minute is None else spec.per_minute / self.ranks.world)
        seen = 0
        with ThreadPoolExecutor(spec.requests, "genmetrics-remote") as pool:
            try:
                for batch, prepared, features in self._answers(batches, pool, pace):
                    self.ranks.check()
                    for failure in (f for one in prepared for f in one.failed):
                        self.mine.fail(failure)
                    ready = [one for one in prepared if one.inputs]
                    if self.view.parts:
                        keeper.gather(0, ready, features)
                        keeper.keep_gathered(0, batch.members[0])
                    elif ready and features:
                        keeper.keep(0, ready, features)
                    writer.flush()
                    seen += len(batch.members)
                    self._advance(len(batch.members))
                    if self.how.on_error == "fail" and (self.mine.fatal or self.ranks.flagged()):
                        self.ranks.flag()
                        break
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return seen

    def _answers(
        self, batches: Sequence[Batch], pool: ThreadPoolExecutor, pace: Pace
    ) -> Iterator[Answer]:
        """Claim samples as threads become free, and yield answers as they come."""
        claims = self.ranks.claims(len(batches))
        waiting: set[Future[Answer]] = set()
        while True:
            while len(waiting) < self.jobs[0].spec.requests:
                claim = next(claims, None)
                if claim is None:
                    break
                waiting.add(pool.submit(self._ask, batches[claim.position], pace))
            if not waiting:
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()

    def _ask(self, batch: Batch, pace: Pace) -> Answer:
        """Prepare one sample and ask about it."""
        (who,) = batch.members
        prepared = self.preparer.parts(who, batch.wanted)
        if any(one.failed for one in prepared):
            return batch, [one for one in prepared if one.failed][:1], {}
        pace.wait()
        try:
            return batch, prepared, self._answer(prepared)
        except FAULTS as error:
            failed = (failure_of(who, error, self.jobs[0].spec),)
            return batch, [Prepared(who, {}, failed=failed)], {}

    def _answer(self, prepared: Sequence[Prepared]) -> Features:
        inputs = [one.inputs[0] for one in prepared]
        return checked(self.jobs[0].spec, self.extractors[0].forward(inputs), len(inputs))


class Pace:
    """Lets so many through a minute, evenly spaced; everybody at once where there is no limit."""

    def __init__(
        self,
        per_minute: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._step = 0.0 if per_minute is None else 60.0 / per_minute
        self._clock, self._sleep = clock, sleep
        self._next = clock()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when it is this caller's turn."""
        if not self._step:
            return
        with self._lock:
            now = self._clock()
            turn = max(self._next, now)
            self._next = turn + self._step
        if turn > now:
            self._sleep(turn - now)
