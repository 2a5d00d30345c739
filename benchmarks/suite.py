"""The benchmarks: what is run beside what, and what each has to show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from benchmarks.lab import Lab, Runs, SideError
from benchmarks.peers import PEERS, PROTOCOLS

FOUR = "fid@clean,kid@clean,prdc,is"
FIVE = "fid@clean,kid@clean,is,fd-lite,kd-lite"
SAME = 1e-3
"""Largest relative difference of a FID from that of the tool whose protocol it names."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything; the defaults are those of the published table."""

    photos: int = 384
    side: int = 512
    memory: tuple[int, ...] = (500, 2000, 5000)
    memory_side: int = 64
    frechet: tuple[int, ...] = (1000, 5000)
    frechet_dim: int = 2048
    cmmd: int = 10_000
    cmmd_growth: tuple[int, ...] = (10_000, 50_000, 200_000)
    cmmd_dim: int = 768
    prdc: int = 10_000
    prdc_dim: int = 2048


QUICK = Sizes(
    photos=16, side=96, memory=(16, 32, 64), frechet=(100, 300), frechet_dim=128, cmmd=300,
    cmmd_growth=(500, 1000, 3000), cmmd_dim=64, prdc=300, prdc_dim=64,
)  # fmt: skip
"""Shows that everything runs, and nothing else."""


@dataclass(frozen=True)
class Verdict:
    """What was measured, beside what it has to be.

    Attributes:
        ratio: The number.
        measured: The number in words.
        target: What it has to show, in words; empty for what is only told.
        passed: Whether it does; None without a target.
    """

    ratio: float
    measured: str
    target: str = ""
    passed: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        benchmark: Which benchmark found it.
        what: What was compared.
        verdict: The outcome.
        medians: Seconds (or MiB, where the name says so) of each side.
        note: What a reader should know.
    """

    benchmark: str
    what: str
    verdict: Verdict
    medians: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def at_least(factor: float, ratio: float) -> Verdict:
    """Say whether something is ``factor`` times faster."""
    return Verdict(
        ratio, f"{ratio:.2f} times", f"at least {factor:g} times faster", ratio >= factor
    )


def at_most(factor: float, ratio: float, unit: str = "times the time") -> Verdict:
    """Say whether something takes at most ``factor`` times as much."""
    return Verdict(ratio, f"{ratio:.3g} {unit}", f"at most {factor:g} {unit}", ratio <= factor)


# -- from files to scores --------------------------------------------------------------------------


def fid(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """FID against the four tools; the slower half of them leaves after each round."""
    real, fake = _photos(lab, sizes)
    sides = {"genmetrics": lab.evaluate(fake, real, "fid@clean")}
    for peer in PEERS:
        words = (peer, real, fake, lab.inception(), "--workers", lab.cores)
        sides[peer] = lab.script("peers", *words)
    runs = lab.rounds("fid", sides, contenders=list(PEERS))
    walls = runs.seconds()
    fastest = max(PEERS, key=lambda peer: (len(runs.by_side[peer]), -walls[peer]))
    strict = runs.median(fastest, "seconds") / walls["genmetrics"]
    yield Row(
        benchmark="fid",
        what=f"FID of {sizes.photos} against {sizes.photos} JPEGs of {sizes.side} x {sizes.side},"
        f" files to score, against the fastest of four tools ({fastest})",
        medians=walls,
        note=f"{strict:.2f} times when start and imports are taken off the other tool alone; the"
        " slower tools were measured less often",
        verdict=at_least(2.5, walls[fastest] / walls["genmetrics"]),
    )
    yield _same_values(lab, runs, real, fake)


def _same_values(lab: Lab, runs: Runs, real: Path, fake: Path) -> Row:
    """Compare our four protocols, run once, with the numbers the four tools printed."""
    command = lab.evaluate(fake, real, ",".join(PROTOCOLS.values()))
    ours = lab.rounds("fid-values", {"genmetrics": command}, repeats=1).last("genmetrics")["values"]
    theirs = {peer: runs.median(peer, "value") for peer in PEERS}
    apart = {peer: abs(ours[PROTOCOLS[peer]] / value - 1) for peer, value in theirs.items()}
    worst = max(apart.values())
    listed = ", ".join(f"{peer} {theirs[peer]:.6g} ({apart[peer]:.0e})" for peer in PEERS)
    return Row(
        benchmark="fid",
        what="FID in each tool's protocol against that tool's number",
        verdict=Verdict(worst, f"{worst:.1e}", f"within {SAME:g} relative", worst <= SAME),
        note=f"value and relative difference: {listed}",
    )


def reuse(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """What a pass is good for: a second run on the same files, and more metrics in the first."""
    real, fake = _photos(lab, sizes)
    alone = lab.evaluate(fake, real, "fid@clean", "--cache", lab.folder / "store-{round}")
    sides = {"fid@clean": alone, "second run": alone, FOUR: lab.evaluate(fake, real, FOUR)}
    runs = lab.rounds("reuse", sides)
    walls, second = runs.seconds(), runs.last("second run")["runtime"]
    if second["features_computed"]:
        raise SideError(f"the second run computed {second['features_computed']} features again")
    yield Row(
        benchmark="reuse",
        what=f"`{FOUR}` against `fid@clean` alone, {sizes.photos} against {sizes.photos} images",
        medians={name: walls[name] for name in ("fid@clean", FOUR)},
        verdict=at_most(1.15, walls[FOUR] / walls["fid@clean"]),
    )
    yield Row(
        benchmark="reuse",
        what="second run of `fid@clean` on the same files, from the store, against the first",
        medians={name: walls[name] for name in ("fid@clean", "second run")},
        note=f"{second['seconds']:.2f} s of the second run are reading features and computing the"
        " score; the rest is start, imports and hashing the files",
        verdict=at_least(20, walls["fid@clean"] / walls["second run"]),
    )


def backbones(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Five metrics over two networks against nothing but the networks."""
    real, fake = _photos(lab, sizes)
    # half of the images: the time of a bare pass is proportional to them
    bare = lab.script("network", "bare", "--weights", lab.inception(), "--images", sizes.photos)
    runs = lab.rounds("backbones", {FIVE: lab.evaluate(fake, real, FIVE), "bare": bare})
    whole, forward = runs.median(FIVE), 2 * runs.median("bare", "seconds")
    inside = median(m.output["runtime"]["seconds"] for m in runs.by_side[FIVE])
    yield Row(
        benchmark="backbones",
        what=f"`{FIVE}` against the bare forward time of Inception and EfficientNet-Lite0,"
        f" {sizes.photos} against {sizes.photos} images",
        medians={FIVE: whole, "bare": forward},
        note="whole process: start, imports, planning and output included; without them"
        f" {inside / forward:.2f} times",
        verdict=at_most(1.2, whole / forward),
    )


