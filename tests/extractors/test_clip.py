"""CLIP embeddings against open_clip and transformers called directly, on the same weights."""

from __future__ import annotations

import json
import shutil
import string
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from genmetrics.core.batching import Batches
from genmetrics.core.errors import FeatureError, UsageError, WeightsError
from genmetrics.core.extractor import Extractor
from genmetrics.core.sample import Item
from genmetrics.extractors import _clip_source
from genmetrics.extractors._clip_models import unwrap
from genmetrics.extractors.clip import ClipImageSpec, ClipTextSpec
from tests.extractors.conftest import OPEN_CLIP, write_clip
from tests.extractors.helpers import run

PROMPTS = ["a red cube", "two dogs, one cat and a very long rest of the sentence " * 3, "x"]
TEXTS = [Item(id=str(i), prompt=prompt) for i, prompt in enumerate(PROMPTS)]


def picture(item: Item) -> Image.Image:
    assert item.image is not None
    return Image.fromarray(item.image.permute(1, 2, 0).contiguous().numpy())


def open_clip_specs(path: Path, **options: Any) -> tuple[ClipImageSpec, ClipTextSpec]:
    return (
        ClipImageSpec.create(model=OPEN_CLIP, pretrained=str(path), **options),
        ClipTextSpec.create(model=OPEN_CLIP, pretrained=str(path), **options),
    )


# -- open_clip -------------------------------------------------------------------------------------


@pytest.mark.parametrize("quick_gelu", [False, True])
def test_open_clip_called_directly(
    quick_gelu: bool, open_clip_file: Path, items: list[Item]
) -> None:
    import open_clip

    model, _, preprocess = open_clip.create_model_and_transforms(
        OPEN_CLIP, pretrained=str(open_clip_file), force_quick_gelu=quick_gelu
    )
    tokenizer = open_clip.get_tokenizer(OPEN_CLIP)
    model.eval().requires_grad_(False)  # parameters with gradients take another kernel (1e-6)
    with torch.no_grad():
        pixels = torch.stack([preprocess(picture(item)) for item in items])
        images = model.encode_image(pixels)
        texts = model.encode_text(tokenizer(PROMPTS))
    image_spec, text_spec = (
        replace(spec, quick_gelu=quick_gelu) for spec in open_clip_specs(open_clip_file)
    )
    assert np.array_equal(run(image_spec.build("cpu"), items)["embedding"], images)
    mine = run(text_spec.build("cpu"), TEXTS)
    assert np.array_equal(mine["embedding"], texts)
    assert mine["truncated"].tolist() == [0, 1, 0]


def test_activation_moves_embeddings_and_fingerprint(
    open_clip_file: Path, items: list[Item]
) -> None:
    plain, _ = open_clip_specs(open_clip_file)
    quick = replace(plain, quick_gelu=True)
    assert plain.fingerprint != quick.fingerprint
    a, b = (run(spec.build("cpu"), items[:1])["embedding"] for spec in (plain, quick))
    assert not np.allclose(a, b, rtol=1e-4)


def test_the_openai_tag_means_quick_gelu() -> None:
    """The plain configuration with OpenAI's weights only warned, and every score shifted."""
    for name in ("ViT-B-32", "ViT-B/32", "ViT-B-32-quickgelu"):
        spec = ClipImageSpec.create(model=name, pretrained="openai")
        assert spec.quick_gelu
        assert spec.weights == "openai-clip-vit-b-32"
        assert spec.sha256.startswith("40d365715913c9da")
    assert not ClipImageSpec.create(model="ViT-B-32", pretrained="laion2b_s34b_b79k").quick_gelu


def test_a_name_that_contradicts_the_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clip_source, "_tag", lambda model, tag: {"hf_hub": "a/b/", "url": ""})
    with pytest.raises(UsageError, match="QuickGELU was asked on by the model's name and off by"):
        ClipImageSpec.create(model="ViT-B-32-quickgelu", pretrained="of_gelu")


def test_size_and_context_come_from_the_model(open_clip_file: Path) -> None:
    image, text = open_clip_specs(open_clip_file)
    assert (image.size, text.context_length) == (96, 20)
    large = ClipImageSpec.create(model="ViT-L-14-336", pretrained="openai")
    assert (large.size, large.weights) == (336, "openai-clip-vit-l-14-336px")
    assert large.resize == "short_side_crop"


