"""A tiny extractor and metrics on it: everything the runner does, without a model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from genmetrics.core.errors import InputError
from genmetrics.core.extractor import Extractor, ExtractorSpec
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.protocol import LOCAL
from genmetrics.metrics.base import SampleMetric, SetMetric


@dataclass(frozen=True, kw_only=True)
class ToySpec(ExtractorSpec):
    """Mean colour of a 2 x 2 grid: 12 numbers an image."""

    outputs = {"grid": "vector"}
    extractor: str = "toy"
    fault: str = ""
    log: str | None = field(default=None, metadata=LOCAL)
    pause: float = field(default=0.0, metadata=LOCAL)

    def check(self) -> None:
        pass

    def build(self, device: str) -> ToyExtractor:
        return ToyExtractor(self, device)


class ToyExtractor(Extractor):
    """Logs the ids of every forward, after it is done."""

    spec: ToySpec

    def prepare(self, item):
        if item.id == self.spec.fault.removeprefix("prepare:"):
            raise InputError("too dark to see")
        image = item.image.double().numpy()
        if min(image.shape[1:]) < 2:
            raise InputError(f"{item.id} is smaller than the 2 x 2 grid")
        h, w = image.shape[1] // 2, image.shape[2] // 2
        blocks = [image[:, :h, :w], image[:, h:, :w], image[:, :h, w:], image[:, h:, w:]]
        return item.id, np.concatenate([block.mean(axis=(1, 2)) for block in blocks])

    def forward(self, prepared: Sequence):
        time.sleep(self.spec.pause)
        rows = np.stack([values for _, values in prepared]).astype(np.float32)
        if self.spec.log is not None:
            names = list(dict.fromkeys(name for name, _ in prepared))
            with Path(self.spec.log).open("a") as file:
                file.write(" ".join(names) + "\n")
                file.flush()
                os.fsync(file.fileno())
        if self.spec.fault == "zeros":
            rows[:] = 0
        return {"grid": rows}


@dataclass(frozen=True, kw_only=True)
class ToyProtocol(MetricProtocol):
    extractor: ToySpec


class ToyDistance(SetMetric):
    """Distance of the mean colours."""

    id = "toy-distance"
    summary = "test"
    inputs = ("image", "reference_set")
    higher_is_better = False
    minimum = 1

    def __init__(self, spec: ToySpec, device: str = "cpu") -> None:
        protocol = ToyProtocol(metric=self.id, extractor=spec)
        super().__init__(protocol, output="grid", device=device)

    def _compare(self, fake, ids):
        real = self._real().astype(np.float64)
        centre = real.mean(axis=0)
        influence = ((fake - centre) ** 2).sum(axis=1)
        return self._set_result(
            float(influence.mean()), influence - influence.mean(), ids, n_reference=len(real)
        )


class ToyBrightness(SampleMetric):
    """Mean brightness of each image."""

    id = "toy-brightness"
    summary = "test"
    inputs = ("image",)
    higher_is_better = True

    def __init__(self, spec: ToySpec, device: str = "cpu") -> None:
        super().__init__(ToyProtocol(metric=self.id, extractor=spec), device=device)

    def scores(self, samples, features):
        return features["extractor"]["grid"].astype(np.float64).mean(axis=1)