def memory(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Peak memory of ``eval`` on more and more images, less the features themselves; two rounds."""
    reference = lab.photos(min(sizes.memory), sizes.memory_side, seed=0)
    sides = {
        f"{n} images (MiB)": lab.evaluate(
            lab.photos(n, sizes.memory_side, seed=1), reference, "fd-lite"
        )
        for n in sizes.memory
    }
    peaks = lab.rounds("memory", sides, repeats=min(lab.repeats, 2)).seconds("peak_mib")
    features = [(n + min(sizes.memory)) * 1280 * 4 / 2**20 for n in sizes.memory]
    beyond = [peak - size for peak, size in zip(peaks.values(), features, strict=True)]
    yield Row(
        benchmark="memory",
        what=f"peak memory of `eval -m fd-lite` on {sizes.memory[-1]} images against"
        f" {sizes.memory[0]}, features (1280 float32 an image) taken off",
        medians=peaks,
        note=f"beyond the features: {', '.join(f'{mib:.0f}' for mib in beyond)} MiB",
        verdict=at_most(1.05, beyond[-1] / beyond[0], "times the memory"),
    )


def startup(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """From the start of ``genmetrics eval`` to the first image in the network."""
    real, fake = _photos(lab, sizes)
    words = [*lab.eval_words(fake, real, "fid@clean"), "--no-cache"]
    clock = ("--start", "{start}")
    sides = {
        "first image": lab.script("network", "first-image", *clock, "--", *words),
        "imports": lab.script("network", "imports", *clock, "--weights", lab.inception()),
    }
    seconds = lab.rounds("startup", sides).seconds("seconds")
    yield Row(
        benchmark="startup",
        what="start of `genmetrics eval -m fid@clean` until the first image is in the network,"
        " against importing torch and torchvision and loading the weights",
        medians=seconds,
        note=f"it reads, hashes and checks {2 * sizes.photos} files and decodes a batch on the way",
        verdict=at_most(1.5, seconds["first image"] / seconds["imports"]),
    )


# -- statistics on features ------------------------------------------------------------------------


def frechet(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """The Fréchet distance against scipy's matrix root; its minutes allow three rounds."""
    targets = (20, 6)
    for n, target in zip(sizes.frechet, targets, strict=True):
        runs = _beside(lab, f"frechet-{n}", "frechet", n, sizes.frechet_dim, min(lab.repeats, 3))
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


def floor(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """What the machine can do, and how much of it the Inception pass reaches."""
    del sizes  # the network and the machine have theirs
    command = lab.script("network", "floor", "--weights", lab.inception())
    runs = lab.rounds("floor", {"floor": command}, repeats=min(lab.repeats, 3))
    speed = {
        name: runs.median("floor", f"{name}_gflops") for name in ("conv", "gemm", "layers", "pass")
    }
    share = speed["pass"] / speed["conv"]
    yield Row(
        benchmark="floor",
        what="the Inception pass against the convolution throughput of this machine",
        verdict=Verdict(share, f"{share:.2f}", "at least 0.7 of it", share >= 0.7),
        note=f"GFLOP/s in float32: one large convolution {speed['conv']:.0f}, matrix product"
        f" {speed['gemm']:.0f}, Inception's convolutions one by one {speed['layers']:.0f}, the"
        f" whole pass {speed['pass']:.0f} ({runs.median('floor', 'images_per_second'):.1f} images/s"
        f" at {runs.median('floor', 'gflop_per_image'):.1f} GFLOP an image)",
    )


def _photos(lab: Lab, sizes: Sizes) -> tuple[Path, Path]:
    """Reference and generated images: other crops, a little blurred."""
    real, fake = (
        lab.photos(sizes.photos, sizes.side, seed=seed, blur=blur)
        for seed, blur in ((0, 0.0), (1, 1.0))
    )
    return real, fake


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


BENCHMARKS: dict[str, Callable[[Lab, Sizes], Iterator[Row]]] = {
    "floor": floor,
    "startup": startup,
    "frechet": frechet,
    "cmmd": cmmd,
    "prdc": prdc,
    "memory": memory,
    "reuse": reuse,
    "backbones": backbones,
    "fid": fid,
}
"""Short ones first: what is broken shows early."""
