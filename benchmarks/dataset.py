"""What the benchmarks judge: photographs that come with scikit-image, and random weights.

python -m benchmarks.dataset photos FOLDER [--count 384] [--size 512] [--seed 0] [--blur 0]
python -m benchmarks.dataset prompts FILE [--count 384]
python -m benchmarks.dataset weights FILE
python -m benchmarks.dataset clip FOLDER [--width 512] [--layers 12]
python -m benchmarks.dataset tiles FOLDER [--count 100000] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from PIL import ImageFilter

from benchmarks.tiles import write_shards
from scripts.make_photos import crops


def write_photos(folder: Path, *, count: int, size: int, seed: int, blur: float = 0.0) -> None:
    """Write ``count`` different JPEGs of ``size`` x ``size``, the same ones for the same seed."""
    folder.mkdir(parents=True)
    for i, image in enumerate(crops(count, size, seed)):
        blurred = image.filter(ImageFilter.GaussianBlur(blur)) if blur else image
        blurred.save(folder / f"{i:05d}.jpg", quality=90)


def write_inception_weights(file: Path, *, seed: int = 0) -> None:
    """Write random weights of FID's network under its public key names.

    Convolutions are drawn so that activations stay of order one at every depth: features then
    depend on the picture as those of a trained network do, and arithmetic takes as long.
    """
    import torch
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    class Blank(FeatureExtractorInceptionV3):  # type: ignore[misc]
        def load_state_dict(self, *_: Any, **__: Any) -> None:
            pass

    with tempfile.NamedTemporaryFile(suffix=".pth") as empty:
        # the constructor insists on a file; the blank network ignores what is in it
        torch.save({}, empty.name)
        network = Blank("blank", ["2048"], feature_extractor_weights_path=empty.name)
    generator = torch.Generator().manual_seed(seed)
    state = {name: _draw(name, value, generator) for name, value in network.state_dict().items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, file)


def _draw(name: str, value: Any, generator: Any) -> Any:
    import torch

    if name.endswith("num_batches_tracked"):
        return value
    if name.endswith(("running_var", "bn.weight")):
        return 0.75 + torch.rand(value.shape, generator=generator) * 0.5
    scale = (2 / value[0].numel()) ** 0.5 if value.ndim > 1 else 0.1
    return torch.randn(value.shape, generator=generator) * scale


# -- CLIP ------------------------------------------------------------------------------------------

_START, _END = "<|startoftext|>", "<|endoftext|>"
_WORDS = (
    ("a photo of", "a painting of", "a close-up of", "an aerial view of", "a sketch of"),
    ("a small", "a rusty", "one bright red", "an old wooden", "a half-finished", "a shiny"),
    ("bicycle", "lighthouse", "teapot", "violin", "fishing boat", "telescope", "cat", "astronaut"),
    ("on a kitchen table", "beside a frozen lake", "in front of a brick wall", "under a bridge"),
    ("", ", soft evening light", ", shallow depth of field", ", 35 mm film, grain, high detail"),
)


def write_prompts(file: Path, *, count: int, seed: int = 0) -> None:
    """Write a prompt for each photograph, of the length that people give image generators."""
    draw = random.Random(seed)
    lines = []
    for i in range(count):
        *said, ending = (draw.choice(words) for words in _WORDS)
        lines.append(json.dumps({"id": f"{i:05d}", "prompt": " ".join(said) + ending}))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def write_clip(folder: Path, *, width: int = 512, layers: int = 12, seed: int = 0) -> None:
    """Write a CLIP of random weights as transformers saves one; by default a ViT-B/32.

    The tokenizer is the real one, which open_clip carries. Embeddings of both towers get a common
    direction, as those of trained ones have: no cosine is negative, so that whether scores are cut
    at zero one by one or after averaging makes no difference.
    """
    import torch
    from transformers import CLIPConfig, CLIPModel

    folder.mkdir(parents=True)
    tokens = _write_tokenizer(folder)
    ids = {"bos_token_id": tokens[_START], "eos_token_id": tokens[_END]}
    config = CLIPConfig(
        text_config={**_tower(width, layers), **ids, "pad_token_id": tokens[_END]},
        vision_config=_tower(width * 3 // 2, layers),
        projection_dim=width,
        initializer_factor=4.0,  # enough for embeddings to depend on the picture and the text
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = CLIPModel(config)
    with torch.no_grad():
        for norm, projection in (
            (model.vision_model.post_layernorm, model.visual_projection),
            (model.text_model.final_layer_norm, model.text_projection),
        ):
            # a layer norm's output has the mean of its bias, so this coordinate is the same always
            norm.bias.fill_(1.0)
            length = projection.weight.norm(dim=1).square().sum().sqrt()
            projection.weight[0] = 0.7 * length / norm.bias.numel()
    model.save_pretrained(folder)


def _tower(width: int, layers: int) -> dict[str, int]:
    return {
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_attention_heads": width // 64,
        "num_hidden_layers": layers,
    }


def _write_tokenizer(folder: Path) -> dict[str, int]:
    """Write CLIP's tokenizer and image preprocessing; return its vocabulary."""
    from open_clip import SimpleTokenizer

    known = SimpleTokenizer()
    tokens = dict(known.encoder)
    for name, number in ((_START, known.sot_token_id), (_END, known.eot_token_id)):
        tokens[name] = tokens.pop(known.decoder[number])  # open_clip calls the two otherwise
    merges = sorted(known.bpe_ranks, key=known.bpe_ranks.__getitem__)
    special = {"bos_token": _START, "eos_token": _END, "unk_token": _END, "pad_token": _END}
    files: dict[str, Any] = {
        "vocab.json": tokens,
        "tokenizer_config.json": {
            "tokenizer_class": "CLIPTokenizer",
            "model_max_length": 77,
            **special,
        },
        "preprocessor_config.json": {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": 224},
            "crop_size": {"height": 224, "width": 224},
            "resample": 3,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            "do_convert_rgb": True,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    pairs = "\n".join(" ".join(pair) for pair in merges)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{pairs}\n")
    return tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    photos = kinds.add_parser("photos")
    photos.add_argument("folder", type=Path)
    photos.add_argument("--count", type=int, default=384)
    photos.add_argument("--size", type=int, default=512)
    photos.add_argument("--seed", type=int, default=0)
    photos.add_argument("--blur", type=float, default=0.0)
    kinds.add_parser("weights").add_argument("file", type=Path)
    prompts = kinds.add_parser("prompts")
    prompts.add_argument("file", type=Path)
    prompts.add_argument("--count", type=int, default=384)
    clip = kinds.add_parser("clip")
    clip.add_argument("folder", type=Path)
    clip.add_argument("--width", type=int, default=512)
    clip.add_argument("--layers", type=int, default=12)
    tiles = kinds.add_parser("tiles")
    tiles.add_argument("folder", type=Path)
    tiles.add_argument("--count", type=int, default=100_000)
    tiles.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.kind == "tiles":
        write_shards(given.folder, count=given.count, seed=given.seed)
    elif given.kind == "weights":
        write_inception_weights(given.file)
    elif given.kind == "prompts":
        write_prompts(given.file, count=given.count)
    elif given.kind == "clip":
        write_clip(given.folder, width=given.width, layers=given.layers)
    else:
        write_photos(
            given.folder, count=given.count, size=given.size, seed=given.seed, blur=given.blur
        )


if __name__ == "__main__":
    main()
