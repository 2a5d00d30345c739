"""DINOv2: the CLS vector against transformers and timm called directly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import Compose, InterpolationMode, Normalize, Resize, ToTensor

from genmetrics.core.errors import WeightsError
from genmetrics.core.sample import Item
from genmetrics.extractors.dinov2 import DINOv2Spec
from tests.extractors.helpers import relative, run


@pytest.fixture(params=[224, 182])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small model in the layout of transformers, with positions for the input or fewer."""
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        mlp_ratio=2,
        patch_size=14,
        image_size=request.param,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Dinov2Model(config)
        torch.nn.init.normal_(model.embeddings.position_embeddings)
    model.save_pretrained(tmp_path / "dinov2")
    return tmp_path / "dinov2"


def published_pixels(items: list[Item]) -> torch.Tensor:
    """dgm-eval's transform."""
    transform = Compose(
        [
            Resize((224, 224), InterpolationMode.BICUBIC),
            ToTensor(),
            Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    pictures = [
        Image.fromarray(item.image.permute(1, 2, 0).contiguous().numpy())
        for item in items
        if item.image is not None
    ]
    return torch.stack([transform(picture) for picture in pictures])


def test_transformers_called_directly(folder: Path, items: list[Item]) -> None:
    from transformers import Dinov2Model

    model = Dinov2Model.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = model(published_pixels(items)).last_hidden_state[:, 0]
    spec = replace(DINOv2Spec.create(model=str(folder)), positions="transformers")
    assert np.array_equal(run(spec.build("cpu"), items)["cls"], expected)
    original = run(DINOv2Spec.create(model=str(folder)).build("cpu"), items)["cls"]
    same = model.config.image_size == 224
    assert np.array_equal(original, expected) == same


def test_positions_follow_the_original_rule(folder: Path) -> None:
    """Output i reads the stored grid at (i + 0.5) * stored / (target + 0.1) - 0.5, cubic -0.75."""
    from transformers import Dinov2Model

    stored = Dinov2Model.from_pretrained(folder).embeddings.position_embeddings.detach()
    side = round((stored.shape[1] - 1) ** 0.5)
    extractor: Any = DINOv2Spec.create(model=str(folder)).build("cpu")
    mine = extractor.network.network.model.embeddings.position_embeddings
    assert mine.shape[1] == 1 + 16 * 16
    assert torch.equal(mine[:, 0], stored[:, 0])
    weights = np.eye(16)
    if side != 16:
        weights = np.stack([cubic_row((i + 0.5) * side / 16.1 - 0.5, side) for i in range(16)])
    grid = stored[0, 1:].double().numpy().reshape(side, side, -1)
    expected = np.einsum("ip,jq,pqd->ijd", weights, weights, grid).reshape(256, -1)
    assert np.abs(mine[0, 1:].numpy() - expected).max() < 1e-4


def cubic_row(where: float, length: int) -> np.ndarray:
    """Weights over the stored points of one cubic interpolation, borders repeated."""
    row = np.zeros(length)
    start = int(np.floor(where))
    for tap in range(start - 1, start + 3):
        d = abs(where - tap)
        if d <= 1:
            weight = 1.25 * d**3 - 2.25 * d**2 + 1
        else:
            weight = -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)
        row[min(max(tap, 0), length - 1)] += weight
    return row


def test_original_layout_against_timm(items: list[Item], tmp_path: Path) -> None:
    """The file of torch.hub has the names of timm's vision transformer and a mask token."""
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = VisionTransformer(
            img_size=224, patch_size=14, embed_dim=128, depth=2, num_heads=2, init_values=1.0,
            num_classes=0,
        ).eval()  # fmt: skip
        for name, value in network.named_parameters():
            if "norm" in name or "ls" in name or "bias" in name:
                torch.nn.init.normal_(value, mean=0.5, std=0.2)
    state = {**network.state_dict(), "mask_token": torch.zeros(1, 128)}
    torch.save(state, tmp_path / "dinov2.pth")
    with torch.no_grad():
        expected = network(published_pixels(items))
    mine = run(DINOv2Spec.create(model=str(tmp_path / "dinov2.pth")).build("cpu"), items)["cls"]
    assert relative(mine, expected) < 1e-5

    torch.save({**state, "register_tokens": torch.zeros(1, 4, 128)}, tmp_path / "other.pth")
    with pytest.raises(WeightsError, match="no place for .*register_tokens"):
        DINOv2Spec.create(model=str(tmp_path / "other.pth")).build("cpu")


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "w.pth")
    with pytest.raises(WeightsError, match="not DINOv2 in its original layout"):
        DINOv2Spec.create(model=str(tmp_path / "w.pth")).build("cpu")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("GENMETRICS_WEIGHTS", str(tmp_path))
    with pytest.raises(WeightsError, match="weights fetch facebook/dinov2-large"):
        DINOv2Spec.create().check()
    with pytest.raises(WeightsError, match="weights fetch dinov2-vitl14"):
        DINOv2Spec.create(model="dinov2-vitl14").check()
