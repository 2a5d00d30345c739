"""EfficientNet-Lite0 (Tan, 2020) as timm's ``tf_efficientnet_lite0`` names and computes it.

Written out, because importing timm takes 2 s, as long as two cores take for 280 images.
Batch norm (epsilon 1e-3) is folded into the convolutions in float64, and tensors are channels-last:
twice the speed of the unfolded network on a CPU, features equal to 1e-5 relative.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import hardtanh, pad

from genmetrics.extractors._frozen import BATCH_NORM, load_folded, require_keys

_EPSILON = 1e-3
_WIDTH = 1280
_CLASSIFIER = {"classifier.weight": "_fc.weight", "classifier.bias": "_fc.bias"}


class _Stage(NamedTuple):
    blocks: int
    kernel: int
    stride: int
    outputs: int


_STAGES = (
    _Stage(1, 3, 1, 16),
    _Stage(2, 3, 2, 24),
    _Stage(2, 5, 2, 40),
    _Stage(3, 3, 2, 80),
    _Stage(3, 5, 1, 112),
    _Stage(4, 5, 2, 192),
    _Stage(1, 3, 1, 320),
)
_EXPANSION = 6  # of every stage but the first


class _Conv(nn.Module):
    """Convolution with its batch norm folded in, then ReLU6 unless it ends a block.

    Padding is TensorFlow's SAME for inputs of even size: at stride 2, one row and column more below
    and on the right.
    """

    def __init__(
        self, name: str, norm: str, inputs: int, outputs: int, kernel: int = 1, *, stride: int = 1,
        depthwise: bool = False, linear: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.name, self.norm, self.linear = name, norm, linear
        before, behind = (kernel - stride) // 2, (kernel - stride + 1) // 2
        even = before == behind
        self.margins = None if even else (before, behind, before, behind)
        self.conv = nn.Conv2d(
            inputs, outputs, kernel, stride, before if even else 0,
            groups=inputs if depthwise else 1, device="meta",
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x if self.margins is None else pad(x, self.margins))
        return x if self.linear else hardtanh(x, 0, 6, inplace=True)


class Residual(nn.Module):
    """A block whose input is added to its output."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y.add_(x)


def _block(at: str, inputs: int, kernel: int, stride: int, outputs: int) -> nn.Module:
    if at == "blocks.0.0":
        return nn.Sequential(
            _Conv(
                f"{at}.conv_dw", f"{at}.bn1", inputs, inputs, kernel, stride=stride, depthwise=True
            ),
            _Conv(f"{at}.conv_pw", f"{at}.bn2", inputs, outputs, linear=True),
        )
    wide = inputs * _EXPANSION
    kind = Residual if stride == 1 and inputs == outputs else nn.Sequential
    return kind(
        _Conv(f"{at}.conv_pw", f"{at}.bn1", inputs, wide),
        _Conv(f"{at}.conv_dw", f"{at}.bn2", wide, wide, kernel, stride=stride, depthwise=True),
        _Conv(f"{at}.conv_pwl", f"{at}.bn3", wide, outputs, linear=True),
    )


def _layers() -> Iterator[nn.Module]:
    yield _Conv("conv_stem", "bn1", 3, 32, 3, stride=2)
    inputs = 32
    for i, (blocks, kernel, stride, outputs) in enumerate(_STAGES):
        for j in range(blocks):
            yield _block(f"blocks.{i}.{j}", inputs, kernel, 1 if j else stride, outputs)
            inputs = outputs
    yield _Conv("conv_head", "bn2", inputs, _WIDTH)


class Lite0Network(nn.Module):
    """Features of normalised images ``(n, 3, 224, 224)``.

    Args:
        state: Its tensors under timm's names or the packaged file's, in any order. The classifier
            is among them and is left out.
        where: What errors call it.

    Raises:
        WeightsError: Other names, or other shapes of those that are used.
    """

    cpu_slice = 2

    def __init__(self, state: Mapping[str, Tensor], where: str) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_layers())
        convs = [module for module in self.modules() if isinstance(module, _Conv)]
        state = _under_timms_names(state, convs, where)
        for conv in convs:
            load_folded(conv.conv, state, conv.name, conv.norm, epsilon=_EPSILON, where=where)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return ``"pooled"`` ``(n, 1280)``: the mean over the last feature map."""
        x = self.layers(x.contiguous(memory_format=torch.channels_last))
        return {"pooled": x.float().mean(dim=(2, 3))}


def _under_timms_names(
    state: Mapping[str, Tensor], convs: list[_Conv], where: str
) -> Mapping[str, Tensor]:
    names = dict(_CLASSIFIER)
    blocks: dict[str, int] = {}
    for conv in convs:
        layer, norm = _packaged_names(conv, blocks)
        names[f"{conv.name}.weight"] = f"{layer}.weight"
        for part in (*BATCH_NORM, "num_batches_tracked"):
            names[f"{conv.norm}.{part}"] = f"{norm}.{part}"
    if not any(name in state for name in names.values()):
        require_keys(names, state, where)
        return state
    require_keys(names.values(), state, where)
    return {name: state[packaged] for name, packaged in names.items()}


def _packaged_names(conv: _Conv, blocks: dict[str, int]) -> tuple[str, str]:
    """Name a convolution and its batch norm as the packaged file does, which counts all blocks."""
    block, _, layer = conv.name.rpartition(".")
    if not block:
        return {"conv_stem": ("_conv_stem", "_bn0"), "conv_head": ("_conv_head", "_bn1")}[layer]
    at = f"_blocks.{blocks.setdefault(block, len(blocks))}"
    if layer == "conv_dw":
        return f"{at}._depthwise_conv", f"{at}._bn1"
    if conv.linear:
        return f"{at}._project_conv", f"{at}._bn2"
    return f"{at}._expand_conv", f"{at}._bn0"
