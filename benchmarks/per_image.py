"""Scores of single images from files to the number, beside torchmetrics."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.lab import Lab, Runs
from benchmarks.rows import Row, Sizes, Verdict, at_most

SAME = 1e-4
"""Largest relative difference from torchmetrics, which adds up float32 where we use float64."""

SSIM_BATCH = 8
"""Images at a time for torchmetrics' SSIM, whose five copies of a batch of 32 fill a gigabyte: on
two cores 32 take 1.8 times as long, and 1 takes 1.2 times."""


def ssim(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """SSIM of images and their counterparts.

    Wang et al. (2004) average over windows that lie inside the picture, and so do we. torchmetrics
    also counts those at the rim, over a reflection: its time is that of its own number, and its
    map without the rim, once and untimed, is what our value is compared with.
    """
    n = sizes.per_image
    references, images = (lab.photos(n, sizes.side, seed=0, blur=blur) for blur in (0.0, 1.0))
    words = (images, references, "--batch", SSIM_BATCH, "--workers", lab.cores)
    sides = {
        "genmetrics": lab.score(images, "ssim", "--pair-with", references),
        "torchmetrics": lab.script("peers_per_image", "ssim", *words),
    }
    runs = lab.rounds("ssim", sides)
    inside = lab.script("peers_per_image", "ssim-inside", *words)
    value = lab.rounds("ssim-inside", {"inside": inside}, repeats=1).median("inside", "value")
    yield _time("ssim", runs, f"SSIM of {n} pairs of JPEGs of {sizes.side} x {sizes.side}")
    yield _value(
        "ssim", runs, value, "SSIM against the mean of torchmetrics' map inside its rim",
        f"{runs.median('torchmetrics', 'value'):.6f} with the rim",
    )  # fmt: skip


def clipscore(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """CLIPScore in torchmetrics' convention, 100 max(cos, 0), on one model of random weights."""
    n = sizes.per_image
    images, prompts = lab.photos(n, sizes.side, seed=0, blur=1.0), lab.prompts(n)
    model = lab.clip(sizes.clip_width, sizes.clip_layers)
    words = (images, prompts, model, "--workers", lab.cores)
    sides = {
        "genmetrics": lab.score(images, f"clipscore@100:model={model}", "--prompts", prompts),
        "torchmetrics": lab.script("peers_per_image", "clipscore", *words),
    }
    runs = lab.rounds("clipscore", sides)
    yield _time(
        "clipscore", runs, f"CLIPScore of {n} JPEGs of {sizes.side} x {sizes.side} on a ViT-B/32"
    )
    value = runs.median("torchmetrics", "value")
    yield _value("clipscore", runs, value, "CLIPScore against torchmetrics")


def _time(benchmark: str, runs: Runs, what: str) -> Row:
    walls = runs.seconds()
    strict = walls["genmetrics"] / runs.median("torchmetrics", "seconds")
    return Row(
        benchmark=benchmark,
        what=f"{what}, files to score, against torchmetrics",
        medians=walls,
        note=f"{strict:.3g} times when start and imports are taken off the other tool alone",
        verdict=at_most(1.0, walls["genmetrics"] / walls["torchmetrics"]),
    )


def _value(benchmark: str, runs: Runs, theirs: float, what: str, note: str = "") -> Row:
    (ours,) = runs.last("genmetrics")["values"].values()
    apart = abs(ours / theirs - 1)
    beside = f"{ours:.6f} against {theirs:.6f}"
    return Row(
        benchmark=benchmark,
        what=what,
        verdict=Verdict(apart, f"{apart:.1e}", f"within {SAME:g} relative", apart <= SAME),
        note=f"{beside}; {note}" if note else beside,
    )
