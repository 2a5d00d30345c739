"""Inception features against the four tools whose protocols they are, on the same weights."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from genmetrics.core.batching import Batches
from genmetrics.core.errors import UsageError, WeightsError
from genmetrics.core.extractor import Extractor, require_sound
from genmetrics.core.sample import Item
from genmetrics.extractors.inception import PREPROCESSINGS, InceptionSpec
from tests.extractors.helpers import relative, run

CLOSE = 1e-5


def build(protocol: str, path: Path, **options: Any) -> Extractor:
    return InceptionSpec.create(protocol, weights=path, **options).build("cpu")


def test_tf1_is_torch_fidelity(
    inception_file: Path, items: list[Item], torch_fidelity_inception: nn.Module
) -> None:
    mine = run(build("tf1", inception_file), items)
    for i, item in enumerate(items):
        assert item.image is not None
        pooled, logits, *_ = torch_fidelity_inception(item.image[None])
        assert relative(mine["2048"][i : i + 1], pooled) < CLOSE
        assert relative(mine["logits_unbiased"][i : i + 1], logits) < CLOSE


def test_torchmetrics(inception_file: Path, items: list[Item]) -> None:
    from torchmetrics.image.fid import NoTrainInceptionV3

    theirs = NoTrainInceptionV3("theirs", ["2048"], str(inception_file))
    mine = run(build("torchmetrics", inception_file), items)["2048"]
    for i, item in enumerate(items):
        assert item.image is not None
        assert relative(mine[i : i + 1], theirs(item.image[None])) < CLOSE


def test_pytorch_fid(
    inception_file: Path, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytorch_fid import inception as theirs

    monkeypatch.setattr(
        theirs,
        "load_state_dict_from_url",
        lambda *_, **__: torch.load(inception_file, weights_only=True),
    )
    network = theirs.InceptionV3([3]).eval()
    mine = run(build("pytorch-fid", inception_file), items)["2048"]
    with torch.no_grad():
        for i, item in enumerate(items):
            assert item.image is not None
            expected = network(item.image[None] / 255)[0][:, :, 0, 0]
            assert relative(mine[i : i + 1], expected) < CLOSE


def test_clean_fid(
    inception_file: Path, items: list[Item], torch_fidelity_inception: nn.Module
) -> None:
    """Its own resize before the network; at 299 x 299 the network's resize does nothing."""
    from cleanfid.resize import build_resizer

    resize = build_resizer("clean")
    mine = run(build("clean", inception_file), items)["2048"]
    for i, item in enumerate(items):
        assert item.image is not None
        levels = resize(item.image.permute(1, 2, 0).numpy())
        x = (torch.from_numpy(levels.transpose(2, 0, 1))[None] - 128) / 128
        expected = network_alone(torch_fidelity_inception, x)
        assert relative(mine[i : i + 1], expected) < CLOSE


def network_alone(network: Any, x: torch.Tensor) -> torch.Tensor:
    """Run torch-fidelity's blocks on a prepared input."""
    for name, block in network.named_children():
        if name != "fc":
            x = block(x)
    return x.flatten(1)


@pytest.mark.parametrize("layer", ["64", "192", "768"])
def test_other_layers(
    layer: str, inception_file: Path, items: list[Item], torch_fidelity_inception: nn.Module
) -> None:
    extractor = build("tf1", inception_file, layer=layer)
    assert extractor.spec.outputs == {layer: "vector"}
    item = items[1]
    assert item.image is not None
    theirs = torch_fidelity_inception(item.image[None])[2 + ["64", "192", "768"].index(layer)]
    mine = run(extractor, [item])
    assert list(mine) == [layer]
    assert relative(mine[layer], theirs) < CLOSE


def test_protocols_are_told_apart(inception_file: Path) -> None:
    specs = [InceptionSpec.create(name, weights=inception_file) for name in PREPROCESSINGS]
    specs.append(InceptionSpec.create("clean", weights=inception_file, layer="768"))
    specs.append(replace(specs[0], precision="bf16"))
    assert len({spec.fingerprint for spec in specs}) == len(specs)
    assert "path" not in specs[0].to_dict()


def test_the_default_is_the_hash_checked_port() -> None:
    """Another network, or another layer, gave values off by factors up to 1e5."""
    spec = InceptionSpec.create()
    assert spec.weights == "inception-2015-12-05"
    assert spec.sha256.startswith("6726825d0af5f729cebd5821db510b11b1cfad8f")
    assert (spec.layer, spec.resize, spec.size) == ("2048", "clean", 299)


