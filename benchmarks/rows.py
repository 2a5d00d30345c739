"""What a benchmark takes and what it finds: sizes, verdicts, and lines of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything; the defaults are those of the published table."""

    photos: int = 384
    per_image: int = 128
    side: int = 512
    clip_width: int = 512
    clip_layers: int = 12
    memory: tuple[int, ...] = (500, 2000, 5000)
    memory_side: int = 64
    tiles: tuple[int, ...] = (100_000, 1_000_000)
    uneven: int = 480
    uneven_seconds: float = 12.0
    frechet: tuple[int, ...] = (1000, 5000)
    frechet_dim: int = 2048
    cmmd: int = 10_000
    cmmd_growth: tuple[int, ...] = (10_000, 50_000, 200_000)
    cmmd_dim: int = 768
    prdc: int = 10_000
    prdc_dim: int = 2048


QUICK = Sizes(
    photos=16, per_image=8, side=96, clip_width=128, clip_layers=2, memory=(16, 32, 64),
    tiles=(200, 400), uneven=64, uneven_seconds=2.0, frechet=(100, 300), frechet_dim=128, cmmd=300,
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
