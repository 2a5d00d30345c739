"""Statistics on synthetic features: ours, and the plain way to write each.

  python -m benchmarks.features SIDE --n 10000 --dim 768

Prints one JSON line: the value, the seconds, and how much memory the call needed beyond what the
process held before (``working_mib``; null where the system does not tell).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]
Answer = float | Mapping[str, float]
Side = Callable[[Tensor, Tensor], Answer]


# -- data ------------------------------------------------------------------------------------------


def features(n: int, dim: int, *, shrink: float = 0.95, shift: float = 0.2) -> Pair:
    """Two sets ``(n, dim)`` of float32 whose variance falls from one dimension to the next."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.arange(1, dim + 1, dtype=torch.float32) ** -0.5
    real = torch.randn(n, dim, generator=generator).mul_(spread)
    fake = torch.randn(n, dim, generator=generator).mul_(spread * shrink).add_(shift * spread)
    return real, fake


def directions(n: int, dim: int, *, shrink: float = 0.95, shift: float = 0.2) -> Pair:
    """Two sets of unit vectors around one direction, as image embeddings of CLIP are."""
    centre = torch.full((dim,), dim**-0.5)
    real, fake = (x.div_(3).add_(centre) for x in features(n, dim, shrink=shrink, shift=shift))
    return real.div_(real.norm(dim=1, keepdim=True)), fake.div_(fake.norm(dim=1, keepdim=True))


def alike(n: int, dim: int) -> Pair:
    """:func:`directions` with both sets from one distribution: the distance is all noise."""
    return directions(n, dim, shrink=1.0, shift=0.0)


# -- ours ------------------------------------------------------------------------------------------


def frechet(real: Tensor, fake: Tensor) -> Answer:
    from genmetrics.stats import frechet_distance

    return frechet_distance(real, fake)


def cmmd(real: Tensor, fake: Tensor) -> Answer:
    from genmetrics.stats.cmmd import cmmd

    return cmmd(real, fake)


def prdc(real: Tensor, fake: Tensor) -> Answer:
    from genmetrics.stats.prdc import prdc

    found = prdc(real, fake)
    return {name: getattr(found, name) for name in ("precision", "recall", "density", "coverage")}


# -- the plain way ---------------------------------------------------------------------------------


def frechet_plain(real: Tensor, fake: Tensor) -> Answer:
    """Mean, covariance, and the matrix root of their product, as every FID tool writes it."""
    from scipy.linalg import sqrtm

    (mean_a, cov_a), (mean_b, cov_b) = (
        (rows.mean(axis=0), np.cov(rows, rowvar=False))
        for rows in (x.numpy().astype(np.float64) for x in (real, fake))
    )
    root = np.trace(sqrtm(cov_a @ cov_b)).real
    return float(((mean_a - mean_b) ** 2).sum() + np.trace(cov_a) + np.trace(cov_b) - 2 * root)


def cmmd_plain(real: Tensor, fake: Tensor) -> Answer:
    """The three kernel matrices in float64, whole; sigma 10, scale 1000."""
    a, b = real.double(), fake.double()
    a, b = a / a.norm(dim=1, keepdim=True), b / b.norm(dim=1, keepdim=True)

    def mean_kernel(x: Tensor, y: Tensor) -> float:
        squared = (x * x).sum(1)[:, None] + (y * y).sum(1)[None] - 2 * x @ y.T
        return float(torch.exp(-squared / 200.0).mean())

    return 1000.0 * (mean_kernel(a, a) + mean_kernel(b, b) - 2 * mean_kernel(a, b))


def prdc_plain(real: Tensor, fake: Tensor, k: int = 5) -> Answer:
    """The three distance matrices in float32, whole."""
    radius_real = torch.cdist(real, real).kthvalue(k + 1, dim=1).values
    radius_fake = torch.cdist(fake, fake).kthvalue(k + 1, dim=1).values
    distance = torch.cdist(real, fake)
    in_real = distance < radius_real[:, None]
    return {
        "precision": float(in_real.any(dim=0).double().mean()),
        "recall": float((distance < radius_fake[None]).any(dim=1).double().mean()),
        "density": float(in_real.sum(dim=0).double().mean() / k),
        "coverage": float((distance.amin(dim=1) < radius_real).double().mean()),
    }


SIDES: dict[str, tuple[Side, Callable[[int, int], Pair]]] = {
    "frechet": (frechet, features),
    "frechet-plain": (frechet_plain, features),
    "cmmd": (cmmd, directions),
    "cmmd-plain": (cmmd_plain, directions),
    "cmmd-alike": (cmmd, alike),
    "cmmd-alike-plain": (cmmd_plain, alike),
    "prdc": (prdc, features),
    "prdc-plain": (prdc_plain, features),
}


# -- measuring -------------------------------------------------------------------------------------


def measured(call: Callable[[], Answer]) -> tuple[Answer, float, float | None]:
    """Return what a call gives, its seconds, and its peak memory in MiB beyond what was held."""
    held = _restart_peak()
    start = time.perf_counter()
    answer = call()
    seconds = time.perf_counter() - start
    return answer, seconds, None if held is None else _status("VmHWM") - held


def _restart_peak() -> float | None:
    """Make Linux forget the peak so far; return what is held now, in MiB, or None elsewhere."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--dim", type=int, required=True)
    given = parser.parse_args()
    side, make = SIDES[given.side]
    side(*make(32, 16))  # imports and the start of thread pools belong to no algorithm
    real, fake = make(given.n, given.dim)
    answer, seconds, working = measured(lambda: side(real, fake))
    report = {"value": answer, "seconds": seconds, "working_mib": working, "n": given.n}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