def test_fixed_gradient_gives_2048_features(inception_file: Path) -> None:
    ramp = (torch.arange(299) * 255 // 298).to(torch.uint8).expand(3, 299, 299)
    extractor = build("clean", inception_file)
    features = run(extractor, [Item(id="ramp", image=ramp)])
    assert features["2048"].shape == (1, 2048)
    assert features["logits_unbiased"].shape == (1, 1008)
    assert all(rows.dtype == np.float32 for rows in features.values())
    require_sound(extractor.spec, features, ["ramp"])


def test_companions_and_position_do_not_matter(inception_file: Path, items: list[Item]) -> None:
    extractor = build("clean", inception_file)
    prepared = [extractor.prepare(item) for item in items[:3]]
    a = extractor.forward(prepared)["2048"]
    b = extractor.forward([prepared[2], prepared[0], prepared[0]])["2048"]
    assert np.array_equal(a[[2, 0, 0]], b)
    filled = Batches(extractor, 3).run(prepared[:2])["2048"]
    assert np.array_equal(filled, a[:2])


def test_training_mode_changes_nothing(inception_file: Path, items: list[Item]) -> None:
    extractor: Any = build("tf1", inception_file)
    before = run(extractor, items[:1])["2048"]
    nn.ModuleList([extractor.network]).train().apply(lambda module: module.train())
    assert np.array_equal(run(extractor, items[:1])["2048"], before)


def test_bfloat16_is_near_and_another_protocol(inception_file: Path, items: list[Item]) -> None:
    exact = run(build("clean", inception_file), items[:1])["2048"]
    spec = replace(InceptionSpec.create("clean", weights=inception_file), precision="bf16")
    rough = run(spec.build("cpu"), items[:1])["2048"]
    assert rough.dtype == np.float32
    assert 1e-5 < relative(rough, exact) < 0.05


def test_tf32_on_a_cpu_says_what_it_computed(inception_file: Path) -> None:
    spec = replace(InceptionSpec.create(weights=inception_file), precision="tf32")
    with pytest.warns(UserWarning, match="computing in fp32"):
        extractor = spec.build("cpu")
    assert extractor.spec == InceptionSpec.create(weights=inception_file)


def test_one_network_a_process(inception_file: Path) -> None:
    first = build("clean", inception_file)
    assert build("clean", inception_file) is first
    assert build("tf1", inception_file) is not first
    watch = weakref.ref(first)
    del first
    gc.collect()
    assert watch() is None  # nothing else kept it alive


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda state: state.pop("fc.bias"), r"1 missing \(fc\.bias\)"),
        (lambda state: state.update(head=torch.zeros(1)), r"1 unexpected \(head\)"),
        (
            lambda state: state.update({"fc.weight": torch.zeros(1000, 2048)}),
            r"fc\.weight has shape \(1000, 2048\), expected \(1008, 2048\)",
        ),
        (
            lambda state: state.update({"Conv2d_3b_1x1.conv.weight": torch.zeros(80, 64, 3, 3)}),
            r"Conv2d_3b_1x1\.conv\.weight has shape",
        ),
    ],
)
def test_weights_of_another_network_are_refused(
    edit: Any, message: str, inception_file: Path, tmp_path: Path
) -> None:
    state = torch.load(inception_file, weights_only=True)
    edit(state)
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(WeightsError, match=message):
        build("clean", tmp_path / "w.pth")


def test_missing_weights_say_what_to_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENMETRICS_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    spec = InceptionSpec.create()
    with pytest.raises(WeightsError, match="weights fetch inception-2015-12-05"):
        spec.check()
    with pytest.raises(WeightsError, match="weights fetch inception-2015-12-05"):
        spec.build("cpu")


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'clean'"):
        InceptionSpec.create("claen")
    with pytest.raises(UsageError, match="no layer '1024'"):
        InceptionSpec.create(layer="1024")


def test_specs_are_made_without_torch() -> None:
    code = """
import sys
from genmetrics.extractors import clip, dinov2, efficientnet_lite0, inception
inception.InceptionSpec.create()
efficientnet_lite0.EfficientNetLite0Spec.create()
dinov2.DINOv2Spec.create()
clip.ClipTextSpec.create(model='ViT-B-32', pretrained='openai')
clip.ClipImageSpec.create(model='openai/clip-vit-large-patch14-336', resize='square_crop')
heavy = ('torch', 'PIL', 'timm', 'open_clip', 'transformers')
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
