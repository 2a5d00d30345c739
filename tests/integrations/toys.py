"""A metric of given scores, and ranks within one process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

import genmetrics as gm
from genmetrics.core.metric import MetricProtocol
from genmetrics.metrics.base import SampleMetric


class Frames(SampleMetric):
    """Mean of given scores; with ids such as ``video/3``, mean over videos of the frames' mean."""

    id = "toy"
    summary = "Mean of given scores"
    inputs = ("image",)
    higher_is_better = True

    def __init__(self, *, device: str = "auto") -> None:
        super().__init__(MetricProtocol(metric="toy"), device=device)

    def scores(self, samples: Sequence[gm.Sample], features: Mapping) -> np.ndarray:
        return features["toy"]["score"]

    def groups(self, samples: Sequence[gm.Sample]) -> list[str] | None:
        return [s.id.split("/")[0] for s in samples] if "/" in samples[0].id else None


def samples(names: Sequence[str]) -> list[gm.Sample]:
    return [gm.Sample(id=name) for name in names]


def give(metric: gm.Metric, names: Sequence[str], scores: Sequence[float]) -> None:
    metric.update_features(samples(names), {"toy": {"score": np.asarray(scores, np.float64)}})


@contextmanager
def as_ranks(metrics: Sequence[gm.Metric]) -> Iterator[None]:
    """Inside, `sync` of any of these metrics joins them all; states travel as pickles."""
    states = [pickle.loads(pickle.dumps(gm.distributed._share(metric))) for metric in metrics]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gm.distributed, "_gather", lambda share: states)
        yield


def joined(metrics: Sequence[gm.Metric]) -> gm.Metric:
    with as_ranks(metrics):
        return gm.distributed.sync(metrics[-1])
