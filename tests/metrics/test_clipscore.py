"""CLIPScore: conventions, parity with torchmetrics and open_clip on small random models, checks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import genmetrics as gm
from genmetrics.core.registry import create, parse
from genmetrics.core.sample import Sample
from genmetrics.metrics import clipscore

PROMPTS = ["a red cat", "a dog on a mat", "blue sky, 3 birds", "red", "the old man", "9 apples."]
CONTEXT, SIDE = 32, 32


@pytest.fixture(scope="module")
def pictures() -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    sizes = [(32, 32), (40, 64), (65, 33), (32, 90), (100, 80), (48, 48)]
    return [torch.randint(0, 256, (3, h, w), dtype=torch.uint8, generator=g) for h, w in sizes]


@pytest.fixture(scope="module")
def transformers_clip(tmp_path_factory) -> Path:
    """A small random CLIP and a tokenizer of letters, in the layout that transformers saves."""
    from transformers import CLIPConfig, CLIPModel

    folder = tmp_path_factory.mktemp("clip")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,"
    start, end = "<|startoftext|>", "<|endoftext|>"
    words = [*letters, *(f"{c}</w>" for c in letters), "re", "red</w>", start, end]
    tokens = {word: i for i, word in enumerate(words)}
    (folder / "vocab.json").write_text(json.dumps(tokens))
    (folder / "merges.txt").write_text("#version: 0.2\nr e\nre d</w>\n")
    special = {"bos_token": start, "eos_token": end, "unk_token": end, "pad_token": end}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "CLIPTokenizer", "model_max_length": CONTEXT, **special})
    )
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "image_processor_type": "CLIPImageProcessor",
                "size": {"shortest_edge": SIDE},
                "crop_size": {"height": SIDE, "width": SIDE},
                "resample": 3,
                "image_mean": [0.48, 0.46, 0.41],
                "image_std": [0.27, 0.26, 0.28],
                "do_convert_rgb": True,
            }
        )
    )
    tower = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    ids = {"bos_token_id": tokens[start], "eos_token_id": tokens[end], "pad_token_id": tokens[end]}
    config = CLIPConfig(
        text_config={
            **tower,
            **ids,
            "vocab_size": len(tokens),
            "max_position_embeddings": CONTEXT,
        },
        vision_config={**tower, "image_size": SIDE, "patch_size": 8},
        projection_dim=8,
    )
    _randomise(model := CLIPModel(config))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def open_clip_file(tmp_path_factory) -> tuple[str, Path]:
    """Name and checkpoint of a small random open_clip model."""
    import open_clip

    folder = tmp_path_factory.mktemp("open_clip")
    name = "genmetrics-tests-clipscore"
    config = {
        "embed_dim": 8,
        "quick_gelu": True,
        "vision_cfg": {"image_size": SIDE, "layers": 2, "width": 64, "patch_size": 8},
        "text_cfg": {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 32,
            "heads": 2,
            "layers": 2,
        },
    }
    (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder / f"{name}.json")
    model = open_clip.create_model(name)
    _randomise(model)
    path = folder / "checkpoint.pt"
    torch.save(model.state_dict(), path)
    return name, path


def _randomise(model: torch.nn.Module) -> None:
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.3 if parameter.ndim > 1 else 0.1
            parameter.copy_(torch.randn(parameter.shape, generator=g) * scale)


class _Plain:
    """Returns embeddings as tensors: torchmetrics 1.9 does not know what transformers 5 returns."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def __getattr__(self, name: str) -> object:
        return getattr(self.model, name)

    def to(self, device: object) -> _Plain:
        return self

    def get_image_features(self, *args: torch.Tensor) -> torch.Tensor:
        found = self.model.get_image_features(*args)
        return getattr(found, "pooler_output", found)

    def get_text_features(self, *args: torch.Tensor) -> torch.Tensor:
        found = self.model.get_text_features(*args)
        return getattr(found, "pooler_output", found)


