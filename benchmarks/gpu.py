"""Images per second on a GPU: ours, torch-fidelity and torchmetrics on the same card.

  python -m benchmarks.gpu [--images 2000] [--size 512] [--decode pil nvjpeg] [--only NAME ...]
                           [--data DIR] [--out FILE]
  python -m benchmarks.gpu --device cpu --images 160 --size 64 --only efficientnet-lite0

Every tool scores two sets of ``--images`` JPEGs and two sets of a quarter of them, and its speed is
the difference in images over the difference in seconds, so that start, weights and the distance
itself cancel. ``in the model`` is the time of the network alone, on a batch that is already on the
card, over the time an image takes. Without a CUDA device the command says so in one line and exits
with code 2; ``--device cpu`` only shows that everything runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import machine
from benchmarks.lab import INCEPTION, Lab, Measurement
from genmetrics.core.device import cores
from genmetrics.extractors.decoders import DECODES

if TYPE_CHECKING:
    from torch import Tensor

METRICS = {
    "inception, clean": "fid@clean",
    "inception, tf1": "fid@tf1",
    "efficientnet-lite0": "fd-lite",
    "dinov2": "fd-dinov2",
    "clip": "cmmd",
}
"""Our extractors, and a metric that runs each alone. Weights that are not here are left out."""

PEERS = ("torch-fidelity", "torchmetrics")
Sets = list[tuple[Path, Path]]
"""Reference and generated folder: the small pair, the large pair."""

BATCH = 32
PASSES = {"cuda": 20, "cpu": 1}


class Line(NamedTuple):
    """One line of the table; ``in_model`` is a share of the time, 0 to 1."""

    tool: str
    extractor: str
    decode: str
    images_per_second: float
    in_model: float


def ours(
    lab: Lab, sets: Sets, decodes: Sequence[str] = ("pil",), only: Collection[str] = ()
) -> Iterator[Line]:
    """Measure every extractor whose weights are here, by every decoder."""
    from genmetrics.core.errors import GenmetricsError
    from genmetrics.run.build import Asked, build_metrics

    weights = {INCEPTION: lab.inception()}
    for name, metric in METRICS.items():
        if only and name not in only:
            continue
        asked = Asked(metrics=[metric], weights=weights)
        (built,) = build_metrics(asked, lab.device).metrics.values()
        (spec,) = built.extractors.values()
        try:
            spec.check()
        except GenmetricsError as error:
            lab.tell(f"{name} is left out: {error}")
            continue
        extractor: Any = spec.build(lab.device)
        for decode in decodes:
            words = ("--decode", decode, "--no-cache")
            small, large = (
                lab.run("gpu", f"{name}, {decode}", 1, lab.evaluate(fake, real, metric, *words))
                for real, fake in sets
            )
            rate, batch = _rate(sets, small, large), large.output["runtime"]["batch_size"]
            images = _images(lab, batch, int(extractor.spec.size)).float().div_(127.5).sub_(1)
            alone = _seconds(extractor.network, images)
            yield Line("genmetrics", name, decode, rate, rate * alone)


def peers(lab: Lab, sets: Sets, only: Collection[str] = ()) -> Iterator[Line]:
    """Measure the other tools, each with batches of 32 and a worker process a core."""
    wanted = [peer for peer in PEERS if not only or peer in only]
    if not wanted:
        return
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    network = FeatureExtractorInceptionV3(
        "peer", ["2048"], feature_extractor_weights_path=str(lab.inception())
    )
    alone = _seconds(network.eval().to(lab.device), _images(lab, BATCH, 299))
    how = ("--device", lab.device, "--batch", BATCH, "--workers", lab.cores)
    for peer in wanted:
        small, large = (
            lab.run("gpu", peer, 1, lab.script("peers", peer, real, fake, lab.inception(), *how))
            for real, fake in sets
        )
        rate = _rate(sets, small, large)
        yield Line(peer, "inception", "pil", rate, rate * alone)


def _rate(sets: Sets, small: Measurement, large: Measurement) -> float:
    fewer, more = (2 * len(list(real.iterdir())) for real, _ in sets)
    if large.wall <= small.wall:
        raise SystemExit("benchmarks.gpu: more images took no longer; raise --images")
    return (more - fewer) / (large.wall - small.wall)


def _images(lab: Lab, count: int, side: int) -> Tensor:
    import torch

    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, device=lab.device)


def _seconds(network: Callable[[Tensor], Any], images: Tensor) -> float:
    """Seconds an image of the network alone."""
    import torch

    def passes(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            network(images)
        if images.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    count = PASSES[images.device.type]
    with torch.no_grad():
        passes(min(3, count))
        return passes(count) / (count * len(images))


def table(lines: list[Line], about: str) -> str:
    """Return the Markdown."""
    rows = [
        f"| {line.tool} | {line.extractor} | {line.decode} | {line.images_per_second:.0f} |"
        f" {line.in_model:.0%} |"
        for line in lines
    ]
    head = [
        "| tool | extractor | decode | images per second | in the model |",
        "|---|---|---|---|---|",
    ]
    # what torch does by itself: TF32 in convolutions; genmetrics says what it computes in
    note = "The other tools leave torch's default in place: TF32 in convolutions. genmetrics: fp32."
    return "\n".join([about, "", *head, *rows, "", note]) + "\n"


def main() -> int:
    """Return 0, or 2 without a CUDA device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=2000, help="images a set, at least 200")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--device", choices=PASSES, default="cuda")
    parser.add_argument("--decode", nargs="+", choices=DECODES, default=["pil"])
    parser.add_argument("--only", nargs="+", choices=[*METRICS, *PEERS], default=[], metavar="NAME")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep photographs and weights")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write JSON")
    given = parser.parse_args()
    import torch

    if given.device == "cpu" and "nvjpeg" in given.decode:
        print("benchmarks.gpu: nvjpeg needs a CUDA device; drop it from --decode", file=sys.stderr)
        return 2
    if given.device == "cuda" and not torch.cuda.is_available():
        print("benchmarks.gpu: torch sees no CUDA device; this needs one", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="genmetrics-gpu-") as temporary:
        folder = (given.data or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        lab = Lab(folder, 1, cores(), given.device)
        lines = measure(lab, given.images, given.size, given.decode, given.only)
    facts = machine.describe()
    card = torch.cuda.get_device_name() if given.device == "cuda" else f"No GPU: {facts['cpu']}"
    about = f"{card}, {facts['cores']} cores, JPEGs of {given.size} x {given.size}."
    print(table(lines, about), end="")
    if given.out is not None:
        results = {"card": card, "machine": facts, "lines": [line._asdict() for line in lines]}
        given.out.write_text(f"{json.dumps(results, indent=1)}\n")
    return 0


def measure(
    lab: Lab, images: int, size: int, decodes: Sequence[str], only: Collection[str]
) -> list[Line]:
    """Make the sets and measure every tool."""
    sets = [
        (lab.photos(count, size, seed=0), lab.photos(count, size, seed=1, blur=1.0))
        for count in (images // 4, images)
    ]
    return [*ours(lab, sets, decodes, only), *peers(lab, sets, only)]


if __name__ == "__main__":
    sys.exit(main())
