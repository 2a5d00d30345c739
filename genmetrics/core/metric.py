"""The Metric API: update, merge, compute."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from genmetrics.core.device import resolve_device
from genmetrics.core.errors import (
    FeatureError,
    GenmetricsError,
    InputError,
    ProtocolMismatchError,
    UsageError,
    did_you_mean,
)
from genmetrics.core.extractor import ExtractorSpec, in_bounds, unanswered_rows
from genmetrics.core.fields import FIELDS, REFERENCE_SET
from genmetrics.core.loop import Loop, as_items
from genmetrics.core.outputs import split
from genmetrics.core.protocol import Protocol, differences
from genmetrics.core.result import Interval, Result, with_missing
from genmetrics.core.rows import Features, take
from genmetrics.core.sample import Item, Sample
from genmetrics.core.state import as_arrays, as_samples, as_tensors

if TYPE_CHECKING:
    from torch import Tensor


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
    """Names behind ``@``; where there are any, the constructor's first argument picks one."""
    default_variant: ClassVar[str | None] = None

    def __init__(self, protocol: MetricProtocol, *, device: str = "auto") -> None:
        self.protocol = protocol
        self._device = device
        self._loop: Loop | None = None
        """What runs the extractors in a training loop."""
        self.reset()

    @classmethod
    def variant_id(cls, variant: str) -> str:
        """Return the id with a variant, such as ``"fid@clean"``.

        Raises:
            UsageError: No such variant; the message suggests the closest.
        """
        if variant not in cls.variants:
            listed = ", ".join(f"{cls.id}@{each}" for each in cls.variants) or cls.id
            raise UsageError(
                f"metric {cls.id!r} has no variant {variant!r}"
                f"{did_you_mean(str(variant), cls.variants)}; there is {listed}"
            )
        return f"{cls.id}@{variant}"

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
        self._loop = None
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
        self._loop = None
        return self

    @property
    def device(self) -> str:
        """Where models run and heavy statistics are computed."""
        return resolve_device(self._device)

    def to(self, device: str) -> Self:
        """Move to another device; the state stays on the CPU in either case."""
        resolve_device(device)
        self._device = device
        self._loop = None
        return self

    def train(self, mode: bool = True) -> Self:
        """Do nothing: a metric is always in evaluation mode, whatever holds it says."""
        return self

    def eval(self) -> Self:
        """Do nothing, as :meth:`train`."""
        return self

    # -- state -------------------------------------------------------------------------------------

    @abstractmethod
    def reset(self, *, keep_reference: bool = False) -> None:
        """Forget every sample; those of the reference side only unless they are to be kept."""

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

    def mark(self, *, reference: bool) -> Callable[[], None]:
        """Return what puts the state back as it is now, where a later step fails.

        It is called before every update of a :class:`~genmetrics.core.metric_set.MetricSet`. This
        one copies the whole state; metrics whose state is rows know cheaper ways.

        Args:
            reference: Whether the reference side may change as well.
        """
        return partial(self._load_state, copy.deepcopy(self._state()))

    @abstractmethod
    def _compute(self) -> Result:
        """Make the result of at least :attr:`minimum` samples."""

    def merge(self, other: Self) -> Self:
        """Add what ``other`` accumulated, as if its samples had been given to this one.

        Raises:
            ProtocolMismatchError: The protocols differ; the message names the fields.
            InputError: What they hold does not belong together, such as an id that both have;
                nothing is added then.
        """
        if type(other) is not type(self):
            raise InputError(f"cannot merge {type(other).__name__} into {type(self).__name__}")
        if other.protocol.fingerprint != self.protocol.fingerprint:
            fields = differences(self.protocol.to_dict(), other.protocol.to_dict())
            raise ProtocolMismatchError(f"cannot merge unlike protocols: {'; '.join(fields)}")
        if other is self:
            raise InputError(f"cannot merge {self.protocol.metric} into itself")
        self._check_merge(other)
        undo = self.mark(reference=True)
        try:
            self._merge(other)
        except BaseException:
            undo()
            raise
        return self

    def compute(self) -> Result:
        """Return the result of everything given so far. Never communicates, changes no state.

        Raises:
            TooFewSamplesError: Fewer samples than the metric needs; names the side and the counts.
            FeatureError: The value leaves the metric's bounds, which no working model causes.
        """
        result = self._compute()
        self._check_bounds(result)
        return with_missing(result, self.missed())

    def _check_bounds(self, result: Result) -> None:
        if result.value is None:
            return
        if not in_bounds(np.asarray([result.value]), self.bounds):
            raise FeatureError(
                f"{result.id} is {result.value}, outside its bounds {self.bounds}; check weights"
            )

    # -- images in a training loop -----------------------------------------------------------------

    @property
    def uses(self) -> tuple[str, ...]:
        """Fields of a sample that the metric or its extractors read; the others it has no use for.

        Of these, the optional ones may be left out.
        """
        read = [name for spec in self.extractors.values() for name in spec.reads]
        return tuple(n for n in dict.fromkeys([*self.inputs, *read]) if n in FIELDS)

    def takes(self) -> frozenset[str]:
        """Names of what :meth:`update` takes."""
        fields = {FIELDS[name].plural for name in self.uses}
        real = {"real"} if REFERENCE_SET in self.inputs else set()
        return frozenset({"ids", "value_range"} | fields | real)

    def update(
        self,
        images: Tensor | Sequence[Tensor] | None = None,
        real: bool = False,
        *,
        ids: Sequence[str] | None = None,
        value_range: tuple[float, float] = (0.0, 1.0),
        **fields: Any,
    ) -> None:
        """Extract features of images, and what belongs to them, and keep them.

        Args:
            images: uint8 tensor ``(N, 3, H, W)``, a list of ``(3, H, W)`` of any sizes, or floats
                within ``value_range``.
            real: True for the reference side of a metric that compares two sets.
            ids: Unique names over all updates and ranks; numbered when left out.
            value_range: Declared range of float images and references.
            **fields: A list with one entry an image, under the plural of each field in
                :attr:`uses`: ``prompts`` (texts), ``references`` (in the forms of ``images``),
                ``masks`` (bool ``(N, H, W)``, True where the image was allowed to change),
                ``specs`` (mappings), ``videos`` (tensors ``(T, 3, H, W)``), ...

        Raises:
            UsageError: Something that the metric has no use for.
            InputError: Something that it needs is missing, has another length or shape, or holds
                what it should not.
        """
        given = {"images": images, **fields}
        self.require_usable(given, real=real)
        items = as_items(
            given, ids=ids, numbered=partial(self.next_ids, real), value_range=value_range
        )
        if items:
            loop = self._loop = self._loop or Loop(self.device)
            found = {role: loop.extract(spec, items) for role, spec in self.extractors.items()}
            self.accept(items, found, real=real)

    def accept(
        self, items: Sequence[Item], found: Mapping[str, Features], *, real: bool = False
    ) -> None:
        """Keep the features of items; those that some model has no answer for have no value."""
        samples = as_samples(items)
        reasons: dict[int, str] = {}
        for features in found.values():
            reasons = {**unanswered_rows(features), **reasons}
        kept = {role: split(features)[0] for role, features in found.items()}
        if reasons:
            good = [i for i in range(len(samples)) if i not in reasons]
            kept = {role: take(features, good) for role, features in kept.items()}
        undo = self.mark(reference=real)
        try:
            self.miss({samples[i].id: why for i, why in reasons.items()}, real=real)
            samples = [s for i, s in enumerate(samples) if i not in reasons]
            if samples:
                self.update_features(samples, kept, real=real)
        except BaseException:
            undo()
            raise

    @abstractmethod
    def miss(self, reasons: Mapping[str, str], *, real: bool = False) -> None:
        """Note samples without a value, by id, and why."""

    @abstractmethod
    def missed(self) -> Mapping[str, str]:
        """Return the generated samples without a value, by id, and why."""

    def require_usable(self, given: Mapping[str, Any], *, real: bool = False) -> None:
        """Refuse what :meth:`update` cannot use, and the lack of what it needs."""
        name, takes = self.protocol.metric, self.takes()
        if real and "real" not in takes:
            raise InputError(f"{name} has no reference side; drop real=True")
        for plural, values in given.items():
            if values is not None and plural not in takes:
                raise UsageError(
                    f"{name} has no use for {plural}={did_you_mean(plural, takes)}; it takes"
                    f" {', '.join(sorted(takes))}"
                )
        for field in (FIELDS[used] for used in self.uses):
            if given.get(field.plural) is None and not field.optional:
                raise InputError(f"{name} needs {field.plural}=, one an image")

    @abstractmethod
    def next_ids(self, real: bool, count: int) -> list[str]:
        """Return ids for ``count`` samples of a side that came without."""

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
