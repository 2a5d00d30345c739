"""The networks alone, the speed of the machine under them, and the way to the first image.

  python -m benchmarks.network bare --weights FILE --images 768
  python -m benchmarks.network floor --weights FILE
  python -m benchmarks.network imports --weights FILE --start CLOCK
  python -m benchmarks.network first-image --start CLOCK -- eval ARGUMENTS

Each prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 32
TRIES = 3  # of which the fastest counts: what the machine can do, not what it did


# -- bare forward passes ---------------------------------------------------------------------------


def bare(weights: str, images: int) -> dict[str, Any]:
    """Seconds of the package's own two networks on tensors that are ready, in batches of 32."""
    from genmetrics.core.memory import keep_freed_memory

    keep_freed_memory()  # as `genmetrics eval` does
    networks = {"inception": _inception(weights), "lite": _lite()}
    found = {name: _forward_seconds(network, images) for name, network in networks.items()}
    return {"seconds": sum(found.values()), **found, "images": images, "batch": BATCH}


def _forward_seconds(network: Any, images: int) -> float:
    """Time whole batches; the surplus of the last is taken off in proportion."""
    batch = _ready(network.size)
    network(batch)
    batches = -(-images // BATCH)
    start = time.perf_counter()
    for _ in range(batches):
        network(batch)
    return (time.perf_counter() - start) * images / (batches * BATCH)


class Bare(NamedTuple):
    """A network of the package, and the side of its input."""

    network: Callable[[Tensor], Any]
    size: int

    def __call__(self, batch: Tensor) -> Any:
        return self.network(batch)


def _inception(weights: str) -> Bare:
    from genmetrics.extractors.inception import InceptionSpec

    extractor: Any = InceptionSpec.create("clean", weights=weights).build("cpu")
    return Bare(extractor.network, 299)


def _lite() -> Bare:
    from genmetrics.extractors.efficientnet_lite0 import EfficientNetLite0Spec

    extractor: Any = EfficientNetLite0Spec.create().build("cpu")
    return Bare(extractor.network, 224)


def _ready(size: int) -> Tensor:
    import torch

    return torch.randn(BATCH, 3, size, size, generator=torch.Generator().manual_seed(0))


# -- the floor -------------------------------------------------------------------------------------


def floor(weights: str) -> dict[str, Any]:
    """How fast this machine multiplies, and how much of that an Inception pass reaches.

    ``conv_gflops`` is the throughput of one large convolution (3 x 3, 256 to 256 channels on
    64 x 64, batch 32), ``gemm_gflops`` that of a matrix product of side 4096, ``layers_gflops``
    that of Inception's own convolutions run one by one, ``pass_gflops`` that of the whole network:
    its multiplications and additions over its time. All float32, channels last.
    """
    import torch

    network, batch = _inception(weights), _ready(299)
    shapes, flops = _convolutions(network, batch)
    seconds = _fastest(lambda: network(batch))
    layers = sum(count * _conv_seconds(shape) for shape, count in shapes.items())
    large = ConvShape((BATCH, 256, 64, 64), (256, 256, 3, 3), (1, 1), (1, 1))
    a, b = torch.randn(4096, 4096), torch.randn(4096, 4096)
    return {
        "gemm_gflops": 2 * 4096**3 / _fastest(lambda: a @ b) / 1e9,
        "conv_gflops": 2 * BATCH * 64**2 * 256**2 * 9 / _conv_seconds(large) / 1e9,
        "layers_gflops": flops / layers / 1e9,
        "pass_gflops": flops / seconds / 1e9,
        "gflop_per_image": flops / BATCH / 1e9,
        "images_per_second": BATCH / seconds,
        "threads": torch.get_num_threads(),
    }


class ConvShape(NamedTuple):
    """A convolution without its numbers."""

    input: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Any


def _convolutions(network: Bare, batch: Tensor) -> tuple[Counter[ConvShape], float]:
    """Every convolution that a batch goes through, and the operations of the whole network.

    The batch goes through in one piece, for what counts operations sees its own thread only.
    """
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    seen: Counter[ConvShape] = Counter()
    whole: Any = network.network.network  # type: ignore[attr-defined]

    def note(module: Any, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        kernel = tuple(module.weight.shape)
        seen[ConvShape(tuple(inputs[0].shape), kernel, module.stride, module.padding)] += 1

    hooks = [m.register_forward_hook(note) for m in whole.modules() if isinstance(m, nn.Conv2d)]
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        whole(batch)
    for hook in hooks:
        hook.remove()
    return seen, counter.get_total_flops()


def _conv_seconds(shape: ConvShape) -> float:
    import torch

    with torch.inference_mode():
        x, kernel = (
            torch.randn(size).contiguous(memory_format=torch.channels_last)
            for size in (shape.input, shape.kernel)
        )
        bias = torch.randn(shape.kernel[0])
        return _fastest(
            lambda: torch.conv2d(x, kernel, bias, stride=shape.stride, padding=shape.padding)
        )


def _fastest(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(TRIES):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


# -- the way to the first image --------------------------------------------------------------------


def imports(weights: str, start: float) -> dict[str, Any]:
    """Seconds from the start of the process until torch, torchvision and the weights are there."""
    import torch
    import torchvision  # noqa: F401

    torch.load(weights, weights_only=True)
    return {"seconds": time.monotonic() - start}


def first_image(start: float, words: Sequence[str]) -> None:
    """Run ``genmetrics`` and stop when the first image reaches a network."""
    from genmetrics.cli.main import main
    from genmetrics.extractors._model import ImageExtractor

    def stop(*_: Any) -> Any:
        line = json.dumps({"seconds": time.monotonic() - start})
        os.write(1, f"{line}\n".encode())
        os._exit(0)  # whatever thread this is, whoever would catch an exception

    ImageExtractor.forward = stop  # type: ignore[assignment,method-assign]  # this process only measures
    raise SystemExit(f"no image reached a network; exit code {main(list(words))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("bare", "floor", "imports", "first-image"))
    parser.add_argument("--weights")
    parser.add_argument("--images", type=int, default=768)
    parser.add_argument("--start", type=float, default=0.0, help="time.monotonic() of the caller")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    own, words = sys.argv[1:at], sys.argv[at + 1 :]
    given = parser.parse_args(own)
    if given.what == "first-image":
        first_image(given.start, words)
    calls: dict[str, Callable[[], dict[str, Any]]] = {
        "bare": lambda: bare(given.weights, given.images),
        "floor": lambda: floor(given.weights),
        "imports": lambda: imports(given.weights, given.start),
    }
    print(json.dumps(calls[given.what]()))


if __name__ == "__main__":
    main()
