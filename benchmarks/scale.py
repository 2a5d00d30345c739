"""Very many tiny pictures: how time and memory grow beside decoding and models."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.lab import Lab, Measurement
from benchmarks.rows import Row, Sizes, Verdict, at_most

REFERENCE = 2000
OVERHEAD = 100.0
"""Microseconds an image that a run may take beside decoding and the model."""

DECISION = 1024.0
"""MiB that the decision may add."""


def scale(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """A toy extractor and a Fréchet metric over tars of 16 x 16 PNGs, on one core, once each."""
    reference = lab.tiles(REFERENCE, seed=1)
    found: dict[str, list[Measurement]] = {"first run": [], "second run": []}
    for count in sizes.tiles:
        cache = lab.folder / f"tiles-cache-{count}"
        shutil.rmtree(cache, ignore_errors=True)
        words = (lab.tiles(count, seed=0), reference, cache, "--out", lab.folder / "tiles-out")
        for run, measured in found.items():
            measured.append(lab.run("scale", f"{run}, {count}", 1, lab.script("tiles", *words)))
        shutil.rmtree(cache)
    lab.measurements += [each for measured in found.values() for each in measured]
    for run, measured in found.items():
        yield _growth(run, sizes.tiles, measured)
    yield _overhead(found["first run"][-1].output)
    yield _decision(found["first run"][-1].output, sizes.tiles[-1])


def exponent(counts: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of log seconds over log counts, from the first to the last."""
    return math.log(seconds[-1] / seconds[0]) / math.log(counts[-1] / counts[0])


def _growth(run: str, counts: Sequence[int], measured: Sequence[Measurement]) -> Row:
    walls = {f"{n} images": m.output["seconds"] for n, m in zip(counts, measured, strict=True)}
    grown = exponent(counts, list(walls.values()))
    # told beside the wall, because other work on the machine touches it least
    spent = [n * m.output["microseconds"] for n, m in zip(counts, measured, strict=True)]
    peaks = ", ".join(f"{m.peak_mib:,.0f}" for m in measured)
    each = ", ".join(f"{m.output['microseconds']:.0f}" for m in measured)
    return Row(
        benchmark="scale",
        what=f"{run} of {counts[-1]:,} tiny images against {counts[0]:,}, on one core",
        medians=walls,
        note="from the plan to the report, under a load of up to"
        f" {max(m.load for m in measured):.1f}; processor time grows by"
        f" n^{exponent(counts, spent):.2f}, an image {each} µs; peak memory of the process {peaks}"
        " MiB; measured once",
        verdict=Verdict(grown, f"n^{grown:.2f}", "at most n^1.05", grown <= 1.05),
    )


def _overhead(output: Mapping[str, float]) -> Row:
    beside = output["microseconds"] - output["decode"] - output["model"]
    return Row(
        benchmark="scale",
        what="what a run costs an image on one core beside decoding and the model",
        note=f"of {output['microseconds']:.0f} µs of processor time an image {output['decode']:.0f}"
        f" are decoding, the last check of the bytes included, and {output['model']:.0f} the model",
        verdict=at_most(OVERHEAD, beside, "µs"),
    )


def _decision(output: Mapping[str, float], count: int) -> Row:
    added = output["decision_mib"]
    return Row(
        benchmark="scale",
        what=f"memory that the decision over {count:,} images adds",
        medians={"decision": output["decision_seconds"]},
        verdict=at_most(DECISION, added, "MiB"),
    )
