"""Statistics on synthetic features beside the plain way to write each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from benchmarks.lab import Lab, Runs
from benchmarks.rows import Row, Sizes, Verdict, at_least, at_most


def frechet(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """The Fréchet distance against scipy's matrix root."""
    targets = (20, 6)
    for n, target in zip(sizes.frechet, targets, strict=True):
        runs = _beside(lab, f"frechet-{n}", "frechet", n, sizes.frechet_dim)
        seconds, apart = runs.seconds("seconds"), _apart(runs)
        yield Row(
            benchmark="frechet",
            what=f"Fréchet distance, n = {n}, d = {sizes.frechet_dim}, against mean, covariance"
            " and `scipy.linalg.sqrtm` of the product",
            medians=seconds,
            note=f"values {apart:.0e} apart",
            verdict=at_least(target, seconds["plain"] / seconds["genmetrics"]),
        )


def cmmd(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """CMMD against whole kernel matrices, and how it grows."""
    n, dim = sizes.cmmd, sizes.cmmd_dim
    for side, kind in (("cmmd", "two distributions"), ("cmmd-alike", "one distribution")):
        repeats = lab.repeats if side == "cmmd" else min(lab.repeats, 2)
        runs = _beside(lab, f"{side}-{n}", side, n, dim, repeats)
        seconds, apart = runs.seconds("seconds"), _apart(runs)
        ratio = seconds["plain"] / seconds["genmetrics"]
        verdict = Verdict(ratio, f"{ratio:.2f} times")
        if side == "cmmd":  # the other is told, not promised
            target = "at least 20 times faster, within 1e-4 relative"
            verdict = replace(verdict, target=target, passed=ratio >= 20 and apart <= 1e-4)
        yield Row(
            benchmark="cmmd",
            what=f"CMMD of {n} against {n} unit vectors of {kind}, d = {dim}, against the kernel"
            " matrices in float64",
            medians=seconds,
            note=f"values {apart:.0e} apart",
            verdict=verdict,
        )
    yield _growth(lab, sizes)


def _growth(lab: Lab, sizes: Sizes) -> Row:
    sides = {
        f"n = {n}": lab.script("features", "cmmd", "--n", n, "--dim", sizes.cmmd_dim)
        for n in sizes.cmmd_growth
    }
    seconds = lab.rounds("cmmd-growth", sides).seconds("seconds")
    (_, n_before, n_last), (_, before, last) = sizes.cmmd_growth, seconds.values()
    slope = math.log(last / before) / math.log(n_last / n_before)
    return Row(
        benchmark="cmmd",
        what=f"growth of CMMD's time from n = {n_before} to {n_last}: the p of n^p",
        verdict=Verdict(slope, f"p = {slope:.2f}", "linear: p at most 1.1", slope <= 1.1),
        medians=seconds,
    )


def prdc(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Precision, recall, density and coverage against whole distance matrices."""
    n = sizes.prdc
    runs = _beside(lab, f"prdc-{n}", "prdc", n, sizes.prdc_dim)
    seconds, apart = runs.seconds("seconds"), _apart(runs)
    what = f"PRDC of {n} against {n}, d = {sizes.prdc_dim}, against whole matrices in torch"
    yield Row(
        benchmark="prdc",
        what=what,
        medians=seconds,
        note=f"values {apart:.0e} apart",
        verdict=at_most(1.0, seconds["genmetrics"] / seconds["plain"]),
    )
    if None in (runs.last(side)["working_mib"] for side in seconds):
        return  # only Linux tells
    used = runs.seconds("working_mib")
    share = used["genmetrics"] / used["plain"]
    yield Row(
        benchmark="prdc",
        what=f"{what}: memory beyond the features",
        medians={f"{side} (MiB)": mib for side, mib in used.items()},
        verdict=at_most(0.1, share, "times the memory"),
    )


def _beside(
    lab: Lab, benchmark: str, side: str, n: int, dim: int, repeats: int | None = None
) -> Runs:
    names = {"genmetrics": side, "plain": f"{side}-plain"}
    sides = {
        name: lab.script("features", which, "--n", n, "--dim", dim) for name, which in names.items()
    }
    return lab.rounds(benchmark, sides, repeats=repeats)


def _apart(runs: Runs) -> float:
    """Largest relative difference between our numbers and those of the plain way."""
    ours, plain = (_numbers(runs.last(side)["value"]) for side in ("genmetrics", "plain"))
    # a share that is zero on both sides is no difference
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(ours, plain, strict=True))


def _numbers(value: float | Mapping[str, float]) -> list[float]:
    return list(value.values()) if isinstance(value, Mapping) else [value]
