"""Small random models on disk, in the layouts people have them in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from genmetrics.core.sample import Item

SIZES = [(64, 64), (200, 333), (512, 411), (29, 35)]
"""Height and width: enlarged and reduced, along either side."""


@pytest.fixture(scope="session")
def images() -> list[torch.Tensor]:
    """Smooth colour fields with some noise, uint8, of mixed sizes."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for height, width in SIZES:
        field = torch.rand(1, 3, 7, 7, generator=generator)
        smooth = nn.functional.interpolate(field, size=(height, width), mode="bilinear")[0]
        noise = torch.rand(3, height, width, generator=generator) * 0.3
        found.append(((smooth * 0.7 + noise) * 255).round().to(torch.uint8))
    return found


@pytest.fixture(scope="session")
def items(images: list[torch.Tensor]) -> list[Item]:
    return [Item(id=str(i), image=image) for i, image in enumerate(images)]


# -- Inception -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def torch_fidelity_inception(inception_file: Path) -> nn.Module:
    """torch-fidelity's network: uint8 batches to (2048, logits_unbiased, 64, 192, 768)."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    outputs = ["2048", "logits_unbiased", "64", "192", "768"]
    return FeatureExtractorInceptionV3(
        "theirs", outputs, feature_extractor_weights_path=str(inception_file)
    )


# -- CLIP ------------------------------------------------------------------------------------------

OPEN_CLIP = "genmetrics-test-clip"


@pytest.fixture(scope="session")
def open_clip_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a small open_clip model that is added to open_clip's list."""
    import open_clip

    folder = tmp_path_factory.mktemp("open_clip")
    config = {
        "embed_dim": 24,
        "vision_cfg": {
            "image_size": 96,
            "layers": 2,
            "width": 48,
            "head_width": 24,
            "patch_size": 32,
        },
        "text_cfg": {
            "context_length": 20,
            "vocab_size": 49408,
            "width": 32,
            "heads": 2,
            "layers": 2,
        },
    }
    (folder / f"{OPEN_CLIP}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder / f"{OPEN_CLIP}.json")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = open_clip.create_model(OPEN_CLIP)
    path = folder / "open_clip.pt"
    torch.save(model.state_dict(), path)
    return path


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small CLIP in the layout of transformers, stored in half precision."""
    return write_clip(tmp_path_factory.mktemp("transformers") / "clip", context=16)


def write_clip(folder: Path, *, context: int) -> Path:
    """Write a small CLIP whose texts have at most ``context`` tokens."""
    from transformers import CLIPConfig, CLIPModel

    tokens = tokenizer_files(folder)
    config = CLIPConfig(
        projection_dim=24,
        vision_config={
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 64,
            "patch_size": 16,
        },
        text_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": context,
            "vocab_size": len(tokens),
            "bos_token_id": tokens["<|startoftext|>"],
            "eos_token_id": tokens["<|endoftext|>"],
        },
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        CLIPModel(config).half().save_pretrained(folder)
    processor = {
        "image_mean": [0.4, 0.5, 0.6],
        "image_std": [0.2, 0.25, 0.3],
        "size": {"shortest_edge": 64},
        "crop_size": {"height": 64, "width": 64},
        "resample": 3,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def tokenizer_files(folder: Path) -> dict[str, int]:
    """Write a tokenizer that knows single letters."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [*letters, *(f"{letter}</w>" for letter in letters)]
    tokens = {name: i for i, name in enumerate([*names, "<|startoftext|>", "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(tokens))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 16}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokens
