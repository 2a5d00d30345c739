"""Pairs as features: scored while preparing, stacked afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from genmetrics.core.batching import Batches
from genmetrics.core.errors import InputError, PairingError
from genmetrics.core.extractor import broken_rows
from genmetrics.core.sample import Item
from genmetrics.extractors.pairs import SquaredErrorSpec, StructuralSimilaritySpec
from genmetrics.stats.pairs import mean_squared_error, ssim

SPECS = [SquaredErrorSpec(), StructuralSimilaritySpec()]


def item(name: str, height: int = 20, width: int = 24, **fields: object) -> Item:
    g = torch.Generator().manual_seed(sum(name.encode()))
    image, reference = (
        torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=g) for _ in range(2)
    )
    return Item(id=name, **{"image": image, "reference": reference, **fields})  # type: ignore[arg-type]


def test_scores_equal_the_pure_functions_in_float64():
    items = [item("a"), item("b", 30, 40)]
    squared, similarity = (spec.build("cpu") for spec in SPECS)
    errors = squared.forward([squared.prepare(i) for i in items])["squared_error"]
    scores = similarity.forward([similarity.prepare(i) for i in items])["ssim"]
    assert errors.dtype == scores.dtype == np.float64
    for k, i in enumerate(items):
        assert errors[k] == mean_squared_error(i.image, i.reference).value
        assert scores[k] == ssim(i.image, i.reference)


def test_extract_handles_any_number_of_pairs_whatever_the_batch():
    extractor = SquaredErrorSpec().build("cpu")
    prepared = [extractor.prepare(item(name)) for name in "abcde"]
    whole = Batches(extractor, 5).run(prepared)
    for size in (1, 2, 3):
        cut = Batches(extractor, size).run(prepared)
        assert np.array_equal(cut["squared_error"], whole["squared_error"])


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.extractor)
def test_a_mask_over_everything_is_said_by_its_share_and_breaks_no_row(spec):
    extractor = spec.build("cpu")
    everything = torch.ones(20, 24, dtype=torch.bool)
    features = extractor.forward(
        [extractor.prepare(item("a", mask=everything)), extractor.prepare(item("b"))]
    )
    assert features["outside"].tolist() == [0.0, 1.0]
    assert broken_rows(spec, features) == {}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.extractor)
def test_errors_name_the_pair_and_what_is_wrong(spec):
    extractor = spec.build("cpu")
    other = torch.zeros(3, 65, 64, dtype=torch.uint8)
    with pytest.raises(PairingError, match=r"'cat' is 24x20 but its reference is 64x65"):
        extractor.prepare(item("cat", reference=other))
    with pytest.raises(PairingError, match=r"'cat' has no reference"):
        extractor.prepare(item("cat", reference=None))
    with pytest.raises(InputError, match=r"'cat': the mask is torch.bool|'cat': the mask is bool"):
        extractor.prepare(item("cat", mask=torch.zeros(5, 5, dtype=torch.bool)))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.extractor)
def test_files_of_unequal_size_are_named(spec):
    small = torch.zeros(3, 19, 24, dtype=torch.uint8)
    pair = item("a", reference=small, names={"image": "gen/a.png", "reference": "ref/a.png"})
    with pytest.raises(PairingError) as caught:
        spec.build("cpu").prepare(pair)
    assert str(caught.value) == (
        "gen/a.png is 24x20 but its reference ref/a.png is 24x19; give both the same size"
    )


def test_ssim_of_a_picture_below_its_window_names_picture_and_size():
    extractor = StructuralSimilaritySpec().build("cpu")
    with pytest.raises(InputError, match=r"'icon'.*11x11.*10x16"):
        extractor.prepare(item("icon", 16, 10))


def test_luma_and_rgb_are_different_work_and_a_mask_is_content():
    assert SquaredErrorSpec().fingerprint != SquaredErrorSpec(channel="y-studio").fingerprint
    assert "mask" in SquaredErrorSpec.inputs
