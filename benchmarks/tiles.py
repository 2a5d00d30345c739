"""A run over very many tiny pictures: what a runner costs beside decoding and models.

  python -m benchmarks.tiles FOLDER REFERENCE CACHE [--out DIR]

The pictures lie in tar shards. A toy extractor gives 64 numbers a picture, and a Fréchet metric
compares them with those of the first shard. Everything runs on one core. Prints one JSON line: the
seconds from the plan to the report, those of the decision, and the memory the decision added.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import struct
import tarfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

import genmetrics as gm
from genmetrics.core.extractor import Extractor, ExtractorSpec, Features
from genmetrics.core.sample import Item, Sample
from genmetrics.extractors.backbones import Backbone
from genmetrics.metrics.fid import FrechetMetric
from genmetrics.run import evaluate as running
from genmetrics.samples.items import load_item

SHARD = 10_000
"""Pictures a tar holds."""

SIDE = 16
BATCH = 32


def write_shards(folder: Path, *, count: int, seed: int = 0) -> None:
    """Write ``count`` different PNGs of 16 x 16 in tars of :data:`SHARD`."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for start in range(0, count, SHARD):
        with tarfile.open(folder / f"{start // SHARD:05d}.tar", "w") as tar:
            for i in range(start, min(start + SHARD, count)):
                member = tarfile.TarInfo(f"{i:08d}.png")
                data = _png(rng)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def _png(rng: np.random.Generator) -> bytes:
    """Encode smooth noise by hand, which is ten times as fast as by Pillow."""
    corners = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    pixels = corners.repeat(4, axis=0).repeat(4, axis=1)
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 1)), (b"IEND", b""))
    chunks = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@dataclass(frozen=True, kw_only=True)
class TileSpec(ExtractorSpec):
    """64 seeded projections of the pixels."""

    outputs: ClassVar = {"tile": "vector"}
    extractor: str = "tile"

    def check(self) -> None:
        """Nothing is needed."""

    def build(self, device: str) -> Tiles:
        """Draw the projections."""
        return Tiles(self, device)


class Tiles(Extractor):
    """A product of a matrix and a picture."""

    fill = 1

    def __init__(self, spec: ExtractorSpec, device: str) -> None:
        super().__init__(spec, device)
        draw = np.random.default_rng(0).standard_normal((64, 3 * SIDE * SIDE))
        self._matrix = draw.astype(np.float32)

    def prepare(self, item: Item) -> np.ndarray:
        pixels: np.ndarray = item.image.numpy().reshape(-1)
        return pixels

    def forward(self, prepared: Sequence[np.ndarray]) -> Features:
        return {"tile": np.stack(prepared).astype(np.float32) @ self._matrix.T}


class TileDistance(FrechetMetric):
    """A Fréchet distance on tiles."""

    id = "fd-tile"
    summary = "Fréchet distance on tiles"

    def __init__(self, infinity_points: int = 0) -> None:
        self._start(self.id, Backbone(TileSpec(), "tile"), infinity_points, "cpu", None)


def memory(name: str) -> float:
    """MiB of this process, now (``VmRSS``) or at most (``VmHWM``)."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _inline(samples: Sequence[Sample]) -> tuple[float, float]:
    """Microseconds of decoding and of the model alone, an image."""
    extractor = TileSpec().build("cpu")
    start = time.process_time()
    items = [load_item(sample, ("image",)) for sample in samples]
    decoded = time.process_time()
    for i in range(0, len(items), BATCH):
        extractor.forward([extractor.prepare(item) for item in items[i : i + BATCH]])
    done = time.process_time()
    return 1e6 * (decoded - start) / len(items), 1e6 * (done - decoded) / len(items)


def main() -> None:
    """Run once and print what was measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
    threadpool_limits(1)  # NumPy counted the cores before
    plain: Any = running._decide
    decision: dict[str, float] = {}

    def decide(done: Any) -> Any:
        before, start = memory("VmRSS"), time.perf_counter()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        found = plain(done)
        decision["decision_seconds"] = time.perf_counter() - start
        decision["decision_mib"] = memory("VmHWM") - before
        return found

    running._decide = decide
    start, before = time.perf_counter(), time.process_time()
    report = gm.evaluate(
        f"{given.folder}/*.tar", f"{given.reference}/*.tar", [TileDistance()],
        cache=given.cache, device="cpu", workers=1, batch_size=BATCH, out=given.out, force=True,
    )  # fmt: skip
    n = report["fd-tile"].n
    seconds, cpu = time.perf_counter() - start, time.process_time() - before
    decode, model = _inline(report.samples[:2000])
    print(json.dumps({"value": report["fd-tile"].value, "n": n, "seconds": seconds, "cpu": cpu,
                      "decode": decode, "model": model,
                      "microseconds": 1e6 * cpu / n, **decision}))  # fmt: skip


if __name__ == "__main__":
    main()
