"""Writing behind the computation: batches are gathered into shards of the feature store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

from genmetrics.core.errors import GenmetricsError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.rows import Features, concatenate
from genmetrics.run.shard import weigh
from genmetrics.run.store import FeatureStore

LARGE = 32 << 20
"""Bytes of rows that make a shard, however little time has gone by."""

_LOSS = 0.25, 0.01
"""What a killed run may lose: seconds, or a part of the time since it began; the larger one."""


@dataclass
class _Buffer:
    """Rows of one extractor that wait to be written."""

    spec: ExtractorSpec
    written: float
    """When its rows were last written, or could first have been."""
    bytes: int = 0
    keys: list[str] = field(default_factory=list)
    pieces: list[Features] = field(default_factory=list)

    def due(self, now: float, pause: float) -> bool:
        """Whether enough has gathered, or waited long enough."""
        return self.bytes >= LARGE or (self.bytes > 0 and now - self.written > pause)

    def take(self, now: float) -> tuple[ExtractorSpec, list[str], list[Features]]:
        """Empty the buffer."""
        taken = self.spec, self.keys, self.pieces
        self.bytes, self.keys, self.pieces, self.written = 0, [], [], now
        return taken


class Writer:
    """Gathers batches and writes them to the store while the next ones are computed.

    The rows of an extractor become a shard when there are :data:`LARGE` bytes of them, when they
    have waited for a quarter of a second or 1 % of the time since the writer was made, whichever is
    longer, and at the end. So a run that is killed loses the batch being computed and at most that
    much work before it, and the number of files grows with the logarithm of the time. One write is
    under way at most. To be used from one thread.

    Args:
        store: Where to write.
        clock: Seconds, from any origin.
    """

    def __init__(self, store: FeatureStore, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self._clock = clock
        self._began = clock()
        self._buffers: dict[str, _Buffer] = {}
        self._pool = ThreadPoolExecutor(1, "genmetrics-store")
        self._under_way: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def write(self, spec: ExtractorSpec, keys: Sequence[str], features: Features) -> None:
        """Take a batch over; raises what an earlier write met."""
        if self._under_way is not None and self._under_way.done():
            self._wait()
        buffer = self._buffers.setdefault(spec.fingerprint, _Buffer(spec, self._began))
        buffer.keys += keys
        buffer.pieces.append(features)
        buffer.bytes += 32 * len(keys) + weigh(features)
        now = self._clock()
        seconds, part = _LOSS
        pause = max(seconds, part * (now - self._began))
        due = [b for b in self._buffers.values() if b.due(now, pause)]
        # a slow disk makes larger shards, up to where memory would be the price
        if due and (self._under_way is None or any(b.bytes >= LARGE for b in due)):
            self._hand_over(due, now)

    def flush(self) -> None:
        """Write what has gathered; returns when it is on disk."""
        self._hand_over([b for b in self._buffers.values() if b.bytes], self._clock())
        self._wait()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.flush()
        except GenmetricsError:
            if kind is None:  # else the run has already failed of something else
                raise
        finally:
            self._pool.shutdown()

    def _hand_over(self, buffers: Sequence[_Buffer], now: float) -> None:
        self._wait()
        self._under_way = self._pool.submit(self._save, [buffer.take(now) for buffer in buffers])

    def _save(self, taken: list[tuple[ExtractorSpec, list[str], list[Features]]]) -> None:
        for spec, keys, pieces in taken:
            self.store.write(spec, keys, concatenate(pieces))

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()
