"""Networks that cannot be trained, run with the caller's global settings left as they were."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from genmetrics.core.errors import WeightsError
from genmetrics.core.threads import single_threaded
from genmetrics.extractors.precision import Precision

CPU_SLICE = 8
"""Images a network takes at a time on a CPU, unless its ``cpu_slice`` says otherwise.

Each core takes slices of its own, with one thread, so features depend neither on the number of
cores nor on the batch size where it is a multiple of the slice. A few images keep the activations
of convolutions in the cache; transformers want more, to use the weights that they fetch. Speeds are
in docs/decisions.md.
"""

_DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
}


class Frozen(nn.Module):
    """A network in evaluation mode without gradients, whatever a parent module asks.

    Calling it moves the inputs to the device, runs the network in the declared precision and gives
    its outputs as float32 arrays on the CPU. The network returns a mapping from name to tensor.
    """

    def __init__(
        self, network: nn.Module, device: str, precision: Precision, *, compiled: bool = False
    ) -> None:
        super().__init__()
        self.device, self.precision = torch.device(device), precision
        self.network = network.to(device=self.device, dtype=_DTYPES[precision])
        self.network.requires_grad_(False).eval()
        self._call: Callable[..., dict[str, Tensor]] = self.network
        if compiled:
            self._call = torch.compile(self.network)
        # compiled code brings its own threads
        sliced = self.device.type == "cpu" and not compiled
        self.slice: int | None = getattr(network, "cpu_slice", CPU_SLICE) if sliced else None
        """Images a thread takes at a time; None where the batch is run as it comes."""
        if sliced:
            _give_1x1_to_onednn(network)
        self.training = False

    def train(self, mode: bool = True) -> Self:
        """Do nothing: batch norm and dropout must never see a training mode."""
        return self

    def forward(self, *inputs: Tensor | Sequence[Tensor]) -> dict[str, np.ndarray]:
        """Run the network; an input is a batch, or its rows, which may lie on different devices."""
        self.network.eval()  # `parent.apply(...)` reaches the network past `train` above
        with numerics(self.device.type, self.precision):
            pieces = self._pieces(inputs)
            return {
                name: torch.cat([piece[name].float() for piece in pieces]).cpu().numpy()
                for name in pieces[0]
            }

    def _pieces(self, inputs: tuple[Tensor | Sequence[Tensor], ...]) -> list[dict[str, Tensor]]:
        step = self.slice
        if step is None:
            return [self._run(*inputs)]
        starts = range(0, len(inputs[0]), step)
        slices = [tuple(v[start : start + step] for v in inputs) for start in starts]
        count = torch.get_num_threads()
        if count == 1:
            return [self._run(*piece) for piece in slices]
        return list(_pool(count).map(lambda piece: self._run(*piece), slices))

    def _run(self, *inputs: Tensor | Sequence[Tensor]) -> dict[str, Tensor]:
        with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
            return self._call(*(self._place(value) for value in inputs))

    def _place(self, rows: Tensor | Sequence[Tensor]) -> Tensor:
        value = rows if isinstance(rows, Tensor) else _stack(rows)
        dtype = _DTYPES[self.precision] if value.is_floating_point() else value.dtype
        return value.to(device=self.device, dtype=dtype)


def _stack(rows: Sequence[Tensor]) -> Tensor:
    if len({row.device for row in rows}) > 1:
        rows = [row.cpu() for row in rows]
    return torch.stack(list(rows))


def _give_1x1_to_onednn(network: nn.Module) -> None:
    """Let oneDNN do the 1 x 1 convolutions too, which is faster: see docs/decisions.md.

    In one thread and with fewer than 16 images torch gives them to an older kernel, except where
    they are dilated. Dilation moves nothing in a kernel of a single point.
    """
    onednn = torch.backends.mkldnn
    if not (onednn.is_available() and onednn.enabled):  # type: ignore[no-untyped-call]
        return
    for module in network.modules():
        if (
            isinstance(module, nn.Conv2d)
            and module.kernel_size == (1, 1)
            and module.weight.dtype == torch.float32
        ):
            module.dilation = (2, 2)


_POOLS: dict[int, ThreadPoolExecutor] = {}
_POOLS_LOCK = Lock()
os.register_at_fork(after_in_child=_POOLS.clear)  # threads do not survive a fork


def _pool(count: int) -> ThreadPoolExecutor:
    with _POOLS_LOCK:
        if count not in _POOLS:
            _POOLS[count] = single_threaded(count, "genmetrics-cpu")
        return _POOLS[count]


@contextmanager
def numerics(device_type: str, precision: Precision) -> Iterator[None]:
    """Set everything global that moves float32 arithmetic, and put it back afterwards.

    Off: cuDNN autotuning (it picks kernels by their speed of the moment), and TF32 or
    bfloat16 inside float32 products, unless the precision is ``"tf32"``.
    """
    cudnn = torch.backends.cudnn
    with ExitStack() as stack:
        stack.enter_context(_switched(cudnn, "benchmark", False))
        for holder, name, plain, fast in _SWITCHES:
            value = fast if precision == "tf32" and device_type == "cuda" else plain
            stack.enter_context(_switched(holder, name, value))
        yield


@contextmanager
def _switched(holder: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(holder, name)
    if before == value:
        yield
        return
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


def _switches() -> list[tuple[Any, str, Any, Any]]:
    """List holder, attribute, exact value and TF32 value of each switch this torch has."""
    backends: Any = torch.backends
    if not hasattr(backends.cudnn, "conv"):  # torch below 2.9
        return [
            (backends.cuda.matmul, "allow_tf32", False, True),
            (backends.cudnn, "allow_tf32", False, True),
        ]
    name = "fp32_precision"
    return [
        (backends.cuda.matmul, name, "ieee", "tf32"),
        (backends.cudnn.conv, name, "ieee", "tf32"),
        (backends.mkldnn.matmul, name, "ieee", "ieee"),
        (backends.mkldnn.conv, name, "ieee", "ieee"),
    ]


_SWITCHES = _switches()


@contextmanager
def building() -> Iterator[None]:
    """Build a model: its random initialisation must not move the caller's random numbers.

    The caller's default dtype and device do not reach the model either.
    """
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


BATCH_NORM = ("weight", "bias", "running_mean", "running_var")
"""What a batch norm holds that moves its output, under torch's names."""


