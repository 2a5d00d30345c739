"""Detections from a function: any detector, and any classifier of colours, of the caller's own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from genmetrics.core.errors import FeatureError, UsageError
from genmetrics.core.extractor import Extractor, ExtractorSpec, Features, OutputKind
from genmetrics.core.protocol import LOCAL
from genmetrics.core.sample import Item
from genmetrics.extractors.recorded import Detection, as_detection

Detector = Callable[[list[Any]], Sequence[Sequence[Mapping[str, Any]]]]
"""uint8 images ``(3, H, W)`` in; for each a list of detections out, best first."""

ColorModel = Callable[[Any, Sequence[Mapping[str, Any]]], Sequence[str]]
"""One image and its detections (with their masks) in; the colour of each out."""


@dataclass(frozen=True, kw_only=True)
class DetectorSpec(ExtractorSpec):
    """A detector given as a function.

    It is known by ``fingerprint``, an attribute of the function if it has one, otherwise by its
    name: give functions that find other things other names.
    """

    outputs: ClassVar[Mapping[str, OutputKind]] = {"detections": "record"}

    extractor: str = "detector"
    name: str
    color_name: str | None = None
    detector: Detector = field(metadata=LOCAL)
    color_model: ColorModel | None = field(default=None, metadata=LOCAL)

    @classmethod
    def create(cls, detector: Detector, color_model: ColorModel | None = None) -> DetectorSpec:
        """Describe a detector.

        Raises:
            UsageError: One of the two cannot be called.
        """
        for role, given in (("detector", detector), ("color_model", color_model)):
            if given is not None and not callable(given):
                raise UsageError(f"{role}={given!r} cannot be called; pass a function")
        return cls(
            name=_name(detector),
            color_name=None if color_model is None else _name(color_model),
            detector=detector,
            color_model=color_model,
        )

    def check(self) -> None:
        """Do nothing: the caller built the model."""

    def build(self, device: str) -> FunctionDetector:
        """Wrap the function; it runs where its owner put it."""
        return FunctionDetector(self, device)


class FunctionDetector(Extractor):
    """Calls the detector on batches and keeps what the record format keeps."""

    fill = 1  # images keep their sizes, so copies would fix no shape

    spec: DetectorSpec

    def prepare(self, item: Item) -> Any:
        """Return the image."""
        return item.image

    def forward(self, prepared: Sequence[Any]) -> Features:
        """Detect, and classify the colour of what was found."""
        found = self.spec.detector(list(prepared))
        if len(found) != len(prepared):
            raise FeatureError(
                f"{self.spec.name} gave {len(found)} lists for {len(prepared)} images; expected one"
                " list of detections an image"
            )
        return {
            "detections": [self._clean(*pair) for pair in zip(prepared, found, strict=True)],
        }

    def _clean(self, image: Any, found: Sequence[Mapping[str, Any]]) -> list[Detection]:
        clean = [as_detection(d, f"{self.spec.name}: detection {i}") for i, d in enumerate(found)]
        if self.spec.color_model is not None and clean:
            colors = self.spec.color_model(image, found)
            for detection, color in zip(clean, colors, strict=True):
                detection["color"] = color
        return clean


def _name(function: Any) -> str:
    fingerprint = getattr(function, "fingerprint", None)
    if fingerprint is not None:
        return str(fingerprint)
    # A name does not say what the function does: closures share one, and code changes. So what it
    # found is never taken for what another process, or another object, would find.
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__} ({_RUN}.{_number(function)})"


_RUN = secrets.token_hex(4)
_NUMBERS: list[object] = []


def _number(function: object) -> int:
    """Number an object of this process; kept alive, so that no other gets its number."""
    for i, known in enumerate(_NUMBERS):
        if known is function:
            return i
    _NUMBERS.append(function)
    return len(_NUMBERS) - 1
