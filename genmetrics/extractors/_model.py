"""What every model-backed extractor shares. Imports no torch, so specs can be made without it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from genmetrics.core.device import send_ahead
from genmetrics.core.extractor import Extractor, ExtractorSpec, Features
from genmetrics.core.sample import Item
from genmetrics.extractors.decoders import Decode
from genmetrics.extractors.precision import Precision, precision_on

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Weights = str | Path | Mapping[str, str | Path] | None
"""What ``weights=`` takes: nothing, a path that replaces the file, or a mapping from id to path."""

_BUILT: WeakValueDictionary[Hashable, Extractor] = WeakValueDictionary()


def override_for(weights: Weights, name: str) -> str | None:
    """Pick the path that replaces the weights called ``name``, if one was given."""
    chosen = weights.get(name) if isinstance(weights, Mapping) else weights
    return None if chosen is None else str(chosen)


class Source(NamedTuple):
    """A model that is a directory or file of its own.

    ``name`` is a hub or manifest id, or ``"local"`` for a path: there ``sha256`` tells which.
    ``load`` is what :func:`require_source` finds it by; ``path`` is None while it is not there.
    """

    name: str
    load: str
    sha256: str
    path: Path | None


def locate_source(model: str, weights: Weights) -> Source:
    """Find a model by local path, hub id, ``id@revision`` or manifest id; loads nothing.

    Raises:
        WeightsError: A path that does not exist.
        UsageError: Neither a path nor the form of an id.
    """
    from genmetrics.weights import entries, locate, locate_model

    name = model.partition("@")[0]
    if Path(model).expanduser().exists():
        name = "local"
    override = override_for(weights, name)
    if override is None and model in entries():
        found = locate(model)
        return Source(name, model, found.sha256, found.path)
    located = locate_model(override or model)
    return Source(name, override or model, located.sha256, located.path)


def require_source(load: str, needs: Sequence[str]) -> Path:
    """Return the path of a model that is there and whole, else raise :class:`WeightsError`."""
    from genmetrics.weights import entries, require, require_model

    entry = entries().get(load)
    if entry is not None and entry.kind != "hub":
        return require(load)
    return require_model(load, needs=needs)


@dataclass(frozen=True, kw_only=True)
class ModelSpec(ExtractorSpec):
    """A spec whose extractor is a torch network."""

    weights: str
    """Which weights: an id of the manifest, a hub id, or a model's name."""

    sha256: str
    """Hash of the weights: the manifest's or the content's; empty while they are not there."""

    precision: Precision = "fp32"
    compiled: bool = False
    """Whether ``torch.compile`` made the network, which moves last digits."""

    version: int = 1
    """Raised whenever the same choices would give other features than before, last digits aside."""

    def build(self, device: str) -> Extractor:
        """Load the network onto ``device``, or share the one of this process that is still in use.

        A precision that the device does not have is replaced (see :func:`precision_on`); the
        extractor's ``spec`` says by what.
        """
        spec = replace(self, precision=precision_on(device, self.precision))
        key = (type(self), spec.fingerprint, device)
        extractor = _BUILT.get(key)
        if extractor is None:
            extractor = _BUILT[key] = spec._build(device)
        return extractor

    @abstractmethod
    def _build(self, device: str) -> Extractor:
        """Load the network."""


@dataclass(frozen=True, kw_only=True)
class ImageSpec(ModelSpec):
    """A spec that reads images: resize, then ``(levels / scale - mean) / std`` per channel."""

    resize: str
    """Name in :data:`genmetrics.extractors.resize.RESIZES`."""

    size: int | None
    """Side of the square input in pixels; None while the model that says so is not there."""

    scale: float = 255.0
    mean: tuple[float, ...]
    std: tuple[float, ...]

    decode: Decode = "pil"
    """Whose pixels of image files; see :func:`genmetrics.samples.items.load_item`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values.

        ``decode`` is among them only where it is not Pillow, so that fingerprints made before there
        was a choice still hold.
        """
        fields = super().to_dict()
        if self.decode == "pil":
            del fields["decode"]
        return fields


_LARGEST_REDUCTION = 32
"""Above it pictures are resized on the CPU: torch's antialiased kernels for CUDA keep their weights
in shared memory and refuse reductions whose weights do not fit."""


class ImageExtractor(Extractor):
    """A frozen network on single images.

    On a CUDA device pictures travel there while they are prepared. Resizes on floats run there, and
    one copy of the picture serves all extractors; resizes that are Pillow on bytes run on the CPU,
    and their result travels. Nothing in between waits for the device.
    """

    def __init__(self, spec: ImageSpec, device: str, network: nn.Module) -> None:
        import torch

        from genmetrics.extractors._frozen import Frozen
        from genmetrics.extractors.resize import ON_DEVICE, RESIZES

        super().__init__(spec, device)
        assert spec.size is not None  # known as soon as there is a network
        self.network = Frozen(network, device, spec.precision, compiled=spec.compiled)
        self.fill = self.network.slice
        self._resize, self._size, self._scale = RESIZES[spec.resize], spec.size, spec.scale
        self._decode = spec.decode
        self._on_device = spec.resize in ON_DEVICE
        self._mean_std = torch.tensor(
            [spec.mean, spec.std], dtype=torch.float32, device="cpu"
        ).view(2, 3, 1, 1)
        self._placed: dict[torch.device, Tensor] = {}

    def prepare(self, item: Item) -> Tensor:
        """Resize and normalise, on a CUDA device or else where the image lies.

        Returns:
            float32 ``(3, size, size)``.
        """
        image = item.picture(self._decode)
        if max(image.shape) > _LARGEST_REDUCTION * self._size:
            image = image.cpu()
        elif self._on_device:
            image = item.picture(self._decode, self.device)
        pixels = send_ahead(self._resize(image, self._size), self.device).div_(self._scale)
        mean, std = self._mean_std_on(pixels.device)
        return pixels.sub_(mean).div_(std)

    def _mean_std_on(self, device: torch.device) -> Tensor:
        # kept, because copying it each time would wait for all work of the device each time
        if device not in self._placed:
            self._placed[device] = self._mean_std.to(device)
        return self._placed[device]

    def forward(self, prepared: Sequence[Any]) -> Features:
        """Run the network on a batch of what :meth:`prepare` gave."""
        features: Features = self.network(prepared)
        return features
