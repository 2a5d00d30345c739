"""The Inception network behind FID: the 2015-12-05 TensorFlow graph, as its PyTorch port names it.

It is torchvision's ``inception_v3`` with 1008 classes and no auxiliary head, except that 3 x 3
average pools leave padding out of the mean, and the pool of the last block (Mixed_7c) is a maximum.
Batch norm (epsilon 1e-3) is folded into the convolutions in float64, and tensors are channels-last:
twice the speed of the unfolded network on a CPU, features equal to 1e-6 relative.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from genmetrics.core.errors import WeightsError
from genmetrics.extractors._frozen import BATCH_NORM, load_folded, require_keys

_EPSILON = 1e-3
_CLASSES = 1008

Kernel = int | tuple[int, int]


class _Conv(nn.Module):
    """Convolution with its batch norm folded in, then ReLU. Without ``pad``, borders are cut."""

    def __init__(
        self, name: str, inputs: int, outputs: int, kernel: Kernel = 1, *, stride: int = 1,
        pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.name = name
        size = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (size[0] // 2, size[1] // 2) if pad else (0, 0)
        # Without memory: `load` puts the file's own tensors in place.
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.conv(x), inplace=True)

    def load(self, state: Mapping[str, Tensor], where: str) -> None:
        """Take weights from a state dict, with batch norm folded in."""
        names = f"{self.name}.conv", f"{self.name}.bn"
        load_folded(self.conv, state, *names, epsilon=_EPSILON, where=where)

    @property
    def keys(self) -> list[str]:
        """What the convolution reads of a state dict."""
        return [f"{self.name}.conv.weight", *(f"{self.name}.bn.{part}" for part in BATCH_NORM)]


class Branches(nn.Module):
    """Paths from one input whose outputs are joined along the channels."""

    def __init__(self, *paths: nn.Module) -> None:
        super().__init__()
        self.paths = nn.ModuleList(paths)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([path(x) for path in self.paths], dim=1)


def _mean_pool() -> nn.Module:
    return nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)


def _block_a(block: str, inputs: int, pool: int) -> nn.Module:
    at = f"{block}.branch"
    return Branches(
        _Conv(f"{at}1x1", inputs, 64),
        nn.Sequential(_Conv(f"{at}5x5_1", inputs, 48), _Conv(f"{at}5x5_2", 48, 64, 5)),
        nn.Sequential(
            _Conv(f"{at}3x3dbl_1", inputs, 64),
            _Conv(f"{at}3x3dbl_2", 64, 96, 3),
            _Conv(f"{at}3x3dbl_3", 96, 96, 3),
        ),
        nn.Sequential(_mean_pool(), _Conv(f"{at}_pool", inputs, pool)),
    )


def _block_b(block: str, inputs: int) -> nn.Module:
    at = f"{block}.branch"
    return Branches(
        _Conv(f"{at}3x3", inputs, 384, 3, stride=2, pad=False),
        nn.Sequential(
            _Conv(f"{at}3x3dbl_1", inputs, 64),
            _Conv(f"{at}3x3dbl_2", 64, 96, 3),
            _Conv(f"{at}3x3dbl_3", 96, 96, 3, stride=2, pad=False),
        ),
        nn.MaxPool2d(3, stride=2),
    )


def _block_c(block: str, inputs: int, width: int) -> nn.Module:
    at = f"{block}.branch"
    row, column = (1, 7), (7, 1)
    return Branches(
        _Conv(f"{at}1x1", inputs, 192),
        nn.Sequential(
            _Conv(f"{at}7x7_1", inputs, width),
            _Conv(f"{at}7x7_2", width, width, row),
            _Conv(f"{at}7x7_3", width, 192, column),
        ),
        nn.Sequential(
            _Conv(f"{at}7x7dbl_1", inputs, width),
            _Conv(f"{at}7x7dbl_2", width, width, column),
            _Conv(f"{at}7x7dbl_3", width, width, row),
            _Conv(f"{at}7x7dbl_4", width, width, column),
            _Conv(f"{at}7x7dbl_5", width, 192, row),
        ),
        nn.Sequential(_mean_pool(), _Conv(f"{at}_pool", inputs, 192)),
    )


def _block_d(block: str, inputs: int) -> nn.Module:
    at = f"{block}.branch"
    return Branches(
        nn.Sequential(
            _Conv(f"{at}3x3_1", inputs, 192),
            _Conv(f"{at}3x3_2", 192, 320, 3, stride=2, pad=False),
        ),
        nn.Sequential(
            _Conv(f"{at}7x7x3_1", inputs, 192),
            _Conv(f"{at}7x7x3_2", 192, 192, (1, 7)),
            _Conv(f"{at}7x7x3_3", 192, 192, (7, 1)),
            _Conv(f"{at}7x7x3_4", 192, 192, 3, stride=2, pad=False),
        ),
        nn.MaxPool2d(3, stride=2),
    )


def _block_e(block: str, inputs: int, pool: nn.Module) -> nn.Module:
    at = f"{block}.branch"

    def split(branch: str) -> nn.Module:
        return Branches(
            _Conv(f"{branch}a", 384, 384, (1, 3)),
            _Conv(f"{branch}b", 384, 384, (3, 1)),
        )

    return Branches(
        _Conv(f"{at}1x1", inputs, 320),
        nn.Sequential(_Conv(f"{at}3x3_1", inputs, 384), split(f"{at}3x3_2")),
        nn.Sequential(
            _Conv(f"{at}3x3dbl_1", inputs, 448),
            _Conv(f"{at}3x3dbl_2", 448, 384, 3),
            split(f"{at}3x3dbl_3"),
        ),
        nn.Sequential(pool, _Conv(f"{at}_pool", inputs, 192)),
    )


class InceptionNetwork(nn.Module):
    """Features of normalised images ``(n, 3, 299, 299)``.

    Args:
        state: State dict of the PyTorch port (``Mixed_5b.branch1x1.conv.weight``, ...).
        where: What errors call it.
        layer: ``"64"`` and ``"192"`` are the means over the outputs of the two max pools, ``"768"``
            over Mixed_6e, ``"2048"`` over Mixed_7c; later blocks are not computed. ``"2048"`` also
            gives ``"logits_unbiased"``: the class scores (1008) without the bias.

    Raises:
        WeightsError: Missing or unexpected keys, or other shapes.
    """

    cpu_slice = 4

    def __init__(self, state: Mapping[str, Tensor], where: str, layer: str) -> None:
        super().__init__()
        self.layer = layer
        self.stages = nn.ModuleDict(
            {
                "64": nn.Sequential(
                    _Conv("Conv2d_1a_3x3", 3, 32, 3, stride=2, pad=False),
                    _Conv("Conv2d_2a_3x3", 32, 32, 3, pad=False),
                    _Conv("Conv2d_2b_3x3", 32, 64, 3),
                    nn.MaxPool2d(3, stride=2),
                ),
                "192": nn.Sequential(
                    _Conv("Conv2d_3b_1x1", 64, 80),
                    _Conv("Conv2d_4a_3x3", 80, 192, 3, pad=False),
                    nn.MaxPool2d(3, stride=2),
                ),
                "768": nn.Sequential(
                    _block_a("Mixed_5b", 192, 32),
                    _block_a("Mixed_5c", 256, 64),
                    _block_a("Mixed_5d", 288, 64),
                    _block_b("Mixed_6a", 288),
                    _block_c("Mixed_6b", 768, 128),
                    _block_c("Mixed_6c", 768, 160),
                    _block_c("Mixed_6d", 768, 160),
                    _block_c("Mixed_6e", 768, 192),
                ),
                "2048": nn.Sequential(
                    _block_d("Mixed_7a", 768),
                    _block_e("Mixed_7b", 1280, _mean_pool()),
                    _block_e("Mixed_7c", 2048, nn.MaxPool2d(3, stride=1, padding=1)),
                ),
            }
        )
        self._load(state, where)

    def _load(self, state: Mapping[str, Tensor], where: str) -> None:
        convs = [module for module in self.modules() if isinstance(module, _Conv)]
        expected = [key for conv in convs for key in conv.keys] + ["fc.weight", "fc.bias"]
        # Counters of training steps; files of old torch versions lack them.
        found = [key for key in state if not key.endswith("num_batches_tracked")]
        require_keys(set(expected), found, where)
        for conv in convs:
            conv.load(state, where)
        if state["fc.weight"].shape != (_CLASSES, 2048):
            raise WeightsError(
                f"{where}: fc.weight has shape {tuple(state['fc.weight'].shape)}, expected"
                f" {(_CLASSES, 2048)}; FID's network has 1008 classes"
            )
        self.register_buffer("classes", state["fc.weight"].float().clone())

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = x.contiguous(memory_format=torch.channels_last)
        for name, stage in self.stages.items():
            x = stage(x)
            if name == self.layer:
                break
        pooled = x.float().mean(dim=(2, 3))
        if self.layer != "2048":
            return {self.layer: pooled}
        classes = self.get_buffer("classes").float()
        return {"2048": pooled, "logits_unbiased": pooled @ classes.T}
