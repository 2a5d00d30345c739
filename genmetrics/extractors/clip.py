"""CLIP image and text embeddings, through open_clip or transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from genmetrics.core.errors import InputError, MissingExtraError, UsageError
from genmetrics.core.extractor import Extractor, Features, OutputKind
from genmetrics.core.protocol import LOCAL
from genmetrics.core.sample import Item
from genmetrics.extractors._clip_source import open_clip_config, resolve_clip
from genmetrics.extractors._model import (
    ImageExtractor,
    ImageSpec,
    ModelSpec,
    Weights,
    require_source,
)

if TYPE_CHECKING:
    from torch import Tensor

    from genmetrics.extractors._clip_models import LoadedClip, Tokenizer

IMAGE_RESIZES = ("short_side_crop", "short_side_crop_floor", "square_crop", "squash")

_PACKAGES = {"open_clip": "open-clip-torch", "transformers": "transformers"}


@dataclass(frozen=True, kw_only=True)
class ClipSpec(ModelSpec):
    """What the two towers of a CLIP have in common.

    ``model`` may be a hub id, ``id@revision`` or a directory for transformers; or, with
    ``pretrained`` (a tag or a checkpoint file), the name of an open_clip model. ``weights`` (a
    path, or a mapping from the model or the manifest's id to a path) replaces what they point to.
    """

    library: str
    architecture: str
    quick_gelu: bool
    """Activation x * sigmoid(1.702 x), which OpenAI's weights were trained with, not GELU; as far
    as tag, hash, name or configuration tell."""

    source: str = field(metadata=LOCAL)

    @property
    def _needs(self) -> tuple[str, ...]:
        if self.library == "open_clip":
            return ("*.safetensors|*.bin|*.pt",)
        return ("config.json", "*.safetensors|*.bin")

    def check(self) -> None:
        """Raise if the library or the weights are missing, or the weights are damaged."""
        if find_spec(self.library) is None:
            raise MissingExtraError("CLIP", _PACKAGES[self.library])
        require_source(self.source, self._needs)

    def _load(self, device: str) -> LoadedClip:
        from genmetrics.extractors._clip_models import load_clip

        path = require_source(self.source, self._needs)
        return load_clip(self, path, device)


@dataclass(frozen=True, kw_only=True)
class ClipImageSpec(ClipSpec, ImageSpec):
    """CLIP image embeddings: projected, not normalised.

    On the same pixels a vision transformer's equal the library's own call to the last bit. A
    ResNet's 1 x 1 convolutions may go to another kernel on a CPU.
    """

    outputs: ClassVar[Mapping[str, OutputKind]] = {"embedding": "vector"}

    @classmethod
    def create(
        cls,
        *,
        model: str,
        pretrained: str | None = None,
        weights: Weights = None,
        resize: str | None = None,
    ) -> Self:
        """Describe the extractor; loads nothing, and fetches nothing.

        Args:
            model: See :class:`ClipSpec`.
            pretrained: See :class:`ClipSpec`.
            weights: See :class:`ClipSpec`.
            resize: One of :data:`IMAGE_RESIZES`; the model's own published way by default. CMMD
                uses ``"square_crop"``.

        Raises:
            UsageError: Unknown names, or a model's name that contradicts the weights.
            WeightsError: A path that does not exist.
        """
        if resize is not None and resize not in IMAGE_RESIZES:
            raise UsageError(f"resize {resize!r} is not one of {', '.join(IMAGE_RESIZES)}")
        clip = resolve_clip(model, pretrained, weights)
        return cls(
            extractor="clip-image",
            library=clip.library,
            architecture=clip.architecture,
            weights=clip.found.name,
            sha256=clip.found.sha256,
            source=clip.found.load,
            quick_gelu=clip.quick_gelu,
            resize=resize or clip.resize,
            size=clip.size,
            mean=clip.mean,
            std=clip.std,
        )

    def _build(self, device: str) -> Extractor:
        from genmetrics.extractors._clip_models import ImageTower

        return ImageExtractor(self, device, ImageTower(self._load(device)))


@dataclass(frozen=True, kw_only=True)
class ClipTextSpec(ClipSpec):
    """CLIP text embeddings: projected, not normalised; and whether the text was cut.

    A text longer than the model's context (77 tokens) loses the end of its content and keeps the
    start and the end token, since the embedding is read at the end token.
    """

    inputs: ClassVar[tuple[str, ...]] = ("prompt",)
    outputs: ClassVar[Mapping[str, OutputKind]] = {"embedding": "vector", "truncated": "score"}

    context_length: int | None
    """Most tokens, start and end included; None while the model that says so is not there."""

    prefix: str
    """Put before each prompt; Hessel et al. (2021) use ``"A photo depicts "``."""

    @classmethod
    def create(
        cls,
        *,
        model: str,
        pretrained: str | None = None,
        weights: Weights = None,
        prefix: str = "",
    ) -> Self:
        """Describe the extractor; see :meth:`ClipImageSpec.create`."""
        clip = resolve_clip(model, pretrained, weights)
        if clip.library == "open_clip":
            _require_packaged_tokenizer(clip.architecture)
        return cls(
            extractor="clip-text",
            library=clip.library,
            architecture=clip.architecture,
            weights=clip.found.name,
            sha256=clip.found.sha256,
            source=clip.found.load,
            quick_gelu=clip.quick_gelu,
            context_length=clip.context_length,
            prefix=prefix,
        )

    @property
    def _needs(self) -> tuple[str, ...]:
        tokenizer = ("tokenizer.json|vocab.json",) if self.library == "transformers" else ()
        return (*super()._needs, *tokenizer)

    def _build(self, device: str) -> Extractor:
        from genmetrics.extractors._clip_models import TextTower, load_tokenizer

        clip = self._load(device)
        tokenizer = load_tokenizer(self.library, require_source(self.source, self._needs))
        return ClipTextExtractor(self, device, TextTower(clip), tokenizer)


_PAD_STEP = 16
"""Texts are padded to a multiple of this, or to the whole context."""


class Tokens(NamedTuple):
    """A text padded to a length that others have too, and whether it lost content to fit."""

    ids: Tensor
    mask: Tensor
    truncated: bool


class ClipTextExtractor(Extractor):
    """A frozen text tower.

    It looks back only, so padding behind the end token changes nothing. On a CPU, where padding
    would take most of the time, texts are padded to the next of a few lengths and those of one
    length are run together: a text's features do not depend on those beside it where the batch size
    is a multiple of the slice. open_clip's towers need the whole context; a GPU and a compiled
    network always get it.
    """

    def __init__(self, spec: ClipTextSpec, device: str, network: Any, tokenizer: Tokenizer) -> None:
        from genmetrics.extractors._frozen import Frozen

        super().__init__(spec, device)
        assert spec.context_length is not None  # known as soon as there is a network
        self.network = Frozen(network, device, spec.precision, compiled=spec.compiled)
        self.fill = self.network.slice
        self._tokenizer, self._length, self._prefix = tokenizer, spec.context_length, spec.prefix
        short = spec.library == "transformers" and self.network.slice is not None
        steps = range(_PAD_STEP, self._length, _PAD_STEP) if short else ()
        self._lengths = [*steps, self._length]

    def prepare(self, item: Item) -> Tokens:
        """Tokenise prefix and prompt, cut to the context and padded."""
        import torch

        if item.prompt is None:
            raise InputError(f"sample {item.id!r} has no prompt")
        ids = self._tokenizer.encode(self._prefix + item.prompt)
        truncated = len(ids) > self._length
        if truncated:
            ids = [*ids[: self._length - 1], ids[-1]]
        # One pad at least, as in the whole context: some configurations read the embedding there.
        length = next((each for each in self._lengths if each > len(ids)), self._length)
        padding = length - len(ids)
        row = torch.tensor(
            [ids + [self._tokenizer.pad] * padding, [1] * len(ids) + [0] * padding],
            dtype=torch.int64,
            device="cpu",
        )
        return Tokens(row[0], row[1], truncated)

    def bucket(self, prepared: Tokens) -> int:
        """Texts of one length run together."""
        return len(prepared.ids)

    def forward(self, prepared: Sequence[Tokens]) -> Features:
        """Embed texts of one length."""
        ids, masks = [text.ids for text in prepared], [text.mask for text in prepared]
        features: dict[str, np.ndarray] = self.network(ids, masks)
        cut = np.array([text.truncated for text in prepared], dtype=np.float32)
        return {**features, "truncated": cut}


def _require_packaged_tokenizer(architecture: str) -> None:
    text = open_clip_config(architecture)["text_cfg"]
    special = [key for key in ("hf_tokenizer_name", "tokenizer_kwargs") if text.get(key)]
    if special:
        raise UsageError(
            f"{architecture} tokenises in its own way ({special[0]}), which open_clip does not"
            " carry with it; use a CLIP with the standard tokenizer or a transformers directory"
        )
