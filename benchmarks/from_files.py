"""From files to scores of sets: FID beside four tools, reuse, memory, start, the floor."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.lab import Lab, Runs, SideError
from benchmarks.peers import PEERS, PROTOCOLS
from benchmarks.rows import Row, Sizes, Verdict, at_least, at_most

FOUR = "fid@clean,kid@clean,prdc,is"
FIVE = "fid@clean,kid@clean,is,fd-lite,kd-lite"
SAME = 1e-3
"""Largest relative difference of a FID from that of the tool whose protocol it names."""


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
    for store in lab.folder.glob("store-*"):  # of an earlier sitting with the same data
        shutil.rmtree(store)
    runs = lab.rounds("reuse", sides)
    walls = runs.seconds()
    first, second = (runs.last(side)["runtime"] for side in ("fid@clean", "second run"))
    if first["features_reused"] or second["features_computed"]:
        raise SideError(
            f"the first run found {first['features_reused']} features in the store and the second"
            f" computed {second['features_computed']}; both have to be 0"
        )
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
    """Peak memory of ``eval`` on more and more images, less the features themselves."""
    reference = lab.photos(min(sizes.memory), sizes.memory_side, seed=0)
    sides = {
        f"{n} images (MiB)": lab.evaluate(
            lab.photos(n, sizes.memory_side, seed=1), reference, "fd-lite"
        )
        for n in sizes.memory
    }
    peaks = lab.rounds("memory", sides).seconds("peak_mib")
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


def floor(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """What the machine can do, and how much of it the Inception pass reaches."""
    del sizes  # the network and the machine have theirs
    command = lab.script("network", "floor", "--weights", lab.inception())
    runs = lab.rounds("floor", {"floor": command})
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