def load_folded(
    conv: nn.Conv2d, state: Mapping[str, Tensor], conv_name: str, norm_name: str, *,
    epsilon: float, where: str,
) -> None:  # fmt: skip
    """Give ``conv`` the weights of a convolution with the batch norm behind it folded in.

    They are in ``state`` as ``{conv_name}.weight``, ``{norm_name}.weight``, ``{norm_name}.bias``...
    Computed in float64; the weight is channels-last, the layout in which CPUs and GPUs are fastest.

    Raises:
        WeightsError: Shapes that do not fit.
    """
    weight = state[f"{conv_name}.weight"]
    _require_shape(weight, conv.weight.shape, f"{where}: {conv_name}.weight")
    norm = {part: state[f"{norm_name}.{part}"] for part in BATCH_NORM}
    for part, value in norm.items():
        _require_shape(value, conv.weight.shape[:1], f"{where}: {norm_name}.{part}")
    gain, bias, mean, variance = norm.values()
    factor = gain.double() / torch.sqrt(variance.double() + epsilon)
    folded = (weight.double() * factor[:, None, None, None]).float()
    conv.weight = nn.Parameter(folded.contiguous(memory_format=torch.channels_last))
    conv.bias = nn.Parameter((bias.double() - mean.double() * factor).float())


def _require_shape(found: Tensor, expected: torch.Size, what: str) -> None:
    if found.shape != expected:
        raise WeightsError(
            f"{what} has shape {tuple(found.shape)}, expected {tuple(expected)}; this is another"
            " network's file"
        )


def load_strictly(network: nn.Module, state: Mapping[str, Tensor], where: str) -> None:
    """Load a state dict whose keys and shapes fit exactly.

    Raises:
        WeightsError: Keys or shapes do not fit; names the first few.
    """
    own = network.state_dict()
    require_keys(own.keys(), state.keys(), where)
    for name, value in own.items():
        _require_shape(state[name], value.shape, f"{where}: {name}")
    network.load_state_dict(dict(state), assign=True)


def require_keys(expected: Any, found: Any, where: str) -> None:
    """Raise :class:`WeightsError` unless both hold the same names; shows the first few."""
    missing = [name for name in expected if name not in found]
    unexpected = [name for name in found if name not in expected]
    if missing or unexpected:
        parts = [
            f"{len(names)} {kind} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
            for kind, names in (("missing", missing), ("unexpected", unexpected))
            if names
        ]
        raise WeightsError(f"{where}: keys {' and '.join(parts)}; this is another network's file")
