"""The Metric API: update, merge, compute."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from genmetrics.core.device import resolve_device
from genmetrics.core.errors import (
    FeatureError,
    GenmetricsError,
    InputError,
    ProtocolMismatchError,
    shown,
)
from genmetrics.core.extractor import (
    Extractor,
    ExtractorSpec,
    Features,
    in_bounds,
    require_sound,
)
from genmetrics.core.protocol import Protocol, differences
from genmetrics.core.result import Interval, Result
from genmetrics.core.sample import Item, Sample
from genmetrics.core.state import as_arrays, as_tensors

if TYPE_CHECKING:
    from torch import Tensor

LOOP_BATCH = 32
"""Largest batch of one ``update``; more images are run in pieces of this size."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricProtocol(Protocol):
    """Every choice that moves the metric's number.

    A field that holds an :class:`ExtractorSpec` is also the metric's request for that extractor:
    the field's name is the role under which :meth:`Metric.update_features` receives the features.
    """

    metric: str
    """Registry id with its variant, such as ``"fid@clean"``."""

    version: int = 1
    """Raised whenever the same choices would give another number than before."""


class Metric(ABC):
    """One way to judge images. Features are extracted by the update, numbers made by compute.

    The runner and the training loop share everything after the features: ``update`` extracts and
    calls :meth:`update_features`; the runner reads features from its store and calls the same.
    ``compute`` never communicates; ranks combine by :meth:`merge`.
    """

    id: ClassVar[str]
    summary: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]
    """Sample fields the metric needs, such as ``("image", "prompt")``; ``"reference_set"`` asks for
    a second set of images."""
    higher_is_better: ClassVar[bool]
    bounds: ClassVar[tuple[float | None, float | None]] = (None, None)
    unit: ClassVar[str] = ""
    minimum: int = 1
    """Fewest samples (a side) the metric computes from."""
    variants: ClassVar[tuple[str, ...]] = ()
    default_variant: ClassVar[str | None] = None
    variant_option: ClassVar[str] = "protocol"
    """Name of the constructor's argument that picks the variant."""

    def __init__(self, protocol: MetricProtocol, *, device: str = "auto") -> None:
        self.protocol = protocol
        self._device = device
        self._built: dict[str, Extractor] = {}
        self.reset()

    # -- what the metric asks for ------------------------------------------------------------------

    @property
    def extractors(self) -> dict[str, ExtractorSpec]:
        """Role to the extractor asked for, read off the protocol's fields."""
        return {
            field.name: value
            for field in dataclasses.fields(self.protocol)
            if isinstance(value := getattr(self.protocol, field.name), ExtractorSpec)
        }

    def detached(self) -> Self:
        """Part a fresh copy from its original: no samples, no models in common."""
        self._built = {}
        self.reset()
        return self

    def recorded_inputs(self) -> dict[str, dict[str, Any]]:
        """Files of the metric's own that hold data of the judged images; none by default.

        Name to ``{"path", "n", "digest"}``, for the inputs of a report. They are no part of the
        protocol, since two generators compared by one protocol have one file each.
        """
        return {}

    def compute_with(self, **choices: Any) -> Self:
        """Change how networks compute, such as ``precision="bf16"``; enters the protocol.

        Extractors without a network have no such choices and stay as they are.
        """
        changed = {}
        for role, spec in self.extractors.items():
            known = {field.name for field in dataclasses.fields(spec)}
            fitting = {name: value for name, value in choices.items() if name in known}
            changed[role] = dataclasses.replace(spec, **fitting)
        self.protocol = dataclasses.replace(self.protocol, **changed)  # type: ignore[arg-type]
        self._built.clear()
        return self

    @property
    def device(self) -> str:
        """Where models run and heavy statistics are computed."""
        return resolve_device(self._device)

    def to(self, device: str) -> Self:
        """Move to another device; the state stays on the CPU in either case."""
        resolve_device(device)
        self._device = device
        self._built.clear()
        return self

    def train(self, mode: bool = True) -> Self:
        """Do nothing: a metric is always in evaluation mode, whatever holds it says."""
        return self

    def eval(self) -> Self:
        """Do nothing, as :meth:`train`."""
        return self

    # -- state -------------------------------------------------------------------------------------

    @abstractmethod
    def reset(self) -> None:
        """Forget every sample."""

    @abstractmethod
    def update_features(
        self,
        samples: Sequence[Sample],
        features: Mapping[str, Features],
        *,
        real: bool = False,
    ) -> None:
        """Accumulate features that were already extracted.

        Args:
            samples: Who the rows belong to, in row order.
            features: Role (see :attr:`extractors`) to the features of these samples.
            real: True for the reference side of a set metric.
        """

    @abstractmethod
    def _merge(self, other: Self) -> None:
        """Add the state of a metric with the same protocol."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Everything accumulated so far, as plain containers and arrays."""

    @abstractmethod
    def _load_state(self, state: Mapping[str, Any]) -> None:
        """Replace what was accumulated by a :meth:`_state`."""

    def state_dict(self) -> dict[str, Any]:
        """Everything accumulated so far, as plain containers and CPU tensors.

        It goes into a checkpoint that ``torch.load(weights_only=True)`` reads.
        """
        state: dict[str, Any] = as_tensors(self._state())
        return {"fingerprint": self.protocol.fingerprint, **state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace what was accumulated by a :meth:`state_dict`.

        Raises:
            ProtocolMismatchError: The state is of a metric with another protocol.
        """
        if state.get("fingerprint") != self.protocol.fingerprint:
            raise ProtocolMismatchError(
                f"the state is of protocol {state.get('fingerprint')}, this metric is"
                f" {self.protocol.metric} {self.protocol.fingerprint}; build it with equal options"
            )
        self._load_state(as_arrays(state))

    def _check_merge(self, other: Self) -> None:
        """Raise if the states do not belong together; called before anything is added."""
        return

    @abstractmethod
    def _compute(self) -> Result:
        """Make the result of at least :attr:`minimum` samples."""

    def merge(self, other: Self) -> Self:
        """Add what ``other`` accumulated, as if its samples had been given to this one.

        Raises:
            ProtocolMismatchError: The protocols differ; the message names the fields.
        """
        if type(other) is not type(self):
            raise InputError(f"cannot merge {type(other).__name__} into {type(self).__name__}")
        if other.protocol.fingerprint != self.protocol.fingerprint:
            fields = differences(self.protocol.to_dict(), other.protocol.to_dict())
            raise ProtocolMismatchError(f"cannot merge unlike protocols: {'; '.join(fields)}")
        if other is self:
            raise InputError(f"cannot merge {self.protocol.metric} into itself")
        self._check_merge(other)
        self._merge(other)
        return self

    def compute(self) -> Result:
        """Return the result of everything given so far. Never communicates, changes no state.

        Raises:
            TooFewSamplesError: Fewer samples than the metric needs; names the side and the counts.
            FeatureError: The value leaves the metric's bounds, which no working model causes.
        """
        result = self._compute()
        self._check_bounds(result)
        return result

    def _check_bounds(self, result: Result) -> None:
        if result.value is None:
            return
        if not in_bounds(np.asarray([result.value]), self.bounds):
            raise FeatureError(
                f"{result.id} is {result.value}, outside its bounds {self.bounds}; check weights"
            )

    # -- extraction in a training loop -------------------------------------------------------------

    def _extract(self, items: Sequence[Item]) -> dict[str, Features]:
        """Run every extractor on the items, in batches of at most ``LOOP_BATCH``."""
        found: dict[str, Features] = {}
        for role, spec in self.extractors.items():
            if role not in self._built:
                spec.check()
                self._built[role] = spec.build(self.device)
            extractor = self._built[role]
            prepared = [extractor.prepare(item) for item in items]
            found[role] = extractor.extract(prepared, min(len(prepared), LOOP_BATCH))
            require_sound(spec, found[role], [item.id for item in items])
        return found

    def _result(
        self,
        value: float | None,
        *,
        n: int,
        interval: Interval | None = None,
        **fields: Any,
    ) -> Result:
        """Build a result with this metric's id, direction, protocol and fingerprint."""
        return Result(
            id=self.protocol.metric,
            value=None if value is None else float(value),
            n=n,
            interval=interval,
            higher_is_better=self.higher_is_better,
            protocol=self.protocol.to_dict(),
            fingerprint=self.protocol.fingerprint,
            **fields,
        )

    def failed(self, error: Exception, *, n: int = 0, n_reference: int = 0) -> Result:
        """Return the result that stands for an error of this metric."""
        text = " ".join(str(error).split())
        reason = text if isinstance(error, GenmetricsError) else f"{type(error).__name__}: {text}"
        return self._result(None, n=n, n_reference=n_reference, status="failed", reason=reason)


def as_items(
    images: Tensor | Sequence[Tensor],
    *,
    ids: Sequence[str],
    value_range: tuple[float, float] = (0.0, 1.0),
    prompts: Sequence[str] | None = None,
    references: Tensor | Sequence[Tensor] | None = None,
    masks: Tensor | Sequence[Tensor] | None = None,
    specs: Sequence[Mapping[str, Any]] | None = None,
) -> list[Item]:
    """Zip what ``update`` was given into items; every list must be as long as ``images``."""
    from genmetrics.core.images import as_masks, as_uint8

    pictures = as_uint8(images, value_range)
    columns: dict[str, Sequence[Any]] = {"image": pictures, "id": _texts("ids", ids)}
    if prompts is not None:
        columns["prompt"] = _texts("prompts", prompts)
    if references is not None:
        columns["reference"] = as_uint8(references, value_range)
    if masks is not None:
        columns["mask"] = as_masks(masks, pictures)
    if specs is not None:
        if isinstance(specs, str | Mapping):
            raise InputError("specs is one value; pass a list with one mapping an image")
        columns["spec"] = specs
    for name, column in columns.items():
        if len(column) != len(pictures):
            raise InputError(f"{len(column)} {name}s for {len(pictures)} images; pass one an image")
    return [
        Item(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]


def _texts(name: str, values: Sequence[str]) -> Sequence[str]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{name} must be a list of texts, one an image, not {shown(values)}")
    return values


def as_samples(items: Sequence[Item]) -> list[Sample]:
    """Keep what metrics need of items: who they are, not their pixels."""
    return [Sample(id=item.id, prompt=item.prompt, spec=item.spec) for item in items]
