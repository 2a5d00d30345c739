"""What becomes of features: sound rows go to the store, and what went wrong is noted."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence

import numpy as np

from genmetrics.core.errors import GenmetricsError
from genmetrics.core.extractor import ExtractorSpec, broken_rows, unanswered_rows
from genmetrics.core.outputs import plain_records, split
from genmetrics.core.rows import Features, concatenate, one_row, take
from genmetrics.run.ranks import Ranks
from genmetrics.run.store import FeatureStore
from genmetrics.run.work import Extraction, Failure, Job, Prepared, Who
from genmetrics.run.writer import Writer

CONVERSIONS = "_conversions"
"""Stored beside the outputs, one list of names a sample, so a resumed run counts the same."""

TRACEBACK = "GENMETRICS_TRACEBACK"
"""Environment variable: show where an error came from that nobody foresaw."""


FAULTS = (Exception, SystemExit)
"""What the code of a model or plug-in may raise; an exit would end the run without a word.

The exit of a signal's handler, which Python raises in whatever runs just then, is none of theirs:
:func:`failure_of` raises it again.
"""


class Keeper:
    """Writes the rows of one pass and notes those that cannot be kept."""

    def __init__(self, jobs: Sequence[Job], mine: Extraction, writer: Writer) -> None:
        self._jobs, self._mine, self._writer = jobs, mine, writer
        self._gathered: dict[int, list[Features]] = {}
        self._names: dict[int, dict[str, None]] = {}

    def keep(self, i: int, prepared: Sequence[Prepared], features: Features) -> None:
        """Keep one row for each sample."""
        if prepared:
            names = [list(one.conversions) for one in prepared]
            self._keep(i, [one.who for one in prepared], features, names)

    def gather(self, i: int, prepared: Sequence[Prepared], features: Features) -> None:
        """Take some parts of the sample under way."""
        if prepared:
            self._gathered.setdefault(i, []).append(features)
            names = self._names.setdefault(i, {})
            names.update((name, None) for one in prepared for name in one.conversions)

    def keep_gathered(self, i: int, who: Who) -> None:
        """Keep the row of a sample whose parts have all been gathered; nothing where one failed."""
        pieces, names = self._gathered.pop(i, []), self._names.pop(i, {})
        spec = self._jobs[i].spec
        if not pieces or self._mine.has_failed(who, spec.fingerprint):
            return
        parts = concatenate(pieces)
        wrong = {**plain_records(spec, parts)[1], **broken_rows(spec, parts)}
        for part in sorted(wrong):
            self._mine.fail(_failure(who, f"part {part}: {wrong[part]}", spec))
            return
        self._keep(i, [who], one_row(parts), [sorted(names)])

    def _keep(
        self, i: int, whos: Sequence[Who], features: Features, names: list[list[str]]
    ) -> None:
        spec = self._jobs[i].spec
        silent = unanswered_rows(features)
        features, unwritable = plain_records(spec, features)
        broken = {**broken_rows(spec, features), **unwritable}
        for row, reason in silent.items():
            self._mine.fail(_failure(whos[row], reason, spec, answered=False))
        for row, reason in broken.items():
            if row not in silent:
                self._mine.fail(_failure(whos[row], reason, spec))
        good = [row for row in range(len(whos)) if row not in silent and row not in broken]
        if not good:
            return
        kept: Features = {**split(features)[0], CONVERSIONS: names}
        if len(good) < len(whos):
            kept = take(kept, good)
        keys = [whos[row].sample.digest(spec.reads) for row in good]
        self._writer.write(spec, keys, kept)
        self._mine.computed += len(good)


def _failure(who: Who, reason: str, spec: ExtractorSpec, *, answered: bool = True) -> Failure:
    return Failure(who, reason, spec.fingerprint, spec.extractor, answered)


def _pass_on_a_signal(error: BaseException) -> None:
    """Raise an exit again where a signal's handler raised it: it is meant for the whole process."""
    if not isinstance(error, SystemExit):
        return
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = [getattr(handler, "__code__", None) for handler in handlers]
    if any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__)):
        raise error


def failure_of(who: Who, error: BaseException, spec: ExtractorSpec | None = None) -> Failure:
    """Note what a sample met: in an extractor, or before any could read it.

    An error that nobody foresaw is told in one line too, with its kind; ``GENMETRICS_TRACEBACK`` in
    the environment shows where it came from. The exit of a signal's handler is raised again.
    """
    _pass_on_a_signal(error)
    reason = " ".join(str(error).split())
    raised = not isinstance(error, GenmetricsError)
    if raised:
        if os.environ.get(TRACEBACK):
            traceback.print_exception(error, file=sys.stderr)
        reason = f"{type(error).__name__}: {reason}"
    if spec is None:
        return Failure(who, reason, raised=raised)
    name = who.sample.path or who.sample.id
    told = reason if spec.extractor in reason else f"{spec.extractor}: {reason}"
    told = told if name in told or not raised else f"{name}: {told}"
    return Failure(who, told, spec.fingerprint, spec.extractor, raised=raised)


def known_keys(jobs: Sequence[Job], store: FeatureStore, ranks: Ranks) -> list[set[str]]:
    """For each job, which of its keys some rank's store holds.

    Shards are named by their content, so a rank reads only those that none before it has: where all
    share a file system, the first reads them all.
    """
    specs = [job.spec for job in jobs]
    if ranks.world == 1:
        return [_held(job, store.known(job.spec).having(job.keys)) for job in jobs]
    listings = ranks.gather([store.shards(spec) for spec in specs])
    for i, spec in enumerate(specs):
        before = {name for listing in listings[: ranks.rank] for name in listing[i]}
        store.scan(spec, [n for n in listings[ranks.rank][i] if n not in before])
    having = [store.known(job.spec).having(job.keys) for job in jobs]
    found = ranks.gather([np.packbits(one) for one in having])
    held = [np.bitwise_or.reduce([bits[i] for bits in found]) for i in range(len(jobs))]
    return [
        _held(job, np.unpackbits(bits, count=len(job.keys)))
        for job, bits in zip(jobs, held, strict=True)
    ]


def _held(job: Job, having: np.ndarray) -> set[str]:
    return {job.keys[row] for row in np.flatnonzero(having)}
