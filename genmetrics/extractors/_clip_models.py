"""Loading CLIP: one model a process for both towers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

from torch import Tensor, nn

from genmetrics.core.errors import FeatureError, UsageError, WeightsError
from genmetrics.extractors._clip_source import open_clip_config
from genmetrics.extractors._frozen import building, load_strictly

if TYPE_CHECKING:
    from genmetrics.extractors.clip import ClipSpec

_FILES = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "model.safetensors",
    "open_clip_pytorch_model.bin",
    "pytorch_model.bin",
)
"""Names under which open_clip's hub repositories keep a checkpoint, best first."""

_LOADED: WeakValueDictionary[tuple[object, ...], nn.Module] = WeakValueDictionary()


class LoadedClip(NamedTuple):
    """A model and the library whose calls it takes."""

    library: str
    model: Any


def load_clip(spec: ClipSpec, path: Path, device: str) -> LoadedClip:
    """Load a model, or return the one of this process that another tower still uses.

    Raises:
        WeightsError: The file is not this architecture's, or tensors are missing.
    """
    key = (
        spec.library,
        spec.architecture,
        spec.sha256,
        spec.quick_gelu,
        spec.precision,
        device,
    )
    model = _LOADED.get(key)
    if model is None:
        model = _LOADED[key] = _load(spec, path)
    return LoadedClip(spec.library, model)


def _load(spec: ClipSpec, path: Path) -> nn.Module:
    if spec.library == "open_clip":
        return _load_open_clip(spec.architecture, path, spec.quick_gelu)
    from transformers import CLIPModel

    from genmetrics.extractors._pretrained import load_folder

    return load_folder(CLIPModel, path, "clip")


def _load_open_clip(architecture: str, path: Path, quick_gelu: bool) -> nn.Module:
    # Not through `create_model`: that cannot read OpenAI's archives without running their code, and
    # only warns of a wrong activation.
    from open_clip import CLIP, CustomTextCLIP
    from open_clip.model import convert_to_custom_text_state_dict

    from genmetrics.weights import load_state_dict

    config = {**open_clip_config(architecture), "quick_gelu": quick_gelu}
    if "multimodal_cfg" in config or config["text_cfg"].get("hf_model_name"):
        raise UsageError(f"{architecture} has a text tower that is not CLIP's; it is not supported")
    custom = config.pop("custom_text", False)
    file = path if path.is_file() else _checkpoint_in(path)
    state: Mapping[str, Tensor] = _plain_names(load_state_dict(file))
    with building():
        model: nn.Module = (CustomTextCLIP if custom else CLIP)(**config)
    if custom:
        state = convert_to_custom_text_state_dict(dict(state))
    scales = {
        name: state[name].reshape(value.shape)
        for name, value in model.state_dict().items()
        if name.startswith("logit_") and name in state
    }
    load_strictly(model, {**state, **scales}, str(file))
    return model


def _checkpoint_in(folder: Path) -> Path:
    for name in _FILES:
        if (folder / name).is_file():
            return folder / name
    raise WeightsError(f"{folder} has none of {', '.join(_FILES)}; copy the checkpoint there")


def _plain_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop the prefix of parallel training, and what OpenAI's archives hold beside weights."""
    if all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): tensor for name, tensor in state.items()}
    beside = ("input_resolution", "context_length", "vocab_size")
    return {
        name: tensor
        for name, tensor in state.items()
        if name not in beside and not name.endswith(("attn_mask", "position_ids"))
    }


def unwrap(features: Any) -> Tensor:
    """Return the embedding of transformers' feature getters: a tensor, or since 5.0 an object.

    Raises:
        FeatureError: Neither; the installed transformers has changed again.
    """
    pooled = getattr(features, "pooler_output", features)
    if not isinstance(pooled, Tensor):
        raise FeatureError(
            f"transformers gave a {type(features).__name__} instead of features; use a version from"
            " 4.45 on that genmetrics knows"
        )
    return pooled


class ImageTower(nn.Module):
    """Normalised images ``(n, 3, size, size)`` to ``"embedding"`` ``(n, d)``, not normalised."""

    def __init__(self, clip: LoadedClip) -> None:
        super().__init__()
        self.library, self.model = clip

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        if self.library == "open_clip":
            return {"embedding": self.model.encode_image(x)}
        return {"embedding": unwrap(self.model.get_image_features(pixel_values=x))}


class TextTower(nn.Module):
    """Token ids and mask ``(n, length)`` to ``"embedding"`` ``(n, d)``, not normalised.

    The length is at most the context.
    """

    def __init__(self, clip: LoadedClip) -> None:
        super().__init__()
        self.library, self.model = clip

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        if self.library == "open_clip":
            return {"embedding": self.model.encode_text(ids)}
        features = self.model.get_text_features(input_ids=ids, attention_mask=mask)
        return {"embedding": unwrap(features)}


class Tokenizer(Protocol):
    """Text to ids with start and end token, of any length."""

    pad: int

    def encode(self, text: str) -> list[int]:
        """Tokenise without cutting."""


def load_tokenizer(library: str, path: Path) -> Tokenizer:
    """Load the tokenizer that belongs to a model; never from the network."""
    return _PackagedTokenizer() if library == "open_clip" else _DirectoryTokenizer(path)


class _PackagedTokenizer:
    """CLIP's byte-pair tokenizer as open_clip carries it; it pads with zeros."""

    pad = 0

    def __init__(self) -> None:
        from open_clip import SimpleTokenizer

        self._tokenizer = SimpleTokenizer()

    def encode(self, text: str) -> list[int]:
        tokenizer = self._tokenizer
        return [tokenizer.sot_token_id, *tokenizer.encode(text), tokenizer.eot_token_id]


class _DirectoryTokenizer:
    """The tokenizer of a transformers directory."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        self.pad: int = self._tokenizer.pad_token_id or 0
        # Each call sets options on the one tokenizer behind, which refuses two threads at once.
        self._lock = Lock()

    def encode(self, text: str) -> list[int]:
        with self._lock:
            ids: list[int] = self._tokenizer(text, verbose=False)["input_ids"]
        return ids
