"""Reports without a run: what the renderers get, hostile names included."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genmetrics.core.errors import InputError
from genmetrics.core.protocol import fingerprint_of
from genmetrics.core.result import Interval, Result
from genmetrics.core.sample import Decoded, Sample
from genmetrics.report.record import RunRecord
from genmetrics.samples.media import FileMedia


class Who(NamedTuple):
    side: str
    sample: Sample


class Failure(NamedTuple):
    who: Who
    reason: str
    model: str | None = None


@dataclass
class Report(Mapping[str, Result]):
    """What a record reads of a live report, and no more."""

    results: Mapping[str, Result]
    inputs: Mapping[str, Mapping[str, Any]]
    samples: Sequence[Sample]
    name: str = "generated"
    asked: Mapping[str, str] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    missing: tuple[str, ...] = ()
    conversions: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    runtime: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    command: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Result:
        return self.results[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)


HOSTILE = '<script>alert("x")</script>&\'\x1b[31m\n.png'


@dataclass(frozen=True)
class Picture:
    """Media of one colour; ``level`` None cannot be decoded."""

    name: str
    level: int | None = 128

    def digest(self) -> str:
        return f"{self.level or 0:064x}"

    def size(self) -> tuple[int, int]:
        return 40, 30

    def load(self) -> Decoded:
        if self.level is None:
            raise InputError(f"{self.name} cannot be read")
        return Decoded(np.full((30, 40, 3), self.level, np.uint8), ())


def result(name: str = "fid@clean", value: float | None = 441.18812, **fields: Any) -> Result:
    protocol = {"metric": name, "mean": [1.5, 2]}
    given: dict[str, Any] = {
        "n": 384,
        "higher_is_better": False,
        "protocol": protocol,
        "fingerprint": fingerprint_of(protocol),
        **fields,
    }
    return Result(id=name, value=value, **given)


def samples(count: int = 20) -> tuple[Sample, ...]:
    return tuple(
        Sample(id=f"img_{i}", image=Picture(f"gen/img_{i}.png", 10 * i), prompt=f"a thing {i}")
        for i in range(count)
    )


def samples_in(folder: Path, count: int = 20) -> tuple[Sample, ...]:
    """Samples whose pictures lie in files."""
    from PIL import Image

    made = []
    for i in range(count):
        path = folder / f"img_{i}.png"
        Image.new("RGB", (40, 30), (10 * i % 256, 128, 128)).save(path)
        made.append(Sample(id=f"img_{i}", image=FileMedia(str(path)), prompt=f"a thing {i}"))
    return tuple(made)


def record(results: Mapping[str, Result] | None = None, **fields: Any) -> RunRecord:
    made = report(results, **fields)
    return RunRecord.of(made, command=made.command)


def report(results: Mapping[str, Result] | None = None, **fields: Any) -> Report:
    given: dict[str, Any] = {
        "inputs": {
            "generated": {"path": "gen", "n": 20, "digest": "sha256:" + "a" * 64},
            "reference": {"path": "real", "n": 30, "digest": "sha256:" + "b" * 64},
        },
        "samples": samples(),
        "runtime": {
            "device": "cpu",
            "precision": "fp32",
            "processes": 1,
            "features_computed": 20,
            "features_reused": 30,
            "seconds": 25.1,
            "images_per_second": 2.0,
        },
        "created": "2026-01-02T03:04:05+00:00",
        **fields,
    }
    return Report(results=typical() if results is None else results, **given)


def typical() -> dict[str, Result]:
    """A report as runs make them: sets, scores, a failure, an infinite value."""
    per_sample = {f"img_{i}": float(i - 10) for i in range(20)}
    interval = Interval(430.168, 452.208)
    small = "n=384 is below the feature dimension 2048"
    return {
        "fid@clean": result(
            interval=interval,
            n_reference=1000,
            per_sample=per_sample,
            parts={"standard_error": 5.62, "infinity": 430.123456},
            warnings=(small,),
        ),
        "kid@clean": result(
            "kid@clean", -0.0001234567, interval=Interval(-0.0003, 0.00005), warnings=(small,)
        ),
        "prdc@clean": result(
            "prdc@clean",
            0.51234567,
            higher_is_better=True,
            parts={"precision": 0.5, "recall": 0.25, "coverage": 1.0, "n_cut": 3.0},
        ),
        "psnr": result(
            "psnr",
            math.inf,
            higher_is_better=True,
            reason="every score is inf",
            per_sample={**{f"img_{i}": math.inf for i in range(19)}, "img_19": math.nan},
        ),
        "cmmd": result("cmmd", None, status="failed", reason="cmmd gave NaN\nin two lines"),
    }


def failure(id: str = "bad", path: str = "gen/bad.png", reason: str = "is cut short") -> Failure:
    return Failure(Who("generated", Sample(id=id, image=Picture(path))), f"{path} {reason}")
