"""EfficientNet-Lite0: the packaged weights are the network they say they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from genmetrics.core.batching import Batches
from genmetrics.core.errors import WeightsError
from genmetrics.core.sample import Item
from genmetrics.extractors.efficientnet_lite0 import EfficientNetLite0Spec
from genmetrics.weights import load_state_dict, require
from tests.extractors.helpers import relative, run


def packaged() -> dict[str, torch.Tensor]:
    state = load_state_dict(require("efficientnet-lite0"))
    return {name: tensor.contiguous() for name, tensor in state.items()}


CATS = {281, 282, 285}  # ImageNet: tabby, tiger cat, Egyptian cat
ESPRESSO = {967}


@pytest.mark.parametrize(("photo", "classes"), [("chelsea", CATS), ("coffee", ESPRESSO)])
def test_it_recognises_the_sample_photos(photo: str, classes: set[int]) -> None:
    import skimage.data

    pixels = getattr(skimage.data, photo)()
    item = Item(id=photo, image=torch.from_numpy(pixels).permute(2, 0, 1))
    pooled = torch.from_numpy(run(EfficientNetLite0Spec.create().build("cpu"), [item])["pooled"])
    weight, bias = list(packaged().values())[-2:]
    scores = (pooled @ weight.T + bias)[0].softmax(0)
    assert int(scores.argmax()) in classes
    assert scores.max() > 0.3


def test_timm_called_directly(items: list[Item]) -> None:
    import timm
    from timm.data import create_transform, resolve_data_config

    network = timm.create_model("tf_efficientnet_lite0").eval()
    # the packaged file has timm's tensors in timm's order, under other names
    network.load_state_dict(dict(zip(network.state_dict(), packaged().values(), strict=True)))
    network.reset_classifier(0)
    transform = create_transform(**resolve_data_config(network.default_cfg))
    pictures = [
        Image.fromarray(item.image.permute(1, 2, 0).contiguous().numpy())
        for item in items
        if item.image is not None
    ]
    with torch.no_grad():
        expected = network(torch.stack([transform(picture) for picture in pictures]))
    mine = run(EfficientNetLite0Spec.create().build("cpu"), items)["pooled"]
    assert mine.shape == (len(items), 1280)
    assert relative(mine, expected) < 1e-5


def test_files_with_timms_names_load_whatever_their_order(tmp_path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    names = timm.create_model("tf_efficientnet_lite0").state_dict()
    save_file(dict(zip(names, packaged().values(), strict=True)), tmp_path / "timm.safetensors")
    item = Item(id="x", image=torch.arange(3 * 64 * 48).remainder(251).byte().view(3, 64, 48))
    ours, timms = (
        run(EfficientNetLite0Spec.create(weights=weights).build("cpu"), [item])["pooled"]
        for weights in (None, tmp_path / "timm.safetensors")
    )
    assert (ours == timms).all()


def test_identity() -> None:
    spec = EfficientNetLite0Spec.create()
    assert len(spec.sha256) == 64
    assert spec.to_dict()["weights"] == "efficientnet-lite0"
    spec.check()


def test_another_networks_file_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "w.pth")
    spec = EfficientNetLite0Spec.create(weights=tmp_path / "w.pth")
    with pytest.raises(WeightsError, match=r"296 missing .* and 1 unexpected \(w\)"):
        spec.build("cpu")


@pytest.mark.parametrize("change", ["renamed", "lacking", "further", "half of timm's"])
def test_the_order_of_a_file_says_nothing_of_what_its_tensors_are(
    change: str, tmp_path: Path
) -> None:
    """A file of the right length under names that nobody knows was taken by its order."""
    state = packaged()
    if change == "renamed":
        state = {name.replace("_blocks", "layers"): tensor for name, tensor in state.items()}
    elif change == "lacking":
        del state["_blocks.3._bn1.running_var"]
    elif change == "further":
        state["_blocks.16._bn1.weight"] = torch.zeros(1)
    else:
        state["conv_stem.weight"] = state.pop("_conv_stem.weight")
    torch.save(state, tmp_path / "w.pth")
    spec = EfficientNetLite0Spec.create(weights=tmp_path / "w.pth")
    with pytest.raises(WeightsError, match="this is another network's file") as caught:
        spec.build("cpu")
    assert "\n" not in str(caught.value)


def test_the_packaged_names_load_whatever_their_order(tmp_path: Path) -> None:
    torch.save(dict(reversed(packaged().items())), tmp_path / "w.pth")
    item = Item(id="x", image=torch.arange(3 * 64 * 48).remainder(251).byte().view(3, 64, 48))
    ours, reordered = (
        run(EfficientNetLite0Spec.create(weights=weights).build("cpu"), [item])["pooled"]
        for weights in (None, tmp_path / "w.pth")
    )
    assert (ours == reordered).all()


def test_batch_sizes_that_are_multiples_of_the_slice_give_equal_bits():
    """The network takes two images at a time, whatever the batch; the eleventh gets a copy."""
    generator = torch.Generator().manual_seed(0)
    prepared = list(torch.randn(11, 3, 224, 224, generator=generator))
    extractor = EfficientNetLite0Spec.create().build("cpu")
    assert extractor.fill == 2
    by_two, by_six, by_sixteen = (
        Batches(extractor, size).run(prepared)["pooled"] for size in (2, 6, 16)
    )
    assert by_two.shape == (11, 1280)
    assert (by_two == by_six).all() and (by_two == by_sixteen).all()


def test_a_misshapen_tensor_is_named(tmp_path: Path) -> None:
    state = packaged()
    name = next(iter(state))
    torch.save({**state, name: torch.zeros(32, 3, 5, 5)}, tmp_path / "w.pth")
    spec = EfficientNetLite0Spec.create(weights=tmp_path / "w.pth")
    with pytest.raises(WeightsError, match=r"conv_stem\.weight has shape \(32, 3, 5, 5\)"):
        spec.build("cpu")
