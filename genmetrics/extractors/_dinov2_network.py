"""DINOv2 through transformers, from its own layout or from the original one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from transformers import Dinov2Config, Dinov2Model

from genmetrics.core.errors import WeightsError
from genmetrics.extractors._pretrained import load_folder, load_state
from genmetrics.weights import load_state_dict

_OFFSET = 0.1  # added to the target grid by the original code, and so part of the published numbers
_HEAD = 64  # every published size has heads of 64 channels

_RENAMED = {
    "cls_token": "embeddings.cls_token",
    "mask_token": "embeddings.mask_token",
    "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj": "embeddings.patch_embeddings.projection",
    "norm": "layernorm",
    "attn.proj": "attention.output.dense",
    "ls1.gamma": "layer_scale1.lambda1",
    "ls2.gamma": "layer_scale2.lambda1",
}


def load_dinov2(path: Path) -> nn.Module:
    """Load a directory of transformers, or a file with the original names.

    Raises:
        WeightsError: Not DINOv2, or tensors are missing.
    """
    if path.is_dir():
        return load_folder(Dinov2Model, path, "dinov2")
    state = load_state_dict(path)
    if "pos_embed" not in state or "blocks.0.mlp.fc1.weight" not in state:
        raise WeightsError(
            f"{path} is not DINOv2 in its original layout (no pos_embed or blocks.0.mlp.fc1);"
            " ViT-S, B and L without registers can be read, others as a transformers directory"
        )
    # Through transformers' own loader: its modules are named otherwise from version to version,
    # and it knows the names of published checkpoints in each.
    return load_state(Dinov2Model, _config_of(state), _renamed(state), str(path))


def _config_of(state: Mapping[str, Tensor]) -> Any:
    width = state["cls_token"].shape[-1]
    patch = state["patch_embed.proj.weight"].shape[-1]
    side = round((state["pos_embed"].shape[1] - 1) ** 0.5)
    blocks = {int(name.split(".")[1]) for name in state if name.startswith("blocks.")}
    return Dinov2Config(
        hidden_size=width,
        num_hidden_layers=len(blocks),
        num_attention_heads=width // _HEAD,
        mlp_ratio=state["blocks.0.mlp.fc1.weight"].shape[0] // width,
        patch_size=patch,
        image_size=side * patch,
    )


def _renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Name the tensors of the original layout as published transformers checkpoints do."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in state.items():
        block = re.match(r"blocks\.(\d+)\.", name)
        prefix = f"encoder.layer.{block[1]}." if block else ""
        inner = name[block.end() :] if block else name
        stem, _, kind = inner.rpartition(".")
        if stem == "attn.qkv":
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                renamed[f"{prefix}attention.attention.{part}.{kind}"] = piece
        elif inner in _RENAMED:
            renamed[prefix + _RENAMED[inner]] = tensor
        else:
            renamed[f"{prefix}{_RENAMED.get(stem, stem)}.{kind}"] = tensor
    return renamed


class ClsVector(nn.Module):
    """The CLS vector of normalised square images."""

    def __init__(self, model: nn.Module, size: int, positions: str) -> None:
        super().__init__()
        self.model = model
        if positions == "dinov2":
            _fix_positions(model, size)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Map ``(n, 3, size, size)`` to ``"cls"`` ``(n, width)``."""
        return {"cls": self.model(pixel_values=x).last_hidden_state[:, 0]}


def _fix_positions(model: Any, size: int) -> None:
    """Interpolate the position embeddings once, by the original code's rule.

    Scale factor (target + 0.1) / stored along each side, bicubic, no antialiasing; transformers
    then finds as many positions as patches and leaves them alone.
    """
    embeddings = model.embeddings
    stored = embeddings.position_embeddings
    side = round((stored.shape[1] - 1) ** 0.5)
    target = size // model.config.patch_size
    if side == target:
        return
    grid = stored[:, 1:].float().reshape(1, side, side, -1).permute(0, 3, 1, 2)
    factor = (target + _OFFSET) / side
    with torch.no_grad():
        grid = interpolate(grid, scale_factor=(factor, factor), mode="bicubic", antialias=False)
    patches = grid.permute(0, 2, 3, 1).reshape(1, target * target, -1)
    embeddings.position_embeddings = nn.Parameter(torch.cat([stored[:, :1], patches], dim=1))
