"""Samples of very different cost, shared by the ranks of a launcher.

  torchrun --nproc-per-node 2 -m benchmarks.uneven FOLDER --seconds 12 --where first

The model sleeps for what each sample costs, so other programs on the machine do not matter. Rank 0
prints one JSON line: ``seconds`` of the run from the plan to the report, and ``idle``, the share of
all ranks' time between the first model call and the last in which no model ran.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

import genmetrics as gm
from benchmarks.ranks import costs
from genmetrics.core.extractor import Extractor, ExtractorSpec, Features
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.protocol import LOCAL
from genmetrics.core.sample import Item, Sample
from genmetrics.metrics.base import SampleMetric

BATCH = 4


class Call(NamedTuple):
    """One model call, by the clock that all processes of a machine share."""

    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class SleepSpec(ExtractorSpec):
    """Mean brightness, at a price; samples are named by their number."""

    outputs: ClassVar = {"brightness": "score"}
    extractor: str = "sleep"
    costs: tuple[float, ...] = field(default=(), metadata=LOCAL)

    def check(self) -> None:
        pass

    def build(self, device: str) -> Sleeper:
        return Sleeper(self, device)


class Sleeper(Extractor):
    """Sleeps for as long as a sample costs."""

    spec: SleepSpec
    calls: ClassVar[list[Call]] = []
    """All of this process."""
    fill = 1  # a copy would cost as much as a sample

    def prepare(self, item: Item) -> tuple[float, float]:
        assert item.image is not None
        return self.spec.costs[int(item.id)], float(item.image.double().mean())

    def forward(self, prepared: Sequence[tuple[float, float]]) -> Features:
        start = time.monotonic()
        time.sleep(sum(cost for cost, _ in prepared))
        self.calls.append(Call(start, time.monotonic()))
        return {"brightness": np.array([value for _, value in prepared], np.float32)}


@dataclass(frozen=True, kw_only=True)
class Protocol(MetricProtocol):
    extractor: SleepSpec


class Brightness(SampleMetric):
    """Mean brightness of the images."""

    id = "brightness"
    summary = "what sleeping models measure"
    inputs = ("image",)
    higher_is_better = True

    def __init__(self, spec: SleepSpec) -> None:
        super().__init__(Protocol(metric=self.id, extractor=spec), device="cpu")

    def scores(self, samples: Sequence[Sample], features: Mapping[str, Features]) -> np.ndarray:
        return np.asarray(features["extractor"]["brightness"], np.float64)


def idle_share(calls: Sequence[Sequence[Call]]) -> float:
    """Share of all ranks' time between the first call and the last in which no model ran."""
    flat = [call for of_rank in calls for call in of_rank]
    span = max(call.end for call in flat) - min(call.start for call in flat)
    return 1 - sum(call.end - call.start for call in flat) / (len(calls) * span)


def _gathered(calls: list[Call]) -> list[list[Call]]:
    from torch import distributed

    if not distributed.is_initialized():
        return [calls]
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, calls)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--where", choices=("first", "last"), required=True)
    given = parser.parse_args()
    each = costs(len(list(given.folder.iterdir())), given.seconds, given.where)
    report = gm.evaluate(
        given.folder,
        metrics=[Brightness(SleepSpec(costs=tuple(each)))],
        batch_size=BATCH,
        device="cpu",
        cache=False,
        distributed=True,
    )
    calls = _gathered(Sleeper.calls)
    if os.environ.get("RANK", "0") == "0":
        (result,) = report.results.values()
        found = {"seconds": report.runtime["seconds"], "idle": idle_share(calls)}
        print(json.dumps({**found, "n": result.n, "calls": [len(some) for some in calls]}))


if __name__ == "__main__":
    main()
