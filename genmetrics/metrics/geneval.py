"""GenEval: does the image hold the objects, counts, colours and positions that were asked for?

:func:`check` and :func:`summarise` are the benchmark's rules (Ghosh, Hajishirzi and Schmidt, 2023)
and need no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from genmetrics.core.errors import InputError, UsageError, require_number, require_real
from genmetrics.core.extractor import ExtractorSpec, Features
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.registry import register
from genmetrics.core.sample import Sample
from genmetrics.extractors.detector import ColorModel, Detector, DetectorSpec
from genmetrics.extractors.recorded import RecordedDetectionsSpec
from genmetrics.metrics._geneval_rules import (
    COLORS,
    TASKS,
    Summary,
    Verdict,
    check,
    relations,
    summarise,
)
from genmetrics.metrics.base import SampleMetric

__all__ = ["COLORS", "TASKS", "GenEval", "Summary", "Verdict", "check", "relations", "summarise"]


@dataclass(frozen=True, kw_only=True)
class GenEvalProtocol(MetricProtocol):
    """Every choice that moves a GenEval score."""

    detections: ExtractorSpec
    threshold: float
    counting_threshold: float
    max_objects: int
    max_overlap: float
    position_threshold: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values.

        The hash of a recording stays out: it is of the images that were judged, so two generators
        under the same rules and detector would never compare.
        """
        plain = super().to_dict()
        if isinstance(self.detections, RecordedDetectionsSpec):
            del plain["detections"]["sha256"]
        return plain


@register
class GenEval(SampleMetric):
    """Share of images that show what was asked, by an object detector; mean of the task means.

    The value is the unweighted mean of the tasks; ``parts`` holds each task (``task/...``), the
    share of images (``images``) and of prompts with any correct image (``prompts``). ``per_sample``
    is 1 or 0; :meth:`verdicts` gives the reasons. Numbers compare only under one detector.

    Args:
        detections: File of recorded detections, see :mod:`genmetrics.extractors.recorded`.
        detector: Instead of a file, a function from a list of uint8 images ``(3, H, W)`` to a list
            of detections for each.
        color_model: A function from an image and its detections to the colour of each, for
            detectors that give none.
        threshold: See :func:`check`, as the following.
        counting_threshold: For the task ``counting``.
        max_objects: Detections kept of each class.
        max_overlap: Overlap from which a detection is dropped, 1 for never.
        position_threshold: How far apart centres must be.
        device: Where the detector runs if it is ours.
    """

    id = "geneval"
    summary = "Objects, counts, colours and positions that were asked for, by a detector"
    inputs = ("image", "spec")
    higher_is_better = True
    bounds = (0.0, 1.0)

    def __init__(
        self,
        *,
        detections: str | None = None,
        detector: Detector | None = None,
        color_model: ColorModel | None = None,
        threshold: float = 0.3,
        counting_threshold: float = 0.9,
        max_objects: int = 16,
        max_overlap: float = 1.0,
        position_threshold: float = 0.1,
        device: str = "auto",
    ) -> None:
        for option, value in (
            ("threshold", threshold),
            ("counting_threshold", counting_threshold),
            ("max_overlap", max_overlap),
        ):
            require_real("geneval", option, value, least=0, most=1)
        require_real("geneval", "position_threshold", position_threshold, least=0)
        require_number("geneval", "max_objects", max_objects, 1)
        protocol = GenEvalProtocol(
            metric="geneval",
            detections=_source(detections, detector, color_model),
            threshold=threshold,
            counting_threshold=counting_threshold,
            max_objects=max_objects,
            max_overlap=max_overlap,
            position_threshold=position_threshold,
        )
        super().__init__(protocol, device=device)

    def recorded_inputs(self) -> dict[str, dict[str, Any]]:
        """Name the recording, which the protocol leaves out."""
        spec = self.extractors["detections"]
        if not isinstance(spec, RecordedDetectionsSpec):
            return {}
        digest = f"sha256:{spec.sha256}"
        return {"detections": {"path": spec.path, "n": spec.n, "digest": digest}}

    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdict of each image, by id in natural order."""
        samples, features = self._rows.ordered()
        found = self._judge(samples, features)
        return {sample.id: verdict for sample, verdict in zip(samples, found, strict=True)}

    def _judge(self, samples: Sequence[Sample], features: Mapping[str, Features]) -> list[Verdict]:
        protocol = self.protocol
        assert isinstance(protocol, GenEvalProtocol)
        found = []
        for sample, detections in zip(samples, features["detections"]["detections"], strict=True):
            try:
                verdict = check(
                    _spec(sample),
                    detections,
                    threshold=protocol.threshold,
                    counting_threshold=protocol.counting_threshold,
                    max_objects=protocol.max_objects,
                    max_overlap=protocol.max_overlap,
                    position_threshold=protocol.position_threshold,
                )
            except InputError as error:
                raise InputError(f"image {sample.id!r}: {error}") from error
            found.append(verdict)
        return found

    def scores(self, samples: Sequence[Sample], features: Mapping[str, Features]) -> np.ndarray:
        """Return 1 for a correct image, 0 for another."""
        return np.asarray([v.correct for v in self._judge(samples, features)], dtype=np.float64)

    def groups(self, samples: Sequence[Sample]) -> list[str]:
        """Tasks: the value is the mean of their means."""
        return [_spec(sample)["tag"] for sample in samples]

    def clusters(self, samples: Sequence[Sample]) -> list[str]:
        """Prompts: images of one prompt are not independent."""
        return [_spec(sample).get("prompt") or sample.prompt or sample.id for sample in samples]

    def sample_parts(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Each task, and all images together."""
        tags = np.asarray(self.groups(samples))
        tasks = sorted(set(tags), key=lambda tag: (TASKS.index(tag) if tag in TASKS else 99, tag))
        columns = {f"task/{tag}": np.where(tags == tag, scores, np.nan) for tag in tasks}
        return {**columns, "images": scores}

    def parts(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> dict[str, float]:
        """Share of prompts with any correct image."""
        return {"prompts": summarise(self._judge(samples, features)).prompts}

    def details(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> list[Mapping[str, Any]]:
        """Verdict of each image, and why it is not correct."""
        found = self._judge(samples, features)
        return [{"correct": v.correct, **({"reason": v.reason} if v.reason else {})} for v in found]

    def notes(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> list[str]:
        """Say which tasks of the benchmark have no image."""
        present = set(self.groups(samples))
        missing = [tag for tag in TASKS if tag not in present]
        if not missing:
            return []
        return [
            f"no image for {len(missing)} of the {len(TASKS)} tasks ({', '.join(missing)}): not"
            " comparable with published scores"
        ]


def _spec(sample: Sample) -> Any:
    if sample.spec is None:
        raise InputError(f"image {sample.id!r} has no spec; give the benchmark's metadata row")
    return sample.spec


def _source(
    detections: str | None, detector: Detector | None, color_model: ColorModel | None
) -> ExtractorSpec:
    """Choose where detections come from."""
    if (detections is None) == (detector is None):
        raise UsageError(
            "geneval needs one of detections=FILE (recorded, JSON lines) and detector=FUNCTION"
        )
    if detections is not None:
        if color_model is not None:
            raise UsageError("color_model= needs detector=; recorded detections hold their colours")
        return RecordedDetectionsSpec.create(detections)
    assert detector is not None
    return DetectorSpec.create(detector, color_model)
