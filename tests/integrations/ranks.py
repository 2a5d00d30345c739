"""What one rank of a test does with adapters; it writes what it found to FOLDER/RANK.json.

torchrun tests/integrations/ranks.py FOLDER N REFERENCE
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DistributedSampler

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import genmetrics as gm
from genmetrics.core.errors import GenmetricsError
from genmetrics.core.rows import concatenate
from genmetrics.integrations.torchmetrics import TorchMetric
from tests.integrations.toys import Frames, samples
from tests.ranks import one_thread


def launch(script: Path, world: int, *words: str, limit: int = 120) -> str:
    """Run a script in as many ranks; everything they printed."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}",
         str(script), *words],
        capture_output=True, text=True, timeout=limit, env=one_thread(), cwd=script.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def image(i: int) -> Tensor:
    generator = torch.Generator().manual_seed(i)
    return torch.randint(0, 256, (1, 3, 24, 24), dtype=torch.uint8, generator=generator)


def fill(metric: gm.Metric | TorchMetric, images: Iterable[int]) -> None:
    """Give a metric of pairs, or of sets, one image an update."""
    judged = metric.metric if isinstance(metric, TorchMetric) else metric
    for i in images:
        pair = {"references": image(i) // 2} if "reference" in judged.inputs else {}
        metric.update(image(i), ids=[f"image-{i}"], **pair)


def bits(value: Tensor | gm.Result) -> str:
    return float(value).hex()


def random_state() -> list:
    """The global random states, in a form that compares."""
    numbers = np.random.get_state()
    return [torch.get_rng_state().tolist(), numbers[1].tolist(), numbers[2], random.getstate()]


def said(call: Callable[[], object]) -> str | None:
    """The message of what genmetrics refuses."""
    try:
        call()
    except GenmetricsError as error:
        return str(error)
    return None


class Judged(nn.Module):
    """A model that carries its metrics, as modules of a training loop do."""

    def __init__(self, reference: str) -> None:
        super().__init__()
        self.body = nn.Linear(2, 1)
        self.psnr = TorchMetric(gm.PSNR(device="cpu"))
        self.fd = TorchMetric(gm.FDLite(device="cpu", reference=reference))
        self.joined_steps = TorchMetric(gm.PSNR(device="cpu"), dist_sync_on_step=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def adapters(model: Judged, mine: range) -> dict:
    """Values of the adapters of a model under DDP, and what they hold before and after."""
    fill(model.psnr, mine)
    before = random_state()
    found = {"psnr": bits(model.psnr.compute())}
    found["random state kept"] = random_state() == before
    found["n"] = model.psnr.result.n
    found["own images kept"] = len(model.psnr.metric.state_dict()["rows"]["samples"]) == len(mine)
    fill(model.psnr, range(1000 + mine.start, 1001 + mine.start))  # goes on after a compute
    found["n of one more each"] = (model.psnr.compute(), model.psnr.result.n)[1]
    fill(model.fd, mine)
    found["fd"] = said(model.fd.compute) or bits(model.fd.compute())
    return found


def steps(model: Judged, rank: int) -> dict:
    """What `forward` returns on one rank and on all, and what it leaves behind."""
    model.psnr.reset()
    pair = {"references": image(rank) // 2, "ids": [f"image-{rank}"]}
    found = {"step of the rank": bits(model.psnr(image(rank), **pair))}
    found["step of all"] = bits(model.joined_steps(image(rank), **pair))
    for name in ("psnr", "joined_steps"):
        metric = getattr(model, name)
        found[f"{name} after steps"] = (bits(metric.compute()), metric.result.n)
    return found


def checkpoints(model: Judged, rank: int) -> dict:
    """A state that is kept is that of all ranks, and comes back once."""
    model.psnr.reset()
    model.psnr.persistent(True)
    fill(model.psnr, [rank])
    found = {"state of one rank": said(model.state_dict)}
    model.psnr.sync()
    state = model.state_dict()
    found["update while joined"] = said(lambda: fill(model.psnr, [99]))
    model.psnr.unsync()
    model.load_state_dict(state)
    model.psnr.compute()
    found["n after loading"] = model.psnr.result.n
    return found


def ragged(rank: int) -> dict:
    """Rows of truth values: 3 on rank 0, 5 on rank 1."""
    metric = Frames(device="cpu")
    names = [f"{rank}/{i}" for i in range([3, 5][rank])]
    metric.update_features(samples(names), {"toy": {"flags": np.ones((len(names), 4), bool)}})
    pieces = gm.distributed.sync(metric)._rows._pieces["toy"]
    flags = concatenate(pieces)["flags"]
    return {"ragged": [str(flags.dtype), list(flags.shape), int(flags.sum())]}


def main() -> None:
    folder, n, reference = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    model = nn.parallel.DistributedDataParallel(Judged(reference)).eval().module
    found = adapters(model, range(rank, n, world))
    found |= steps(model, rank) | checkpoints(model, rank) | ragged(rank)
    lone = TorchMetric(gm.PSNR(device="cpu"))
    fill(lone, range(rank, 1, world))  # all but rank 0 have no image
    found["lone"] = bits(lone.compute())
    padded = TorchMetric(gm.PSNR(device="cpu"))
    fill(padded, DistributedSampler(range(n), shuffle=False))
    found["padded"] = said(padded.compute)
    found["still not joined"] = padded._is_synced
    (folder / f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
