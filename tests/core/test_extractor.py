from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from genmetrics.core.batching import Batches
from genmetrics.core.errors import FeatureError
from genmetrics.core.extractor import (
    Extractor,
    ExtractorSpec,
    broken_rows,
    require_sound,
)
from genmetrics.core.rows import take


@dataclass(frozen=True, kw_only=True)
class ToySpec(ExtractorSpec):
    outputs = {"v": "vector", "s": "score", "r": "record"}
    extractor: str = "toy"

    def check(self) -> None:
        pass

    def build(self, device: str) -> Toy:
        return Toy(self, device)


class Toy(Extractor):
    shapes: list[int]

    def prepare(self, item):
        return item

    def forward(self, prepared):
        self.shapes.append(len(prepared))
        values = np.asarray(prepared, np.float32)
        return {"v": values[:, None] + 1, "s": values, "r": [{"x": float(p)} for p in prepared]}


def toy() -> Toy:
    found = Toy(ToySpec(), "cpu")
    found.shapes = []
    return found


def test_every_forward_has_the_fixed_batch_shape_and_surplus_rows_are_dropped():
    extractor = toy()
    features = Batches(extractor, 3).run(list(range(7)))
    assert extractor.shapes == [3, 3, 3]
    assert features["s"].tolist() == list(range(7))
    assert len(features["r"]) == 7


@pytest.mark.parametrize(
    ("fill", "shapes"), [(None, [8, 8]), (1, [8, 3]), (4, [8, 4]), (16, [8, 8])]
)
def test_a_short_batch_is_filled_up_to_what_the_extractor_says(fill, shapes):
    extractor = toy()
    extractor.fill = fill
    assert Batches(extractor, 8).run(list(range(11)))["s"].tolist() == list(range(11))
    assert extractor.shapes == shapes


def test_take_selects_rows_of_every_kind():
    features = take(Batches(toy(), 4).run(list(range(4))), [2, 0])
    assert features["v"][:, 0].tolist() == [3.0, 1.0]
    assert features["r"] == [{"x": 2.0}, {"x": 0.0}]


def test_all_zero_features_are_refused_and_the_sample_named():
    features = {"v": np.array([[1.0, 0.0], [0.0, 0.0]]), "s": np.zeros(2)}
    with pytest.raises(FeatureError, match="norm 0.0 in 'v' at sample 'b'"):
        require_sound(ToySpec(), features, ["a", "b"])


def test_not_finite_features_are_refused_but_infinite_scores_are_not():
    features = {"v": np.array([[1.0], [np.inf], [np.nan]]), "s": np.array([np.inf, 0.0, 1.0])}
    assert sorted(broken_rows(ToySpec(), features)) == [1, 2]
    assert broken_rows(ToySpec(), {"s": np.array([np.nan])}) == {0: "toy gave NaN in 's'"}