def fake(cosines: list[float], truncated: list[int] | None = None) -> dict[str, dict]:
    """Features of images and texts at given angles."""
    c = np.asarray(cosines, dtype=np.float64)
    images = 3 * np.stack([np.ones_like(c), np.zeros_like(c)], axis=1)
    texts = 7 * np.stack([c, np.sqrt(1 - c * c)], axis=1)
    flags = np.asarray(truncated or [0] * len(c), dtype=np.float32)
    return {"image": {"embedding": images}, "text": {"embedding": texts, "truncated": flags}}


def samples(n: int, prompts: list[str] | None = None) -> list[Sample]:
    prompts = prompts or [f"prompt {i}" for i in range(n)]
    return [Sample(id=f"s_{i}", prompt=prompts[i]) for i in range(n)]


# -- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("convention", "expected"),
    [("hessel", [0.625, 0.0]), ("100", [25.0, 0.0]), ("cos", [0.25, -0.1])],
)
def test_scale_and_floor_of_each_convention(convention, expected):
    found = [clipscore.score(cosine, convention=convention) for cosine in (0.25, -0.1)]
    assert found == pytest.approx(expected, abs=1e-12)
    metric = gm.CLIPScore(convention)
    metric.update_features(samples(2), fake([0.25, -0.1]))
    result = metric.compute()
    assert list(result.per_sample.values()) == pytest.approx(expected, abs=1e-12)
    assert result.id == f"clipscore@{convention}"
    assert result.value == pytest.approx(sum(expected) / 2, abs=1e-12)


def test_public_values_of_the_rule():
    assert clipscore.score(0.6) == pytest.approx(1.5)
    assert clipscore.score(0.6, "100") == pytest.approx(60)
    assert clipscore.score(-0.2) == 0


def test_what_is_no_cosine_or_no_convention_is_refused():
    with pytest.raises(gm.InputError, match=r"25.0 is no cosine"):
        clipscore.score(25.0)
    with pytest.raises(gm.InputError, match="nan is no cosine"):
        clipscore.score(float("nan"))
    with pytest.raises(gm.UsageError, match="no convention 'hesel'.*did you mean 'hessel'"):
        clipscore.score(0.2, "hesel")  # type: ignore[arg-type]


def test_the_floor_is_on_each_sample_and_not_on_the_mean():
    metric = gm.CLIPScore("100")
    metric.update_features(samples(2), fake([0.3, -0.2]))
    assert metric.compute().value == pytest.approx(15)  # floored after averaging it would be 5


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6))
def test_scores_stay_within_bounds_whatever_the_rounding(cosines):
    for convention, (lo, hi) in {"hessel": (0, 2.5), "100": (0, 100), "cos": (-1, 1)}.items():
        metric = gm.CLIPScore(convention)
        metric.update_features(samples(len(cosines)), fake(cosines))
        assert all(lo <= value <= hi for value in metric.compute().per_sample.values())


# -- what runs by default --------------------------------------------------------------------------


def test_published_defaults_are_in_the_protocol():
    hessel = gm.CLIPScore().protocol.to_dict()
    assert hessel["metric"] == "clipscore@hessel"
    assert hessel["text"]["prefix"] == "A photo depicts "
    assert hessel["image"]["architecture"] == "ViT-B-32"
    assert hessel["image"]["quick_gelu"] is True
    assert (hessel["scale"], hessel["floor"]) == (2.5, True)
    hundred = gm.CLIPScore("100").protocol.to_dict()
    assert hundred["image"]["weights"] == "openai/clip-vit-large-patch14"
    assert hundred["text"]["prefix"] == ""
    assert (hundred["scale"], hundred["floor"]) == (100.0, True)
    assert gm.CLIPScore("cos").protocol.to_dict()["floor"] is False


def test_conventions_do_not_merge():
    with pytest.raises(gm.ProtocolMismatchError, match="scale"):
        gm.CLIPScore("cos").merge(gm.CLIPScore("hessel"))


# -- parity ----------------------------------------------------------------------------------------


