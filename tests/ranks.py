"""What one rank of a test does: see some images, join, write the result to FOLDER/RANK.json.

torchrun tests/ranks.py FOLDER N [--same] [--set]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import distributed

sys.path.insert(0, str(Path(__file__).parent.parent))

import genmetrics as gm
from genmetrics.core.errors import GenmetricsError


def accumulate(images: Iterable[int]) -> gm.Metric:
    """A metric of pairs that saw these images, one an update."""
    metric = gm.PSNR(device="cpu")
    for i in images:
        generator = torch.Generator().manual_seed(i)
        image = torch.randint(0, 256, (1, 3, 24, 24), dtype=torch.uint8, generator=generator)
        metric.update(image, references=image // 2, ids=[f"image-{i}"])
    return metric


def accumulate_set(images: Iterable[int], *, real: bool) -> gm.MetricSet:
    """A set that saw these images, one an update, and the reference side if it is to have it."""
    metrics = gm.MetricSet({"psnr": gm.PSNR(), "kd": gm.KDLite(subset_size=4, device="cpu")})
    if real:
        seeded = torch.Generator().manual_seed(99)
        reference = torch.randint(0, 256, (6, 3, 24, 24), dtype=torch.uint8, generator=seeded)
        metrics.update(reference, real=True, ids=[f"real-{i}" for i in range(6)])
    for i in images:
        generator = torch.Generator().manual_seed(i)
        image = torch.randint(0, 256, (1, 3, 24, 24), dtype=torch.uint8, generator=generator)
        metrics.update(image, references=image // 2, ids=[f"image-{i}"])
    return metrics


def describe_set(metrics: gm.MetricSet) -> dict:
    """Every bit of the results of a set."""
    return {name: describe(metric) for name, metric in metrics.items()}


def describe(metric: gm.Metric) -> dict:
    """Every bit of a result."""
    result = metric.compute()
    interval = [result.interval.lo.hex(), result.interval.hi.hex()] if result.interval else None
    scores = {name: score.hex() for name, score in result.per_sample.items()}
    return {"value": result.value.hex(), "interval": interval, "scores": scores}


def one_thread() -> dict[str, str]:
    """The environment of ranks that do not fight for the cores."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def main() -> None:
    folder, n, same = Path(sys.argv[1]), int(sys.argv[2]), "--same" in sys.argv
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    share = range(n) if same else range(rank, n, world)
    try:
        if "--set" in sys.argv:
            metrics = accumulate_set(share, real=rank == 0)
            said = describe_set(gm.distributed.sync(metrics))
        else:
            said = describe(gm.distributed.sync(accumulate(share)))
    except GenmetricsError as error:
        said = {"error": str(error)}
    (folder / f"{rank}.json").write_text(json.dumps(said))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
