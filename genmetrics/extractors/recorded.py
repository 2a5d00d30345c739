"""Detections: the one record format, and detections that were recorded in a file.

A detection is a mapping with

- ``label``: class name, in the detector's vocabulary;
- ``box``: ``[x1, y1, x2, y2]`` in pixels of the upright image;
- ``score``: confidence between 0 and 1;
- ``color``, if a colour was classified: its name;
- ``mask``, if the detector gives one: a picture of the object. Colour models use it; it is not
  kept.

A file of detections is JSON lines, one object an image: ``{"id": ..., "detections": [...]}``, and
better also ``"detector"``, the name of what found them, so that scores of unlike detectors are told
apart. An image in which nothing was found has an empty list, so that it is not taken for one that
was forgotten.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NotRequired, TypedDict

from genmetrics.core.errors import InputError, did_you_mean
from genmetrics.core.extractor import Extractor, ExtractorSpec, Features, OutputKind
from genmetrics.core.files import require_local
from genmetrics.core.protocol import LOCAL
from genmetrics.core.sample import Item


class Detection(TypedDict):
    """One object that a detector found, as plain JSON values."""

    label: str
    box: list[float]
    score: float
    color: NotRequired[str]


def as_detection(value: Any, where: str) -> Detection:
    """Check one detection and drop what is not kept.

    Args:
        value: A mapping with numbers of any kind (floats, array elements).
        where: Put before the message of an error.

    Raises:
        InputError: A field is missing, is not a number where it must be, or is not finite.
    """
    if not isinstance(value, Mapping):
        raise InputError(f"{where} is a {type(value).__name__}; expected label, box and score")
    missing = [name for name in ("label", "box", "score") if name not in value]
    if missing:
        raise InputError(f"{where} has no {' and no '.join(missing)}; found {', '.join(value)}")
    try:
        box = [float(edge) for edge in value["box"]]
        score = float(value["score"])
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: box and score must be numbers: {error}") from error
    if len(box) != 4 or not all(map(math.isfinite, [*box, score])):
        raise InputError(
            f"{where} has box {box}, score {score}; expected 4 finite edges and a score"
        )
    found: Detection = {"label": str(value["label"]), "box": box, "score": score}
    if value.get("color") is not None:
        found["color"] = str(value["color"])
    return found


class Recording(NamedTuple):
    """A file of detections: who found them (None if it does not say), and by image."""

    detector: str | None
    images: dict[str, list[Detection]]


def read_detections(path: str | Path) -> Recording:
    """Read a file of detections.

    Raises:
        InputError: Another suffix than ``.jsonl``, a line that is not such an object, an id that
            comes twice, or a second detector; names the line.
    """
    from genmetrics.samples.tables import read_table

    found: dict[str, list[Detection]] = {}
    rows = read_table(Path(path))
    detector = rows[0].text("detector")
    for row in rows:
        name, values = row.text("id"), row.cells.get("detections")
        if name is None or not isinstance(values, list):
            raise InputError(f'{row.where} is not {{"id": ..., "detections": [...]}}')
        if name in found:
            raise InputError(f"{row.where} repeats the id {name!r}; give each image one line")
        if row.text("detector") != detector:
            raise InputError(
                f"{row.where} is by detector {row.text('detector')!r}, the first by {detector!r};"
                " use one for all images"
            )
        found[name] = [
            as_detection(value, f"{row.where}: detection {i}") for i, value in enumerate(values)
        ]
    return Recording(detector, found)


def _sha256(path: str | Path) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read detections {path}: {error.strerror}") from error


@dataclass(frozen=True, kw_only=True)
class RecordedDetectionsSpec(ExtractorSpec):
    """Detections from a file, known by its content and not by where it lies."""

    inputs = ("id",)
    outputs: ClassVar[Mapping[str, OutputKind]] = {"detections": "record"}

    extractor: str = "recorded-detections"
    detector: str | None
    sha256: str
    path: str = field(metadata=LOCAL)
    n: int = field(metadata=LOCAL)

    @classmethod
    def create(cls, path: str | Path) -> RecordedDetectionsSpec:
        """Describe a file. Raises what :func:`read_detections` raises."""
        require_local("detections", path)
        sha256 = _sha256(path)
        recording = read_detections(path)
        return cls(
            detector=recording.detector, sha256=sha256, path=str(path), n=len(recording.images)
        )

    def check(self) -> None:
        """Raise :class:`InputError` if the file is gone or another than it was."""
        now = _sha256(self.path)
        if now != self.sha256:
            raise InputError(
                f"{self.path} changed since the metric was made (sha256 {self.sha256[:12]}, now"
                f" {now[:12]}); make the metric again"
            )

    def build(self, device: str) -> RecordedDetections:
        """Load the records."""
        return RecordedDetections(self, device)


class RecordedDetections(Extractor):
    """Looks detections up by sample id."""

    fill = 1

    spec: RecordedDetectionsSpec

    def __init__(self, spec: RecordedDetectionsSpec, device: str) -> None:
        super().__init__(spec, device)
        self._found = read_detections(spec.path).images

    def prepare(self, item: Item) -> list[Detection]:
        """Return the detections of one image.

        Raises:
            InputError: The file has no line for it.
        """
        if item.id not in self._found:
            raise InputError(
                f"{self.spec.path} has no detections for image {item.id!r}"
                f"{did_you_mean(item.id, self._found)}; it holds {len(self._found)} images, and an"
                " image without objects needs an empty list"
            )
        return self._found[item.id]

    def forward(self, prepared: Sequence[list[Detection]]) -> Features:
        """Return the records as they are."""
        return {"detections": list(prepared)}