def test_equals_torchmetrics_on_the_same_model(transformers_clip, pictures):
    from torchmetrics.multimodal import CLIPScore
    from transformers import CLIPModel, CLIPProcessor

    folder = str(transformers_clip)
    model = CLIPModel.from_pretrained(folder).eval()
    processor = CLIPProcessor.from_pretrained(folder)
    theirs = CLIPScore(model_name_or_path=lambda: (_Plain(model), processor))
    expected = []
    for image, prompt in zip(pictures, PROMPTS, strict=True):
        theirs.reset()
        theirs.update(image, prompt)
        expected.append(float(theirs.score))
    assert max(expected) > 10 > 0 > min(expected)  # scores, and something to floor

    cosines = gm.CLIPScore("cos", model=folder, device="cpu")
    cosines.update(pictures, prompts=PROMPTS)
    found = list(cosines.compute().per_sample.values())
    assert found == pytest.approx([value / 100 for value in expected], abs=1e-5)

    hundred = gm.CLIPScore("100", model=folder, device="cpu")
    hundred.update(pictures, prompts=PROMPTS)
    result = hundred.compute()
    floored = [max(value, 0.0) for value in expected]
    assert list(result.per_sample.values()) == pytest.approx(floored, rel=1e-5)
    assert result.value == pytest.approx(sum(floored) / len(floored), rel=1e-5)
    assert result.parts["n_truncated"] == 0


@pytest.mark.parametrize(("convention", "prefix"), [("cos", ""), ("hessel", "A photo depicts ")])
def test_equals_open_clip_itself(open_clip_file, pictures, convention, prefix):
    import open_clip
    from PIL import Image

    name, path = open_clip_file
    model, _, transform = open_clip.create_model_and_transforms(
        name, pretrained=str(path), weights_only=True
    )
    model.eval()
    tokenizer = open_clip.get_tokenizer(name)
    with torch.inference_mode():
        batch = [transform(Image.fromarray(p.permute(1, 2, 0).numpy())) for p in pictures]
        images = model.encode_image(torch.stack(batch))
        texts = model.encode_text(tokenizer([prefix + prompt for prompt in PROMPTS]))
    cosines = torch.nn.functional.cosine_similarity(images.double(), texts.double())
    assert cosines.abs().max() > 0.1
    expected = [clipscore.score(float(c), convention) for c in cosines]

    metric = gm.CLIPScore(convention, model=name, pretrained=str(path), device="cpu")
    metric.update(pictures, prompts=PROMPTS)
    assert list(metric.compute().per_sample.values()) == pytest.approx(expected, abs=1e-5)


def test_batches_merges_and_state_do_not_move_the_result(transformers_clip, pictures):
    def fresh() -> clipscore.CLIPScore:
        return gm.CLIPScore("cos", model=str(transformers_clip), device="cpu")

    ids = [f"r_{i}" for i in (10, 2, 1, 33, 4, 5)]
    whole = fresh()
    whole.update(pictures, prompts=PROMPTS, ids=ids)
    expected = whole.compute()
    left, right = fresh(), fresh()
    left.update(pictures[4:], prompts=PROMPTS[4:], ids=ids[4:])
    right.update(pictures[:4], prompts=PROMPTS[:4], ids=ids[:4])
    merged = left.merge(right).compute()
    assert (
        list(merged.per_sample)
        == list(expected.per_sample)
        == sorted(ids, key=lambda i: int(i[2:]))
    )
    assert merged.value == pytest.approx(expected.value, abs=1e-6)
    loaded = fresh()
    loaded.load_state_dict(whole.state_dict())
    assert loaded.compute() == expected


def test_the_registry_builds_each_convention(transformers_clip):
    request = parse([f"clipscore@100:model={transformers_clip},prefix=an image of "])[0]
    protocol = create(request, device="cpu").protocol.to_dict()
    assert protocol["metric"] == "clipscore@100"
    assert protocol["text"]["prefix"].startswith("an image of")


# -- prompts ---------------------------------------------------------------------------------------


