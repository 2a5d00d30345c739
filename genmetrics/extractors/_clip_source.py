"""Which CLIP is meant, and what it says of its own input. Reads configurations, loads no model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from genmetrics.core.errors import InputError, MissingExtraError, UsageError, did_you_mean
from genmetrics.extractors._model import Source, Weights, locate_source, override_for

Library = Literal["open_clip", "transformers"]

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
"""Radford et al. (2021); what a model uses that says nothing else."""

_OPENAI = "openai-clip-"  # how the manifest's ids of OpenAI's own files begin


class ClipSource(NamedTuple):
    """A CLIP, as far as it is known before it is loaded.

    ``size`` and ``context_length`` are None while a model that would say so is not there.
    """

    library: Library
    architecture: str
    found: Source
    quick_gelu: bool
    size: int | None
    context_length: int | None
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD
    resize: str = "short_side_crop"


def resolve_clip(model: str, pretrained: str | None, weights: Weights) -> ClipSource:
    """Find out what ``model=`` and ``pretrained=`` mean.

    Raises:
        UsageError: Unknown names, or a model's name that contradicts the weights.
        WeightsError: A path that does not exist.
    """
    by_path = Path(model).expanduser().exists()
    if pretrained is not None or not (by_path or "/" in model):
        return _open_clip(model.replace("/", "-"), pretrained, weights)
    return _transformers(model, weights)


# -- transformers ----------------------------------------------------------------------------------


def _transformers(model: str, weights: Weights) -> ClipSource:
    found = locate_source(model, weights)
    if found.path is None:
        return ClipSource("transformers", "clip", found, True, None, None)
    if not (found.path / "config.json").is_file():
        raise InputError(
            f"{found.path} is no directory with a config.json; for a checkpoint of open_clip pass"
            " model=NAME and pretrained=FILE"
        )
    config = json.loads((found.path / "config.json").read_text())
    if config.get("model_type") != "clip":
        raise UsageError(
            f"{found.path} holds a model of type {config.get('model_type')!r}; a CLIP is needed"
        )
    vision, text = _sub_config(config, "vision"), _sub_config(config, "text")
    return ClipSource(
        library="transformers",
        architecture="clip",
        found=found,
        quick_gelu=vision.get("hidden_act", "quick_gelu") == "quick_gelu",
        size=vision.get("image_size", 224),
        context_length=text.get("max_position_embeddings", 77),
        **_processor(found.path),
    )


def _sub_config(config: Mapping[str, Any], tower: str) -> dict[str, Any]:
    # The `_dict` form is of old files; where both are there, transformers lets it win.
    merged: dict[str, Any] = {
        **(config.get(f"{tower}_config") or {}),
        **(config.get(f"{tower}_config_dict") or {}),
    }
    return merged


def _processor(folder: Path) -> dict[str, Any]:
    """Read the published preprocessing; without a file it is CLIP's, in transformers' crop."""
    file = folder / "preprocessor_config.json"
    config = json.loads(file.read_text()) if file.is_file() else {}
    if config.get("resample", 3) != 3:
        raise UsageError(
            f"{file} asks for resample {config['resample']}; only 3 (bicubic) is known"
        )
    size = config.get("size")
    squash = isinstance(size, Mapping) and "height" in size
    return {
        "mean": tuple(config.get("image_mean", MEAN)),
        "std": tuple(config.get("image_std", STD)),
        "resize": "squash" if squash else "short_side_crop_floor",
    }


# -- open_clip -------------------------------------------------------------------------------------


def _open_clip(model: str, pretrained: str | None, weights: Weights) -> ClipSource:
    config = open_clip_config(model)
    if pretrained is None and weights is None:
        raise UsageError(
            f"model {model} of open_clip has many weights: pass pretrained=TAG or a checkpoint file"
        )
    tag = _tag(model, pretrained)
    found = _open_clip_weights(model, pretrained, weights, tag)
    trained = True if _is_openai(found) else tag.get("quick_gelu", False) if tag else None
    claimed = True if config.get("quick_gelu") else None  # a plain name claims nothing
    size = config["vision_cfg"].get("image_size", 224)
    if tag.get("interpolation", "bicubic") != "bicubic":
        raise UsageError(
            f"{model} {pretrained} was trained with {tag['interpolation']} resizing, which is not"
            " supported; use weights with bicubic"
        )
    return ClipSource(
        library="open_clip",
        architecture=model,
        found=found,
        quick_gelu=_activation(f"{model} {pretrained or ''}".strip(), trained, claimed),
        size=size if isinstance(size, int) else size[0],
        context_length=config["text_cfg"].get("context_length", 77),
        mean=tuple(tag.get("mean", MEAN)),
        std=tuple(tag.get("std", STD)),
        resize="squash" if tag.get("resize_mode") == "squash" else "short_side_crop",
    )


def open_clip_config(model: str) -> dict[str, Any]:
    """Return the configuration of an open_clip model; its own files are read without importing it.

    Raises:
        MissingExtraError: open_clip is not installed.
        UsageError: No such model.
    """
    package = find_spec("open_clip")
    if package is None or package.origin is None:
        raise MissingExtraError(f"CLIP model {model}", "open-clip-torch")
    file = Path(package.origin).parent / "model_configs" / f"{model}.json"
    if file.is_file():
        config: dict[str, Any] = json.loads(file.read_text())
        return config
    import open_clip  # the user may have added models of his own

    added = open_clip.get_model_config(model)
    if added is None:
        hint = did_you_mean(model, open_clip.list_models())
        raise UsageError(f"open_clip has no model {model!r}{hint}")
    return dict(added)


def _tag(model: str, pretrained: str | None) -> Mapping[str, Any]:
    """Return what open_clip's table says of a tag; empty for a checkpoint file."""
    if pretrained is None or Path(pretrained).expanduser().is_file():
        return {}
    if pretrained == "openai" and _openai_id(model) is not None:
        return {"quick_gelu": True}  # known without the import, which takes seconds
    import open_clip

    tags = open_clip.list_pretrained_tags_by_model(model)
    found: Mapping[str, Any] = open_clip.get_pretrained_cfg(model, pretrained)
    if not found:
        raise UsageError(
            f"{pretrained!r} is neither a file nor a tag of {model}"
            f"{did_you_mean(pretrained, tags)}; tags: {', '.join(tags) or 'none'}"
        )
    return found


