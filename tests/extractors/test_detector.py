"""Detections from a function of the caller's own."""

from __future__ import annotations

import pytest
import torch

from genmetrics.core.batching import Batches
from genmetrics.core.errors import FeatureError, UsageError
from genmetrics.core.sample import Item
from genmetrics.extractors.detector import DetectorSpec


def bright(images):
    """One detection an image, scored by its brightness, with a mask that is not kept."""
    return [
        [
            {
                "label": "light",
                "box": torch.tensor([0.0, 0.0, image.shape[2], image.shape[1]]),
                "score": image.float().mean() / 255,
                "mask": torch.ones(image.shape[1:], dtype=torch.bool),
            }
        ]
        for image in images
    ]


def first_color(image, detections):
    assert all("mask" in detection for detection in detections)
    return ["red" if image[0].float().mean() > 128 else "black" for _ in detections]


def run(spec: DetectorSpec, images: list[torch.Tensor], batch: int = 2):
    extractor = spec.build("cpu")
    items = [Item(id=str(i), image=image) for i, image in enumerate(images)]
    return Batches(extractor, batch).run([extractor.prepare(item) for item in items])["detections"]


IMAGES = [
    torch.full((3, 4, 5 + i), value, dtype=torch.uint8) for i, value in enumerate((0, 51, 255))
]


def test_records_are_plain_and_do_not_depend_on_the_batch():
    found = run(DetectorSpec.create(bright), IMAGES)
    assert [d[0]["score"] for d in found] == pytest.approx([0.0, 0.2, 1.0])
    assert found[2] == [{"label": "light", "box": [0.0, 0.0, 7.0, 4.0], "score": 1.0}]
    assert run(DetectorSpec.create(bright), IMAGES, batch=3) == found


def test_a_colour_model_names_the_colour_of_each():
    found = run(DetectorSpec.create(bright, first_color), IMAGES)
    assert [d[0]["color"] for d in found] == ["black", "black", "red"]


def test_functions_are_known_by_fingerprint_or_name():
    plain = DetectorSpec.create(bright)
    assert ".test_detector.bright (" in plain.name
    assert plain.fingerprint != DetectorSpec.create(bright, first_color).fingerprint

    class Loaded:
        fingerprint = "sha256:abc"

        def __call__(self, images):
            return bright(images)

    assert DetectorSpec.create(Loaded()).name == "sha256:abc"


def test_what_is_no_detector_is_refused():
    with pytest.raises(UsageError, match=r"detector='mask2former' cannot be called"):
        DetectorSpec.create("mask2former")  # type: ignore[arg-type]
    with pytest.raises(FeatureError, match="gave 1 lists for 2 images"):
        run(DetectorSpec.create(lambda images: bright(images)[:1]), IMAGES)
