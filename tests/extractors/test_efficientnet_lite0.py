"""EfficientNet-Lite0: the packaged weights are the network they say they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from genmetrics.core.errors import WeightsError
from genmetrics.core.sample import Item
from genmetrics.extractors.efficientnet_lite0 import EfficientNetLite0Spec
from tests.extractors.helpers import relative, run

CATS = {281, 282, 285}  # ImageNet: tabby, tiger cat, Egyptian cat
ESPRESSO = {967}


@pytest.mark.parametrize(("photo", "classes"), [("chelsea", CATS), ("coffee", ESPRESSO)])
def test_it_recognises_the_sample_photos(photo: str, classes: set[int]) -> None:
    import skimage.data

    pixels = getattr(skimage.data, photo)()
    item = Item(id=photo, image=torch.from_numpy(pixels).permute(2, 0, 1))
    spec = EfficientNetLite0Spec.create()
    x = spec.build("cpu").prepare(item)[None]
    with torch.no_grad():
        scores = spec.load()(x)[0].softmax(0)
    assert int(scores.argmax()) in classes
    assert scores.max() > 0.3


def test_timm_called_directly(items: list[Item]) -> None:
    import timm
    from timm.data import create_transform, resolve_data_config

    spec = EfficientNetLite0Spec.create()
    network = timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
    network.load_state_dict(spec.load().state_dict(), strict=False)
    transform = create_transform(**resolve_data_config(network.default_cfg))
    pictures = [
        Image.fromarray(item.image.permute(1, 2, 0).contiguous().numpy())
        for item in items
        if item.image is not None
    ]
    with torch.no_grad():
        expected = network(torch.stack([transform(picture) for picture in pictures]))
    mine = run(spec.build("cpu"), items)["pooled"]
    assert mine.shape == (len(items), 1280)
    assert relative(mine, expected) < 1e-5


def test_identity() -> None:
    spec = EfficientNetLite0Spec.create()
    assert len(spec.sha256) == 64
    assert spec.to_dict()["weights"] == "efficientnet-lite0"
    spec.check()


def test_another_networks_file_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "w.pth")
    spec = EfficientNetLite0Spec.create(weights=tmp_path / "w.pth")
    with pytest.raises(WeightsError, match="holds 1 tensors"):
        spec.build("cpu")


def test_batch_sizes_that_are_multiples_of_four_give_equal_bits():
    """The network takes four images at a time, whatever the batch."""
    generator = torch.Generator().manual_seed(0)
    prepared = list(torch.randn(10, 3, 224, 224, generator=generator))
    extractor = EfficientNetLite0Spec.create().build("cpu")
    by_four, by_eight, by_sixteen = (
        extractor.extract(prepared, size)["pooled"] for size in (4, 8, 16)
    )
    assert (by_four == by_eight).all() and (by_four == by_sixteen).all()
