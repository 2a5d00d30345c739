"""What extractors need, said all at once, and whether it is what was published."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from genmetrics.core.errors import MissingExtraError, WeightsError
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.extractors.clip import ClipImageSpec
from genmetrics.extractors.dinov2 import DINOv2Spec
from genmetrics.extractors.efficientnet_lite0 import EfficientNetLite0Spec
from genmetrics.extractors.inception import InceptionSpec
from genmetrics.extractors.needs import check_all, replacement, weights_of
from genmetrics.extractors.pairs import SquaredErrorSpec
from genmetrics.weights import require

CLIP = "openai/clip-vit-base-patch32"


@pytest.fixture(autouse=True)
def nothing_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GENMETRICS_HOME", "TORCH_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("GENMETRICS_WEIGHTS", "GENMETRICS_MANIFEST", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)


def test_all_missing_weights_are_named_at_once() -> None:
    """A suite whose weights were named one at a time takes a run for each."""
    specs = [
        InceptionSpec.create("clean"),
        EfficientNetLite0Spec.create(),
        InceptionSpec.create("tf1"),
        ClipImageSpec.create(model=CLIP),
        SquaredErrorSpec(),
    ]
    with pytest.raises(WeightsError) as caught:
        check_all(specs)
    said = str(caught.value)
    assert f"run `genmetrics weights fetch inception-2015-12-05 {CLIP}`" in said
    assert said.startswith("2 models lack weights")
    assert "\n" not in said
    assert said.count("weights 'inception-2015-12-05'") == 1
    assert "GENMETRICS_HOME" in said, "and each by hand"


def test_one_missing_file_is_said_as_ever() -> None:
    spec = InceptionSpec.create("clean")
    with pytest.raises(WeightsError) as alone:
        spec.check()
    with pytest.raises(WeightsError) as caught:
        check_all([spec, EfficientNetLite0Spec.create(), spec])
    assert str(caught.value) == str(alone.value)


def test_nothing_is_missing() -> None:
    check_all([])
    check_all([EfficientNetLite0Spec.create(), SquaredErrorSpec()])


def test_another_error_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(self: ExtractorSpec) -> None:
        raise MissingExtraError("DINOv2", "transformers")

    monkeypatch.setattr(DINOv2Spec, "check", lacking)
    with pytest.raises(MissingExtraError):
        check_all([InceptionSpec.create("clean"), DINOv2Spec.create()])


def test_what_fetch_takes(tmp_path: Path, inception_file: Path) -> None:
    assert weights_of(InceptionSpec.create("tf1")) == "inception-2015-12-05"
    assert weights_of(ClipImageSpec.create(model=CLIP)) == CLIP
    assert weights_of(ClipImageSpec.create(model=f"{CLIP}@main")) == f"{CLIP}@main"
    assert weights_of(DINOv2Spec.create()) == "facebook/dinov2-large"
    assert weights_of(SquaredErrorSpec()) is None
    assert weights_of(InceptionSpec.create("tf1", weights=inception_file)) is None
    assert weights_of(DINOv2Spec.create(weights=tmp_path)) is None
    assert weights_of(DINOv2Spec.create(model=str(tmp_path))) is None


def test_weights_of_the_users_own_are_marked(inception_file: Path) -> None:
    note = replacement(InceptionSpec.create("clean", weights=inception_file))
    assert note is not None
    sha256 = hashlib.sha256(inception_file.read_bytes()).hexdigest()
    assert "inception-2015-12-05 are not the published ones" in note
    assert f"{inception_file} (sha256 {sha256[:16]})" in note
    assert replacement(InceptionSpec.create("clean")) is None
    assert replacement(SquaredErrorSpec()) is None


def test_a_copy_of_the_published_file_is_no_replacement(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pth"
    copy.write_bytes(require("efficientnet-lite0").read_bytes())
    assert replacement(EfficientNetLite0Spec.create(weights=copy)) is None
    copy.write_bytes(copy.read_bytes()[:-1])
    assert replacement(EfficientNetLite0Spec.create(weights=copy)) is not None


def test_a_folder_in_place_of_a_hub_model_is_marked_unless_it_has_its_content(
    tmp_path: Path,
) -> None:
    mine = tmp_path / "mine"
    by_hand = tmp_path / "GENMETRICS_HOME" / "weights" / "facebook" / "dinov2-large"
    for folder in (mine, by_hand):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"tensors")
    assert replacement(DINOv2Spec.create()) is None
    assert replacement(DINOv2Spec.create(weights=mine)) is None
    (mine / "model.safetensors").write_bytes(b"others")
    note = replacement(DINOv2Spec.create(weights=mine))
    assert note is not None
    assert str(mine) in note
    assert replacement(DINOv2Spec.create(model=str(mine))) is None, "its name says 'local'"