def test_checkpoints_of_openai_and_of_parallel_training(
    open_clip_file: Path, items: list[Item], tmp_path: Path
) -> None:
    state = torch.load(open_clip_file, weights_only=True)
    extras = {"input_resolution": torch.tensor(96), "transformer.attn_mask": torch.zeros(2, 2)}
    torch.save({**state, **extras}, tmp_path / "openai.pt")
    torch.save({f"module.{key}": value for key, value in state.items()}, tmp_path / "parallel.pt")
    expected = run(open_clip_specs(open_clip_file)[0].build("cpu"), items[:1])["embedding"]
    for name in ("openai.pt", "parallel.pt"):
        spec = ClipImageSpec.create(model=OPEN_CLIP, pretrained=str(tmp_path / name))
        assert np.array_equal(run(spec.build("cpu"), items[:1])["embedding"], expected)


def test_half_precision_checkpoint_computes_in_float32(
    open_clip_file: Path, items: list[Item], tmp_path: Path
) -> None:
    state = torch.load(open_clip_file, weights_only=True)
    half = {name: value.half() for name, value in state.items()}
    torch.save(half, tmp_path / "half.pt")
    torch.save({name: value.float() for name, value in half.items()}, tmp_path / "full.pt")
    a, b = (
        run(
            ClipImageSpec.create(model=OPEN_CLIP, pretrained=str(tmp_path / name)).build("cpu"),
            items[:2],
        )["embedding"]
        for name in ("half.pt", "full.pt")
    )
    assert a.dtype == np.float32
    assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "ViT-B-32"}, "pass pretrained=TAG"),
        ({"model": "ViT-B-23", "pretrained": "openai"}, "did you mean 'ViT-"),
        ({"model": "ViT-B-32", "pretrained": "laion2b_s34b_b97k"}, "'laion2b_s34b_b79k'"),
        ({"model": "ViT-B-32", "pretrained": "openai", "resize": "crop"}, "resize 'crop'"),
        ({"model": "MobileCLIP-S1", "pretrained": "datacompdr"}, "bilinear"),
    ],
)
def test_bad_names(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ClipImageSpec.create(**options)


def test_text_towers_that_need_more_files_are_refused() -> None:
    with pytest.raises(UsageError, match="tokenises in its own way"):
        ClipTextSpec.create(model="ViT-B-16-SigLIP", pretrained="webli")


def test_weights_that_are_not_here_are_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENMETRICS_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for options, fetch in (
        ({"model": "ViT-B-32", "pretrained": "openai"}, "openai-clip-vit-b-32"),
        (
            {"model": "ViT-B-32", "pretrained": "laion2b_s34b_b79k"},
            "laion/CLIP-ViT-B-32-laion2B-s34B-b79K@main",
        ),
        ({"model": "openai/clip-vit-base-patch32"}, "openai/clip-vit-base-patch32@3d74acf"),
    ):
        for kind in (ClipImageSpec, ClipTextSpec):
            with pytest.raises(WeightsError, match=f"weights fetch {fetch}"):
                kind.create(**options).check()


def test_another_architectures_file_is_refused(open_clip_file: Path) -> None:
    spec = ClipImageSpec.create(model="ViT-S-32-alt", pretrained=str(open_clip_file))
    with pytest.raises(WeightsError, match=r"open_clip\.pt: keys .* missing"):
        spec.build("cpu")


# -- transformers ----------------------------------------------------------------------------------


def transformers_specs(folder: Path, **options: Any) -> tuple[ClipImageSpec, ClipTextSpec]:
    return (
        ClipImageSpec.create(model=str(folder)),
        ClipTextSpec.create(model=str(folder), **options),
    )


def test_transformers_called_directly(clip_folder: Path, items: list[Item]) -> None:
    from transformers import AutoTokenizer, CLIPModel

    processors = pytest.importorskip("transformers.models.clip.image_processing_pil_clip")
    model = CLIPModel.from_pretrained(clip_folder).float().eval()
    processor = processors.CLIPImageProcessorPil.from_pretrained(clip_folder)
    pixels = processor([picture(item) for item in items], return_tensors="pt")
    tokenizer = AutoTokenizer.from_pretrained(clip_folder)
    tokens = tokenizer(
        PROMPTS, padding="max_length", max_length=16, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        images = model.get_image_features(**pixels).pooler_output
        texts = model.get_text_features(**tokens).pooler_output
    image_spec, text_spec = transformers_specs(clip_folder)
    assert np.allclose(run(image_spec.build("cpu"), items)["embedding"], images, atol=2e-6)
    mine = run(text_spec.build("cpu"), TEXTS)
    assert np.array_equal(mine["embedding"], texts)
    assert mine["truncated"].tolist() == [0, 1, 0]


def test_texts_are_padded_no_further_than_needed(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, CLIPModel

    folder = write_clip(tmp_path / "clip", context=40)
    extractor: Any = transformers_specs(folder)[1].build("cpu")
    lengths = [3, 29, 13, 38, 60, 14, 1]
    prompts = [" ".join((string.ascii_lowercase * 3)[:n]) for n in lengths]
    texts = [Item(id=str(n), prompt=prompt) for n, prompt in zip(lengths, prompts, strict=True)]
    # 16, 32 or all 40, one pad at least where there is room: 14 letters with both ends are 16
    padded = [len(extractor.prepare(text).ids) for text in texts]
    assert padded == [16, 32, 16, 40, 40, 32, 16]

    def embed(texts: list[Item]) -> Any:
        return Batches(extractor, 8).run([extractor.prepare(text) for text in texts])

    mine = embed(texts)
    tokens = AutoTokenizer.from_pretrained(folder)(
        prompts, padding="max_length", max_length=40, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        whole = CLIPModel.from_pretrained(folder).float().eval().get_text_features(**tokens)
    np.testing.assert_allclose(mine["embedding"], unwrap(whole), rtol=1e-5, atol=1e-6)
    assert mine["truncated"].tolist() == [0, 0, 0, 0, 1, 0, 0]
    for i, text in enumerate(texts):  # companions and order move no bit
        assert np.array_equal(embed([text])["embedding"][0], mine["embedding"][i])
    assert np.array_equal(embed(texts[::-1])["embedding"][::-1], mine["embedding"])


def test_published_preprocessing_is_read(clip_folder: Path, tmp_path: Path) -> None:
    image, text = transformers_specs(clip_folder)
    assert (image.size, text.context_length) == (64, 16)
    assert (image.mean, image.std) == ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    assert (image.resize, image.quick_gelu) == ("short_side_crop_floor", True)
    other = tmp_path / "clip"
    shutil.copytree(clip_folder, other)
    (other / "preprocessor_config.json").write_text(json.dumps({"resample": 2}))
    with pytest.raises(UsageError, match="only 3"):
        ClipImageSpec.create(model=str(other))


def test_a_copy_elsewhere_has_the_same_fingerprint(clip_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(clip_folder, tmp_path / "copy")
    first, second = transformers_specs(clip_folder)[0], transformers_specs(tmp_path / "copy")[0]
    assert first.fingerprint == second.fingerprint
    replaced = ClipImageSpec.create(
        model="openai/clip-vit-base-patch32",
        weights={"openai/clip-vit-base-patch32": tmp_path / "copy"},
    )
    assert replaced.sha256 == first.sha256


def test_getters_that_return_objects_or_tensors() -> None:
    """After an upgrade the feature getters returned an output object and the norm call failed."""
    from genmetrics.extractors._clip_models import ImageTower, LoadedClip, TextTower

    rows = torch.ones(2, 3)

    class Model(nn.Module):
        def __init__(self, answer: Any) -> None:
            super().__init__()
            self.answer = answer

        def get_image_features(self, pixel_values: Any) -> Any:
            return self.answer

        def get_text_features(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.answer

    for answer in (rows, SimpleNamespace(pooler_output=rows)):
        clip = LoadedClip("transformers", Model(answer))
        assert ImageTower(clip)(rows)["embedding"] is rows
        assert TextTower(clip)(rows, rows)["embedding"] is rows
    with pytest.raises(FeatureError, match="gave a NoneType"):
        ImageTower(LoadedClip("transformers", Model(None)))(rows)


def test_tensors_that_are_missing_are_not_drawn_at_random(
    clip_folder: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    other = tmp_path / "clip"
    shutil.copytree(clip_folder, other)
    state = load_file(other / "model.safetensors")
    del state["visual_projection.weight"]
    save_file(state, other / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError, match=r"lacks 1 tensors of a CLIPModel \(visual_proj"):
        ClipImageSpec.create(model=str(other)).build("cpu")


def test_other_models_and_missing_files_are_refused(clip_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(clip_folder, other)
    (other / "vocab.json").unlink()
    for file in other.glob("tokenizer*.json"):
        file.unlink()
    ClipImageSpec.create(model=str(other)).check()
    with pytest.raises(WeightsError, match=r"tokenizer\.json"):
        ClipTextSpec.create(model=str(other)).check()
    (other / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(UsageError, match="type 'bert'"):
        ClipImageSpec.create(model=str(other))


# -- both ------------------------------------------------------------------------------------------


@pytest.fixture(params=["open_clip", "transformers"])
def both(
    request: pytest.FixtureRequest, open_clip_file: Path, clip_folder: Path
) -> tuple[ClipImageSpec, ClipTextSpec]:
    if request.param == "open_clip":
        return open_clip_specs(open_clip_file)
    return transformers_specs(clip_folder)


def test_cut_texts_keep_their_end_token(both: tuple[ClipImageSpec, ClipTextSpec]) -> None:
    """A cut that dropped the end token read the embedding at a place without meaning."""
    extractor: Any = both[1].build("cpu")
    length = both[1].context_length
    letters = string.ascii_lowercase
    short, long = (
        extractor.prepare(Item(id="x", prompt=" ".join(letters[:n]))) for n in (length - 2, 26)
    )
    assert not short.truncated
    assert long.truncated
    assert len(short.ids) == len(long.ids) == length
    assert torch.equal(short.ids, long.ids)  # the same start, content and end
    assert short.mask.all()
    assert short.ids[-1] == extractor.prepare(Item(id="y", prompt="a")).ids[2]


def test_open_clips_texts_have_the_whole_context(open_clip_file: Path) -> None:
    extractor: Any = open_clip_specs(open_clip_file)[1].build("cpu")
    assert len(extractor.prepare(Item(id="x", prompt="a")).ids) == 20


def test_prefix(both: tuple[ClipImageSpec, ClipTextSpec], open_clip_file: Path) -> None:
    plain = ClipTextSpec.create(model=OPEN_CLIP, pretrained=str(open_clip_file))
    prefixed = ClipTextSpec.create(
        model=OPEN_CLIP, pretrained=str(open_clip_file), prefix="A photo depicts "
    )
    assert plain.fingerprint != prefixed.fingerprint
    a = run(prefixed.build("cpu"), [Item(id="x", prompt="a dog")])["embedding"]
    b = run(plain.build("cpu"), [Item(id="x", prompt="A photo depicts a dog")])["embedding"]
    assert np.array_equal(a, b)


def test_companions_and_position_do_not_matter(
    both: tuple[ClipImageSpec, ClipTextSpec], items: list[Item]
) -> None:
    for spec, samples in zip(both, (items[:3], TEXTS), strict=True):
        extractor = spec.build("cpu")
        a = run(extractor, samples)["embedding"]
        b = run(extractor, [samples[2], samples[0], samples[0]])["embedding"]
        assert np.array_equal(a[[2, 0, 0]], b)


def test_training_mode_changes_nothing(
    both: tuple[ClipImageSpec, ClipTextSpec], items: list[Item]
) -> None:
    extractor: Any = both[0].build("cpu")
    before = run(extractor, items[:1])["embedding"]
    nn.ModuleList([extractor.network]).train().apply(lambda module: module.train())
    assert np.array_equal(run(extractor, items[:1])["embedding"], before)
    assert not any(value.requires_grad for value in extractor.network.parameters())


def test_both_towers_share_one_model(both: tuple[ClipImageSpec, ClipTextSpec]) -> None:
    image, text = (spec.build("cpu") for spec in both)
    assert model_of(image) is model_of(text)
    assert both[0].build("cpu") is image


def model_of(extractor: Extractor) -> Any:
    return extractor.network.network.model  # type: ignore[attr-defined]


def test_square_crop_is_an_option(open_clip_file: Path, items: list[Item]) -> None:
    spec = ClipImageSpec.create(
        model=OPEN_CLIP, pretrained=str(open_clip_file), resize="square_crop"
    )
    standard = ClipImageSpec.create(model=OPEN_CLIP, pretrained=str(open_clip_file))
    assert spec.fingerprint != standard.fingerprint
    assert spec.build("cpu").prepare(items[1]).shape == (3, 96, 96)


def test_random_state_is_left_alone(open_clip_file: Path, clip_folder: Path) -> None:
    state = torch.get_rng_state()
    replace(open_clip_specs(open_clip_file)[0], precision="bf16").build("cpu")
    replace(ClipImageSpec.create(model=str(clip_folder)), precision="bf16").build("cpu")
    assert torch.equal(torch.get_rng_state(), state)