def test_cut_prompts_are_counted_with_the_limit(transformers_clip, pictures):
    metric = gm.CLIPScore("cos", model=str(transformers_clip), device="cpu")
    metric.update(pictures[:2], prompts=["red " * CONTEXT, "red"], ids=["long", "short"])
    result = metric.compute()
    assert result.parts["n_truncated"] == 1
    assert (
        f"1 of 2 prompts were cut to the model's {CONTEXT} tokens (first: 'long')"
        in result.warnings
    )


def test_empty_prompts_are_refused_by_id():
    metric = gm.CLIPScore()
    given = samples(3, ["a dog", "", "  "])
    with pytest.raises(gm.InputError, match="2 of 3 prompts are empty: 's_1', 's_2'"):
        metric.update_features(given, fake([0.1, 0.2, 0.3]))
    with pytest.raises(gm.InputError, match="1 of 1 prompts are empty"):
        metric.update_features([Sample(id="x")], fake([0.1]))


def test_prompts_are_needed_one_an_image(pictures):
    with pytest.raises(gm.InputError, match="clipscore@hessel needs prompts="):
        gm.CLIPScore().update(pictures)
    with pytest.raises(gm.InputError, match="1 prompts for 6 images"):
        gm.CLIPScore().update(pictures, prompts=["a dog"])


# -- the check against swapped prompts -------------------------------------------------------------


def test_swapped_gives_mean_share_and_sign_test():
    found = clipscore.swapped([0.9, 0.8, 0.7, 0.6, 0.5], [0.1, 0.2, 0.8, 0.6, 0.1])
    assert found.difference == pytest.approx((0.8 + 0.6 - 0.1 + 0.0 + 0.4) / 5)
    assert (found.share, found.n) == (3 / 5, 5)
    assert found.p_value == pytest.approx(2 * (1 + 4) / 16)  # 3 of 4 that differ, both tails
    assert clipscore.swapped([1.0] * 10, [0.0] * 10).p_value == pytest.approx(2 / 1024)
    assert clipscore.swapped([0.5], [0.5]).p_value == 1.0


@pytest.mark.parametrize(
    ("scores", "others"), [([], []), ([1.0], [1.0, 2.0]), ([float("nan")], [1.0])]
)
def test_swapped_refuses_what_is_no_pairing(scores, others):
    with pytest.raises(gm.InputError):
        clipscore.swapped(scores, others)


def test_each_image_meets_the_next_prompt_that_differs():
    prompts = ["a", "a", "b", "c", "a"]
    assert clipscore._next_different(prompts).tolist() == [2, 2, 3, 4, 2]


def turned(angles: list[float], own: list[float]) -> dict[str, dict]:
    """Image i at an angle, its text ``own[i]`` further."""
    a, t = np.asarray(angles), np.asarray(angles) + np.asarray(own)
    images, texts = (np.stack([np.cos(x), np.sin(x)], axis=1) for x in (a, t))
    return {
        "image": {"embedding": images},
        "text": {"embedding": texts, "truncated": np.zeros(len(a), dtype=np.float32)},
    }


def test_a_run_with_matching_prompts_passes_and_a_shuffled_one_is_warned_of():
    n = 40
    angles = [2 * np.pi * i / n for i in range(n)]
    good, bad = gm.CLIPScore("cos"), gm.CLIPScore("cos")
    good.update_features(samples(n), turned(angles, [0.01] * n))
    result = good.compute()
    assert result.parts["swapped/share"] == 1
    assert result.parts["swapped/difference"] > 0
    assert result.parts["swapped/p"] < 1e-6
    assert result.warnings == ()
    assert good.swapped().n == n
    # every prompt belongs to the image before it
    bad.update_features(samples(n), turned(angles, [-2 * np.pi / n] * n))
    result = bad.compute()
    assert result.parts["swapped/share"] == 0
    assert "only 0% of 40 images fit their own prompt better" in result.warnings[0]


def test_one_prompt_cannot_be_swapped():
    metric = gm.CLIPScore("cos")
    metric.update_features(samples(2, ["a", "a"]), fake([0.1, 0.2]))
    assert "swapped/share" not in metric.compute().parts
    with pytest.raises(gm.TooFewSamplesError, match="2 different prompts"):
        metric.swapped()
