"""Toy extractors of the lanes and views beside the plain one: frames, endpoints, large models."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from genmetrics.core.errors import InputError
from genmetrics.core.extractor import Extractor, ExtractorSpec
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.protocol import LOCAL
from genmetrics.core.rows import UNANSWERED, Ragged
from genmetrics.metrics.base import SampleMetric


def note(log: str | None, text: str) -> None:
    """Add a line to a file that other processes read."""
    if log is not None:
        with Path(log).open("a") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True, kw_only=True)
class FrameSpec(ExtractorSpec):
    """Mean and deviation of each frame's colours, row by row."""

    outputs = {"colours": "vector"}
    extractor: str = "toy-frames"
    view: str = "frames"
    log: str | None = field(default=None, metadata=LOCAL)

    def check(self) -> None:
        pass

    def build(self, device: str) -> Frames:
        return Frames(self, device)


class Frames(Extractor):
    spec: FrameSpec

    def prepare(self, item) -> Any:
        if item.image.float().mean() < 1:
            raise InputError(f"frame {item.part} is black")
        return item.image

    def forward(self, prepared: Sequence) -> dict[str, Any]:
        note(self.spec.log, f"forward {len(prepared)}")
        found = []
        for one in prepared:  # one at a time: the memory that is tested is the runner's
            row = one.flatten(1).float()
            found.append(np.concatenate([row.mean(1), row.std(1)]))
        return {"colours": np.stack(found).astype(np.float32)}


@dataclass(frozen=True, kw_only=True)
class OneProtocol(MetricProtocol):
    extractor: ExtractorSpec


class Steadiness(SampleMetric):
    """How little the colours of neighbouring frames differ."""

    id = "toy-steadiness"
    summary = "test"
    inputs = ("video",)
    higher_is_better = True

    def __init__(self, spec: ExtractorSpec | None = None, log: str | None = None, device="cpu"):
        chosen = spec or FrameSpec(log=log)
        super().__init__(OneProtocol(metric=self.id, extractor=chosen), device=device)

    def scores(self, samples, features):
        rows = features["extractor"]["colours"]
        assert isinstance(rows, Ragged)
        return np.array([-np.abs(np.diff(row, axis=0)).mean() for row in rows], dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class EndpointSpec(ExtractorSpec):
    """An endpoint that has no answer for samples whose number ends in a digit."""

    lane = "remote"
    inputs = ("image", "prompt")
    outputs = {"answer": "record"}
    extractor: str = "toy-endpoint"
    silent: str = field(default="3", metadata=LOCAL)
    raises: str = field(default="-", metadata=LOCAL)
    log: str | None = field(default=None, metadata=LOCAL)

    def check(self) -> None:
        pass

    def build(self, device: str) -> Endpoint:
        return Endpoint(self, device)


class Endpoint(Extractor):
    spec: EndpointSpec
    fill = 1

    def prepare(self, item) -> Any:
        return item.id, len(item.prompt)

    def forward(self, prepared: Sequence) -> dict[str, Any]:
        ((name, length),) = prepared
        note(self.spec.log, name)
        if name.endswith(self.spec.raises):
            raise ConnectionError("reset by peer")
        silent = name.endswith(self.spec.silent)
        answer = {} if silent else {"stars": length % 5}
        return {"answer": [answer], UNANSWERED: ["refused to answer" if silent else None]}


class Stars(SampleMetric):
    """What the endpoint says."""

    id = "toy-stars"
    summary = "test"
    inputs = ("image", "prompt")
    higher_is_better = True

    def __init__(self, spec: ExtractorSpec | None = None, device="cpu"):
        super().__init__(
            OneProtocol(metric=self.id, extractor=spec or EndpointSpec()), device=device
        )

    def scores(self, samples, features):
        return np.array([row["stars"] for row in features["extractor"]["answer"]], dtype=np.float64)

    def details(self, samples, features, scores):
        return features["extractor"]["answer"]


class Memory:
    """A device that holds so much."""

    room = 10
    used = 0
    most = 0
    built: ClassVar[list[str]] = []


@dataclass(frozen=True, kw_only=True)
class LargeSpec(ExtractorSpec):
    """A model of some size."""

    lane = "alone"
    outputs = {"mean": "score"}
    extractor: str = "toy-large"
    size: int = 8

    def check(self) -> None:
        pass

    def build(self, device: str) -> Large:
        return Large(self, device)


@dataclass(frozen=True, kw_only=True)
class SmallSpec(LargeSpec):
    """The same, beside others."""

    lane = "shared"


class Large(Extractor):
    spec: LargeSpec

    def __init__(self, spec, device):
        super().__init__(spec, device)
        gc.collect()
        if Memory.used + spec.size > Memory.room:
            raise InputError(f"{spec.extractor} does not fit: {Memory.used} of {Memory.room} used")
        Memory.used += spec.size
        Memory.most = max(Memory.most, Memory.used)
        Memory.built.append(spec.extractor)
        self.myself = self  # as networks with hooks do

    def __del__(self):
        Memory.used -= self.spec.size

    def prepare(self, item) -> Any:
        return float(item.image.double().mean())

    def forward(self, prepared: Sequence) -> dict[str, Any]:
        return {"mean": np.array(prepared, dtype=np.float32)}


class Opinion(SampleMetric):
    """What a model of some size says."""

    id = "toy-opinion"
    summary = "test"
    inputs = ("image",)
    higher_is_better = True

    def __init__(self, name: str, kind: type[LargeSpec] = LargeSpec, size: int = 8):
        spec = kind(extractor=name, size=size)
        super().__init__(OneProtocol(metric=f"toy-{name}", extractor=spec), device="cpu")

    def scores(self, samples, features):
        return np.asarray(features["extractor"]["mean"], dtype=np.float64)
