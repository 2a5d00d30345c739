"""The benchmarks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks import from_files, on_features, per_image
from benchmarks.lab import Lab
from benchmarks.ranks import ranks
from benchmarks.rows import Row, Sizes
from benchmarks.scale import scale

BENCHMARKS: dict[str, Callable[[Lab, Sizes], Iterator[Row]]] = {
    "floor": from_files.floor,
    "startup": from_files.startup,
    "ssim": per_image.ssim,
    "clipscore": per_image.clipscore,
    "frechet": on_features.frechet,
    "cmmd": on_features.cmmd,
    "prdc": on_features.prdc,
    "memory": from_files.memory,
    "reuse": from_files.reuse,
    "scale": scale,
    "ranks": ranks,
    "backbones": from_files.backbones,
    "fid": from_files.fid,
}
"""Short ones first: what is broken shows early."""
