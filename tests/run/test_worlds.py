"""The same runs in worlds of one to four ranks: every rank of every world gets the same bits.

Retold here: samples that a sampler padded were counted, a full last batch was dropped, nested
records were flattened, a rank without data waited for ever, several ranks aggregated otherwise than
one. See also ``tests/integrations/test_cases.py``, on joining metrics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.extractors.conftest import clip_folder  # noqa: F401  (a fixture)
from tests.run.world_target import launch

WORLDS = (1, 2, 3, 4)
TOYS = ["toy-distance", "toy-brightness"]
LITE = ["fd-lite", "kd-lite", "vendi@lite", "authpct@lite", "prdc-lite:k=1"]
INCEPTION = ["fid@clean", "kid@clean", "prdc@clean:k=1", "is@clean:splits=2", "vendi@tf1", "authpct@tf1"]
COUNTS = (*range(1, 14), 97)
GREYS = (10, 20, 30, 40, 100)


def paint(folder: Path, count: int, seed: int) -> Path:
    """Write small pictures of different sizes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for i in range(count):
        height, width = 16 + i % 5, 16 + i % 3
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png", compress_level=1)
    return folder


def paint_grey(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), (level,) * 3).save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, counterparts, prompts, and a small DINOv2."""
    folder = tmp_path_factory.mktemp("worlds")
    paint(folder / "gen", 97, 0)
    paint(folder / "ref", 97, 1)
    words = ["a cat", "a dog on a mat", "", "x" * 99]
    rows = [{"id": str(i), "prompt": f"{words[i % 4]} {i % 6}"} for i in range(97)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for i, level in enumerate(GREYS):
        paint_grey(folder / "grey" / f"{i}.png", level)
    for i, level in enumerate((20, 40, 90, 50, 50, 50)):
        paint_grey(folder / "videos" / "ab"[i // 3] / f"{i % 3}.png", level)
    for i in range(512):
        paint_grey(folder / "many" / f"{i}.png", i % 251)
    _write_geneval(folder)
    _write_dinov2(folder / "dinov2")
    return folder


def _write_geneval(folder: Path) -> None:
    """Nine prompts with one image each, with lists of boxes of different lengths."""
    records = []
    for i in range(9):
        place = folder / "geneval" / f"{i:05d}"
        paint_grey(place / "samples" / "0000.png", i)
        tag = ["single_object", "counting"][i % 2]
        spec = {"tag": tag, "include": [{"class": "cat", "count": i // 2}], "prompt": f"{i} cats"}
        (place / "metadata.jsonl").write_text(json.dumps(spec))
        boxes = [
            {"label": "cat", "box": [j, j, j + 5.5, j + i], "score": 0.95} for j in range(i % 5)
        ]
        records.append({"id": f"{i:05d}/0000", "detections": boxes})
    (folder / "detections.jsonl").write_text("\n".join(map(json.dumps, records)))


def _write_dinov2(folder: Path) -> None:
    import torch
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=24, num_hidden_layers=1, num_attention_heads=2, mlp_ratio=2, patch_size=14,
        image_size=224,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Dinov2Model(config).save_pretrained(folder)


def run(folder: Path, metrics: list[str], **arguments: Any) -> dict[str, Any]:
    sides = {"generated": str(folder / "gen"), "reference": str(folder / "ref")}
    return {**sides, "metrics": metrics, "batch_size": 4, **arguments}


def toy_runs(folder: Path) -> dict[str, dict[str, Any]]:
    """What costs next to nothing."""
    runs = {f"toys of {n}": run(folder, TOYS, limit=n) for n in COUNTS}
    for batch in (1, 16):
        for n in (5, 13, 97):
            runs[f"toys of {n} by {batch}"] = run(folder, TOYS, limit=n, batch_size=batch)
    for name, metrics, count, batch in (
        ("grey", ["toy-brightness"], None, 2),
        ("videos", ["toy-videos"], None, 4),
        ("many", ["toy-brightness"], 512, 16),
        ("many of 99", ["toy-brightness"], 99, 16),
    ):
        source = str(folder / name.split()[0])
        runs[name] = {
            "generated": source, "recursive": True, "metrics": metrics, "batch_size": batch,
            "limit": count,
        }  # fmt: skip
    return runs


def model_runs(folder: Path, clip: Path, inception: Path) -> dict[str, dict[str, Any]]:
    """Every metric of the foundation."""
    pairs = {"pair_with": str(folder / "ref")}
    texts = {"prompts": str(folder / "prompts.jsonl")}
    towers = [f"{name}:model={clip}" for name in ("cmmd", "fd-clip", "vendi@clip")]
    towers += [f"fd-dinov2:model={folder / 'dinov2'}", f"clipscore:model={clip}"]
    geneval = {
        "generated": str(folder / "geneval"), "batch_size": 5,
        "metrics": [f"geneval:detections={folder / 'detections.jsonl'}"],
    }  # fmt: skip
    runs = {f"geneval of {n}": {**geneval, "limit": n} for n in (1, 3, 9)}
    one = ["psnr", "ssim", "vendi@lite", f"clipscore:model={clip}"]
    runs["models of 1"] = run(folder, one, limit=1, **pairs, **texts)
    runs["sets of 1"] = run(folder, [*LITE[:2], *towers[:2]], limit=1)
    every = ["psnr", "ssim", *LITE, *towers]
    for n, batch in ((2, 4), (3, 4), (13, 1), (13, 4), (13, 16)):
        runs[f"models of {n} by {batch}"] = run(
            folder, every, limit=n, batch_size=batch, **pairs, **texts
        )
    runs["models of 97"] = run(folder, ["psnr", "ssim", *towers], limit=97, **pairs, **texts)
    runs["inception of 5"] = run(
        folder, INCEPTION, limit=5, weights={"inception-2015-12-05": str(inception)}
    )
    return runs


@pytest.fixture(scope="module")
def worlds(
    folder: Path,
    clip_folder: Path,  # noqa: F811
    inception_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[int, list[dict[str, Any]]]:
    """What each rank of each world got: every run in one launch a world."""
    runs = {**toy_runs(folder), **model_runs(folder, clip_folder, inception_file)}
    out = tmp_path_factory.mktemp("ranks")
    return {world: launch(world, runs, out) for world in WORLDS}


@pytest.mark.slow
def test_ranks(worlds):
    alone = worlds[1][0]
    for name, expected in alone.items():
        bad = []
        for world, ranks in worlds.items():
            for r, got in enumerate(ranks):
                if got[name] != expected:
                    bad.append((world, r))
        print(name, "BAD" if bad else "ok", bad, str(expected)[:100] if "error" in expected else {k: v["said"] for k,v in expected["metrics"].items()})
