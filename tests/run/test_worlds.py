"""The same runs in worlds of one to four ranks: every rank of every world gets the same bits.

Retold here: samples that a sampler padded were counted, a full last batch was dropped, nested
records were flattened, a rank without data waited for ever, several ranks aggregated otherwise than
one. See also ``tests/integrations/test_cases.py``, on metrics that are joined.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import genmetrics as gm
from genmetrics.run.store import FeatureStore
from genmetrics.samples.sources import read_samples
from tests.extractors.conftest import clip_folder  # noqa: F401  (a fixture)
from tests.run.world_target import start

pytestmark = pytest.mark.slow

WORLDS = (1, 2, 3, 4)
COUNTS = (*range(1, 14), 97)
TOYS = ["toy-distance", "toy-brightness"]
LITE = ["fd-lite", "kd-lite", "vendi@lite", "authpct@lite", "prdc-lite:k=1"]
INCEPTION = ["fid@clean", "kid@clean", "prdc@clean:k=1", "is@clean:splits=2", "vendi@clean"]
GREYS = (10, 20, 30, 40, 100)
FRAMES = (20, 40, 90, 50, 50, 50)
MANY = 512

Got = dict[str, Any]


def paint(folder: Path, count: int, seed: int) -> None:
    """Write small pictures of different sizes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for i in range(count):
        pixels = rng.integers(0, 256, (16 + i % 5, 16 + i % 3, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png", compress_level=1)


def paint_grey(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), (level,) * 3).save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, their counterparts and prompts, and a small DINOv2."""
    folder = tmp_path_factory.mktemp("worlds")
    paint(folder / "gen", 97, 0)
    paint(folder / "ref", 97, 1)
    words = ["a cat", "a dog on a mat", "x" * 99]
    rows = [{"id": str(i), "prompt": f"{words[i % 3]} {i % 4}"} for i in range(97)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for i, level in enumerate(GREYS):
        paint_grey(folder / "grey" / f"{i}.png", level)
    for i, level in enumerate(FRAMES):
        paint_grey(folder / "videos" / "ab"[i // 3] / f"{i % 3}.png", level)
    for i in range(MANY):
        paint_grey(folder / "many" / f"{i}.png", 1 + i % 251)
    _write_geneval(folder)
    _write_dinov2(folder / "dinov2")
    return folder


def _write_geneval(folder: Path) -> None:
    """Nine prompts with an image each, and lists of boxes of different lengths."""
    records = []
    for i in range(9):
        place = folder / "geneval" / f"{i:05d}"
        paint_grey(place / "samples" / "0000.png", 1 + i)
        tag = ["single_object", "counting"][i % 2]
        spec = {"tag": tag, "include": [{"class": "cat", "count": i // 2}], "prompt": f"{i} cats"}
        (place / "metadata.jsonl").write_text(json.dumps(spec))
        records.append({"id": f"{i:05d}/0000", "detections": boxes(i)})
    (folder / "detections.jsonl").write_text("\n".join(map(json.dumps, records)))


def boxes(i: int) -> list[dict[str, Any]]:
    return [{"label": "cat", "box": [j, j, j + 5.5, j + 7], "score": 0.95} for j in range(i % 5)]


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


def sets(folder: Path, metrics: list[str], limit: int, batch: int = 4, **more: Any) -> Got:
    places = {"generated": str(folder / "gen"), "reference": str(folder / "ref")}
    return {**places, "metrics": metrics, "limit": limit, "batch_size": batch, **more}


def plain(source: Path, metric: str, batch: int, **more: Any) -> Got:
    return {"generated": str(source), "metrics": [metric], "batch_size": batch, **more}


def toy_runs(folder: Path) -> dict[str, Got]:
    runs = {f"toys of {n} by {b}": sets(folder, TOYS, n, b) for n in (5, 97) for b in (1, 16)}
    runs |= {f"toys of {n} by 4": sets(folder, TOYS, n) for n in COUNTS}
    runs |= {f"grey by {b}": plain(folder / "grey", "toy-brightness", b) for b in range(1, 6)}
    runs["videos"] = plain(folder / "videos", "toy-videos", 4, recursive=True)
    for n in (99, MANY):
        runs[f"many of {n}"] = plain(folder / "many", "toy-brightness", 16, limit=n)
    return runs


def model_runs(folder: Path, clip: Path, inception: Path) -> dict[str, Got]:
    """Every metric of the foundation, as far as it can be with so few images."""
    beside = {"pair_with": str(folder / "ref"), "prompts": str(folder / "prompts.jsonl")}
    towers = [f"{name}:model={clip}" for name in ("cmmd", "fd-clip", "vendi@clip", "clipscore@cos")]
    dinov2 = [f"fd-dinov2:model={folder / 'dinov2'}"]
    every = ["psnr", "ssim", *LITE, *towers, *dinov2]
    geneval = f"geneval:detections={folder / 'detections.jsonl'}"
    runs = {f"geneval of {n}": plain(folder / "geneval", geneval, 5, limit=n) for n in (1, 3)}
    runs["sets of 1"] = sets(folder, [*LITE, *towers, *dinov2], 1, **beside)
    runs["models of 1"] = sets(folder, ["psnr", "ssim", *towers[2:]], 1, **beside)
    for n, batch in ((2, 4), (3, 4), (5, 1), (5, 4), (5, 16), (13, 4)):
        runs[f"models of {n} by {batch}"] = sets(folder, every, n, batch, **beside)
    runs["models of 97"] = sets(folder, ["psnr", "ssim", *towers], 97, **beside)
    weights = {"inception-2015-12-05": str(inception)}
    runs["inception of 5"] = sets(folder, INCEPTION, 5, weights=weights)
    return runs


def stored_runs(folder: Path, world: int) -> dict[str, Got]:
    """One store that is begun by two ranks, finished by three and read by one; and apart stores."""
    stored = {"cache": str(folder / "store")}
    geneval = f"geneval:detections={folder / 'detections.jsonl'}"
    apart = {"cache": str(folder / f"apart-{world}-{{rank}}")}
    return {
        "begun" if world == 2 else "stored": sets(folder, TOYS, 21 if world == 2 else 40, **stored),
        "unstored": sets(folder, TOYS, 40),
        "geneval of 9": plain(folder / "geneval", geneval, 5, **apart),
    }


@pytest.fixture(scope="module")
def worlds(
    folder: Path,
    clip_folder: Path,  # noqa: F811
    inception_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[int, list[dict[str, Got]]]:
    """What each rank of each world got. No world may take longer than a minute."""
    runs = {**toy_runs(folder), **model_runs(folder, clip_folder, inception_file)}
    out = tmp_path_factory.mktemp("ranks")
    return start([(w, {**stored_runs(folder, w), **runs}) for w in (2, 3, 1, 4)], out)


def value(got: Got, metric: str) -> float:
    return float.fromhex(got["metrics"][metric]["value"])


@pytest.mark.parametrize("world", WORLDS[1:])
def test_every_rank_of_every_world_gets_the_bits_of_one_process(worlds, world):
    (alone,) = worlds[1]
    for name in alone.keys() - {"stored"}:
        for rank, got in enumerate(worlds[world]):
            assert got[name] == alone[name], f"{name}, rank {rank}"


def test_nothing_is_refused_but_sets_of_one(worlds):
    """Too few images are one and the same line in every world."""
    (alone,) = worlds[1]
    refused = {name: got["error"] for name, got in alone.items() if "error" in got}
    assert refused == {
        "sets of 1": "TooFewSamplesError: fd-lite has 1 generated images, needs at least 2"
    }
    said = [
        (name, metric, result["said"])
        for name, got in alone.items()
        for metric, result in got.get("metrics", {}).items()
    ]
    assert [line for line in said if line[2][0] != "ok"] == []
    assert {metric for _, metric, _ in said} >= {
        "psnr", "ssim@wang", "fd-lite", "kd-lite", "prdc-lite", "vendi@lite", "authpct@lite",
        "clipscore@cos", "cmmd", "fd-clip", "fd-dinov2", "vendi@clip", "geneval", "fid@clean",
        "kid@clean", "prdc@clean", "is@clean", "vendi@clean",
    }  # fmt: skip


def test_the_samples_seen_are_the_samples_given(worlds):
    for ranks in worlds.values():
        for got in ranks:
            for n in COUNTS:
                names = [str(i) for i in range(n)]
                run = got[f"toys of {n} by 4"]
                assert run["samples"] == names
                assert run["work"] == [2 * n, 0]
                for metric in run["metrics"].values():
                    assert [id_ for id_, _ in metric["per sample"]] == names


@pytest.mark.parametrize("stem", ["toys of 5", "toys of 97", "models of 5"])
def test_the_batch_size_moves_the_last_digits_at_most(worlds, stem):
    """Values to 1e-6; interval, parts and scores to 5e-6 of the largest, being differences."""
    (alone,) = worlds[1]
    expected = alone[f"{stem} by 4"]["metrics"]
    for batch in (1, 16):
        for name, got in alone[f"{stem} by {batch}"]["metrics"].items():
            assert got["said"] == expected[name]["said"]
            found, wanted = numbers(got), numbers(expected[name])
            assert found[0] == pytest.approx(wanted[0], rel=1e-6), name
            assert found == pytest.approx(wanted, rel=1e-6, abs=5e-6 * max(map(abs, wanted)))


def numbers(metric: Got) -> list[float]:
    """The value and then every other number of a metric."""
    parts = [metric["parts"][name] for name in sorted(metric["parts"])]
    scores = [score for _, score in metric["per sample"] or []]
    found = [metric["value"], *(metric["interval"] or []), *parts, *scores]
    return [float.fromhex(number) for number in found]


def test_five_scores_on_any_number_of_ranks_are_five_scores(worlds):
    """A sampler that pads to an even number counted the first one twice: 35 instead of 40."""
    for ranks in worlds.values():
        for batch in range(1, 6):
            got = ranks[-1][f"grey by {batch}"]
            assert got["metrics"]["toy-brightness"]["n"] == [5, 0]
            assert value(got, "toy-brightness") == np.mean(GREYS) == 40
            assert got["samples"] == list("01234")


@pytest.mark.parametrize("n", [97, 99, MANY])
def test_a_full_last_batch_is_kept(worlds, n):
    name = {97: "toys of 97 by 16"}.get(n, f"many of {n}")
    for ranks in worlds.values():
        for got in ranks:
            assert got[name]["metrics"]["toy-brightness"]["n"][0] == n
            assert got[name]["samples"] == [str(i) for i in range(n)]


def test_one_rank_and_many_aggregate_alike(worlds):
    """A path for several ranks took each video's last frame only: 70 instead of 50."""
    for ranks in worlds.values():
        for got in ranks:
            assert value(got["videos"], "toy-videos") == pytest.approx(50, abs=1e-12)
            scores = got["videos"]["metrics"]["toy-videos"]["per sample"]
            assert [float.fromhex(score) for _, score in scores] == list(FRAMES)


def test_texts_and_nested_lists_travel_as_they_are(worlds, folder):
    """Nine records of id, prompt and lists of boxes of different lengths, five a batch.

    Every rank has a store of its own, so what the others found travels to that of rank 0.
    """
    samples = read_samples(folder / "geneval")
    metric = gm.GenEval(detections=str(folder / "detections.jsonl"))
    spec = metric.extractors["detections"]
    keys = [sample.digest(spec.inputs) for sample in samples]
    assert [sample.prompt for sample in samples] == [f"{i} cats" for i in range(9)]
    for world, ranks in worlds.items():
        assert ranks[0]["geneval of 9"]["samples"] == [f"{i:05d}/0000" for i in range(9)]
        stores = [FeatureStore(folder / f"apart-{world}-{rank}") for rank in range(world)]
        found = stores[0].read(spec, keys)["detections"]
        assert found == [boxes(i) for i in range(9)]
        having = [(store.known(spec).having(keys), keys) for store in stores[1:]]
        computed = Counter(
            key for held, of in having for key, here in zip(of, held, strict=True) if here
        )
        assert max(computed.values(), default=1) == 1  # each by one rank


def test_a_store_is_finished_by_any_world(worlds, folder):
    """Begun by two ranks, finished by three; then one and four have nothing left to do."""
    results = {}
    for world, ranks in worlds.items():
        got = ranks[0]["begun" if world == 2 else "stored"]
        results[world] = got["metrics"], got["work"]
    assert [results[world][1] for world in (2, 3, 1, 4)] == [[42, 0], [38, 42], [0, 80], [0, 80]]
    for world in (3, 1, 4):
        assert results[world][0] == worlds[1][0]["unstored"]["metrics"]
    (usage,) = FeatureStore(folder / "store").usage()
    assert usage.rows == 80  # none twice
