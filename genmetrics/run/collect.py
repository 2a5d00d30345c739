"""Features that only other ranks' stores hold travel to the main rank's store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.rows import Features, take
from genmetrics.run.ranks import Ranks
from genmetrics.run.store import FeatureStore
from genmetrics.run.work import Job

PIECE = 1024
"""Rows that travel at a time, so that no rank holds more of another's than this."""


class _Offer(NamedTuple):
    keys: list[str]
    features: Features | None


def collect(job: Job, store: FeatureStore, ranks: Ranks) -> None:
    """Complete the main rank's store. Where all ranks share a file system nothing travels."""
    if ranks.world == 1:
        return
    if ranks.main:
        store.scan(job.spec, store.shards(job.spec))  # what others wrote to the same folder
    lacking = ranks.share(lambda: _lacking(job, store))
    for start in range(0, len(lacking), PIECE):
        piece = lacking[start : start + PIECE]
        nothing = _Offer([], None)
        offers = ranks.gather_to_main(nothing if ranks.main else _offer(job.spec, piece, store))
        _accept(job.spec, offers, store)


def _lacking(job: Job, store: FeatureStore) -> list[str]:
    keys = list(dict.fromkeys(job.keys))
    return _chosen(keys, ~store.known(job.spec).having(keys))


def _chosen(keys: Sequence[str], which: np.ndarray) -> list[str]:
    return [keys[row] for row in np.flatnonzero(which).tolist()]


def _offer(spec: ExtractorSpec, keys: Sequence[str], store: FeatureStore) -> _Offer:
    """Read what of ``keys`` this rank has; failed samples are in no store."""
    mine = _chosen(keys, store.known(spec).having(keys))
    return _Offer(mine, store.read(spec, mine) if mine else None)


def _accept(spec: ExtractorSpec, offers: Sequence[_Offer], store: FeatureStore) -> None:
    """Write each row once, whoever offers it too."""
    for keys, features in offers:
        new = np.flatnonzero(~store.known(spec).having(keys)).tolist()
        if new:
            assert features is not None
            store.write(spec, [keys[i] for i in new], take(features, new))
