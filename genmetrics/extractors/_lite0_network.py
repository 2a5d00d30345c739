"""EfficientNet-Lite0 through timm."""

from __future__ import annotations

from pathlib import Path

import timm
import torch
from timm.layers import BatchNormAct2d
from torch import Tensor, nn

from genmetrics.core.errors import WeightsError
from genmetrics.extractors._frozen import building, fold_batch_norm, load_strictly
from genmetrics.weights import load_state_dict


def load_lite0(path: Path) -> nn.Module:
    """Build timm's ``tf_efficientnet_lite0`` with the weights of ``path``.

    The packaged file names its layers differently, and its tensors are those of timm in the same
    order with the same shapes; files with timm's own names load as they are.

    Raises:
        WeightsError: Another number of tensors, or other shapes.
    """
    state = load_state_dict(path)
    with building(), torch.device("meta"):  # every tensor comes from the file
        network: nn.Module = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    names = list(network.state_dict())
    if len(names) != len(state):
        raise WeightsError(
            f"{path} holds {len(state)} tensors, EfficientNet-Lite0 has {len(names)}; this is"
            " another network's file"
        )
    if set(names) != set(state):
        state = dict(zip(names, state.values(), strict=True))
    load_strictly(network, state, str(path))
    return network.eval()


class PooledFeatures(nn.Module):
    """The features before the classifier.

    Batch norm is folded into the convolutions, and tensors are channels-last: twice the speed on a
    CPU, features equal to 1e-5 relative. Changes the network it is given.
    """

    cpu_slice = 2

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        for module in list(network.modules()):
            _fold_children(module)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Map normalised images ``(n, 3, 224, 224)`` to ``"pooled"`` ``(n, 1280)``."""
        x = x.contiguous(memory_format=torch.channels_last)
        features = self.network.forward_features(x)  # type: ignore[operator]
        return {"pooled": self.network.forward_head(features, pre_logits=True)}  # type: ignore[operator]


def _fold_children(parent: nn.Module) -> None:
    """Fold each batch norm into the convolution before it; its activation takes its place."""
    conv: nn.Conv2d | None = None
    for name, child in list(parent.named_children()):
        if isinstance(child, nn.Conv2d):
            conv = child
        elif isinstance(child, BatchNormAct2d) and conv is not None:
            conv.weight, conv.bias = fold_batch_norm(
                conv.weight.detach(),
                gain=child.weight.detach(),
                bias=child.bias.detach(),
                mean=child.running_mean,
                variance=child.running_var,
                epsilon=child.eps,
            )
            setattr(parent, name, child.act)
