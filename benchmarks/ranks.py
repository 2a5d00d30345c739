"""Two ranks on one machine: what sharing the work costs, and whether it is shared evenly."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Literal

from benchmarks.lab import Lab, Runs
from benchmarks.rows import Row, Sizes, Verdict, at_most

WORLD = 2
DEAR = 10
"""How much more than another a slow sample costs."""

Where = Literal["first", "last"]
"""Which quarter of the samples is slow."""


def ranks(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """One rank against two on the same cores; two ranks on samples of very different cost."""
    for metric, count in (("fd-lite", sizes.photos), ("fid@clean", sizes.per_image)):
        yield from _shared(lab, metric, count, sizes.side)
    for where in ("first", "last"):
        yield _balanced(lab, sizes, where)


def costs(count: int, seconds: float, where: Where) -> list[float]:
    """Seconds of each sample: one quarter costs :data:`DEAR` times as much, all of it ``seconds``.

    Args:
        count: Number of samples, a multiple of 4.
        seconds: Sum over all samples.
        where: Which quarter is slow.
    """
    quarter = count // 4
    slow = range(quarter) if where == "first" else range(count - quarter, count)
    weights = [DEAR if i in slow else 1 for i in range(count)]
    return [seconds * weight / sum(weights) for weight in weights]


def static_split(each: Sequence[float]) -> float:
    """Seconds until the last rank is done when each takes a fixed contiguous half."""
    half = len(each) // WORLD
    return max(sum(each[:half]), sum(each[half:]))


def _shared(lab: Lab, metric: str, count: int, side: int) -> Iterator[Row]:
    """The same command with one process and with two."""
    real, fake = (lab.photos(count, side, seed=i, blur=blur) for i, blur in ((0, 0.0), (1, 1.0)))
    sides = {
        f"{n} rank{'s' * (n > 1)}": lab.evaluate(fake, real, metric, "--no-cache", "--processes", n)
        for n in (1, WORLD)
    }
    runs = lab.rounds(f"ranks-{metric}", sides)
    walls = runs.seconds()
    one, two = walls.values()
    what = f"`eval -m {metric}` on {count} against {count} images, two ranks against one"
    yield Row(
        benchmark="ranks",
        what=f"{what}, on the same {lab.cores} cores",
        medians=walls,
        note="whole processes; a second rank imports and loads everything once more",
        verdict=at_most(1.1, two / one),
    )
    yield _same_bits(runs, what)


def _same_bits(runs: Runs, what: str) -> Row:
    one, two = (next(iter(runs.last(side)["values"].values())) for side in runs.by_side)
    apart = abs(two / one - 1)
    return Row(
        benchmark="ranks",
        what=f"{what}: the value",
        verdict=Verdict(apart, f"{apart:.1e} apart", "the same bits", one == two),
        note=f"{two!r} against {one!r}",
    )


def _balanced(lab: Lab, sizes: Sizes, where: Where) -> Row:
    """Samples that sleep: nothing but the sharing decides how long two ranks take."""
    photos = lab.photos(sizes.uneven, sizes.memory_side, seed=0)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(WORLD), "-m", "benchmarks.uneven", str(photos)]
    command += ["--seconds", str(sizes.uneven_seconds), "--where", where]
    runs = lab.rounds(f"ranks-uneven-{where}", {"two ranks": command})
    each = costs(sizes.uneven, sizes.uneven_seconds, where)
    took, ideal, static = runs.median("two ranks", "seconds"), sum(each) / WORLD, static_split(each)
    idle = runs.median("two ranks", "idle")
    return Row(
        benchmark="ranks",
        what=f"two ranks on {sizes.uneven} samples of which the {where} quarter costs {DEAR} times"
        " as much, against half of the work each",
        medians={"two ranks": took, "half of the work": ideal, "fixed halves": static},
        note=f"from the first model call to the last, {idle:.1%} of the ranks' time is idle; of"
        f" fixed halves it would be {1 - ideal / static:.1%}",
        verdict=at_most(1.15, took / ideal),
    )