def _open_clip_weights(
    model: str, pretrained: str | None, weights: Weights, tag: Mapping[str, Any]
) -> Source:
    if pretrained is not None and not tag:
        return locate_source(pretrained, None)
    openai = _openai_id(model) if pretrained == "openai" else None
    if openai is not None:
        return locate_source(openai, weights)
    replaced = override_for(weights, model)
    if replaced is not None:
        return locate_source(replaced, None)
    if not tag.get("hf_hub"):
        raise UsageError(f"no weights for {model} in weights=; pass pretrained=TAG or a file")
    return locate_source(str(tag["hf_hub"]).rpartition("/")[0], None)


def _openai_id(model: str) -> str | None:
    from genmetrics.weights import entries

    name = model.removesuffix("-quickgelu").lower()
    known = [_OPENAI + name, f"{_OPENAI}{name}px"]
    return next((id for id in known if id in entries()), None)


def _is_openai(found: Source) -> bool:
    """Tell whether the content is one of OpenAI's files, wherever it lies."""
    from genmetrics.weights import entries

    return bool(found.sha256) and any(
        id.startswith(_OPENAI) and entry.sha256 == found.sha256 for id, entry in entries().items()
    )


def _activation(what: str, *claims: bool | None) -> bool:
    """Agree on QuickGELU among what the weights and the name say; None says nothing.

    Weights trained with one activation give wrong embeddings with the other, and no error.
    """
    said = {claim for claim in claims if claim is not None}
    if len(said) > 1:
        raise UsageError(
            f"{what}: QuickGELU was asked on by the model's name and off by the weights; take the"
            " weights' own model name"
        )
    return said.pop() if said else False
