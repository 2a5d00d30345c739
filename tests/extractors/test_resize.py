"""Resizes against the libraries whose convention they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.nn.functional import interpolate

from genmetrics.extractors import resize
from genmetrics.extractors.resize import RESIZES


def hwc(image: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(image.permute(1, 2, 0).numpy())


def worst(mine: torch.Tensor, theirs: Any) -> float:
    expected = theirs if isinstance(theirs, torch.Tensor) else torch.from_numpy(np.array(theirs))
    return float((mine - expected).abs().max())


def test_clean_is_pillows_float_resize(images: list[torch.Tensor]) -> None:
    from cleanfid.resize import build_resizer

    theirs = build_resizer("clean")
    for image in images:
        assert worst(resize.clean(image, 299), theirs(hwc(image)).transpose(2, 0, 1)) < 0.003


def test_clean_clips_the_overshoot_of_bicubic() -> None:
    edge = torch.zeros(3, 40, 40, dtype=torch.uint8)
    edge[:, :, 20:] = 255
    out = resize.clean(edge, 97)
    assert out.min() == 0
    assert out.max() == 255
    assert not torch.equal(out, out.round())


def test_tf1_is_torch_fidelitys(images: list[torch.Tensor]) -> None:
    from torch_fidelity.interpolate_compat_tensorflow import (
        interpolate_bilinear_2d_like_tensorflow1x,
    )

    for image in images:
        theirs = interpolate_bilinear_2d_like_tensorflow1x(
            image[None].float(), size=(299, 299), align_corners=False
        )[0]
        assert worst(resize.tf1(image, 299), theirs) < 2e-3


def test_tf1_by_hand() -> None:
    """Reads at i * in / out: 0, 1.5 of 3 columns; the half-pixel rule would read 0.25, 1.75."""
    image = torch.tensor([0, 100, 200], dtype=torch.uint8).expand(3, 3, 3)
    assert resize.tf1(image, 2)[0].tolist() == [[0, 150], [0, 150]]


@pytest.mark.parametrize(("name", "antialias"), [("pytorch-fid", False), ("torchmetrics", True)])
def test_half_pixel_bilinear(images: list[torch.Tensor], name: str, antialias: bool) -> None:
    for image in images:
        theirs = interpolate(
            image[None] / 255,
            size=(299, 299),
            mode="bilinear",
            align_corners=False,
            antialias=antialias,
        )[0]
        assert worst(RESIZES[name](image, 299), theirs * 255) < 1e-3


@pytest.mark.parametrize("size", [(225, 224), (226, 224), (227, 224), (640, 427), (100, 333)])
@pytest.mark.parametrize("turned", [False, True])
def test_short_side_crop_is_torchvisions(size: tuple[int, int], turned: bool) -> None:
    from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

    image = random_image(*(size[::-1] if turned else size))
    theirs = Compose([Resize(224, InterpolationMode.BICUBIC), CenterCrop(224)])
    expected = np.asarray(theirs(Image.fromarray(hwc(image)))).transpose(2, 0, 1)
    assert worst(resize.short_side_crop(image, 224), expected) == 0


@pytest.mark.parametrize("size", [(225, 224), (227, 224), (640, 427), (333, 100)])
def test_short_side_crop_floor_is_transformers(size: tuple[int, int]) -> None:
    processors = pytest.importorskip("transformers.models.clip.image_processing_pil_clip")
    image = random_image(*size)
    processor = processors.CLIPImageProcessorPil(do_rescale=False, do_normalize=False)
    expected = processor(Image.fromarray(hwc(image)), return_tensors="np")["pixel_values"][0]
    assert worst(resize.short_side_crop_floor(image, 224), expected) == 0


def test_timm_crop_is_timms(images: list[torch.Tensor]) -> None:
    from timm.data import create_transform

    theirs = create_transform((3, 224, 224), interpolation="bicubic", crop_pct=0.875,
                              mean=(0, 0, 0), std=(1, 1, 1))  # fmt: skip
    for image in images:
        expected = theirs(Image.fromarray(hwc(image))) * 255
        assert worst(resize.timm_crop_875(image, 224), expected) < 1e-4


def test_squash_is_pillow_on_bytes(images: list[torch.Tensor]) -> None:
    for image in images:
        picture = Image.fromarray(hwc(image)).resize((224, 224), Image.Resampling.BICUBIC)
        assert worst(resize.squash(image, 224), np.asarray(picture).transpose(2, 0, 1)) == 0


def test_square_crop_starts_at_half_the_surplus_rounded_down() -> None:
    image = torch.zeros(3, 4, 9, dtype=torch.uint8)
    image[:, :, 2:6] = 200  # surplus 5: columns 2 to 5
    assert torch.equal(resize.square_crop(image, 4), torch.full((3, 4, 4), 200.0))
    assert torch.equal(resize.square_crop(image.mT, 4), torch.full((3, 4, 4), 200.0))


def test_wide_image_is_cropped_and_not_squashed() -> None:
    """A preprocessing rewrite resized to a square without keeping the aspect."""
    image = torch.zeros(3, 224, 896, dtype=torch.uint8)
    image[0] = 255
    image[:, :, 336:560] = torch.tensor([0, 0, 255], dtype=torch.uint8).view(3, 1, 1)
    for name in ("short_side_crop", "short_side_crop_floor", "square_crop"):
        out = RESIZES[name](image, 224)
        assert (out[0] == 0).all(), name
        assert (out[2] == 255).all(), name


def test_tensor_and_pillow_paths_agree() -> None:
    """Thin lines vanished on the path without antialiasing: white columns 0, 8, 16, ... of 64."""
    image = torch.zeros(3, 64, 64, dtype=torch.uint8)
    image[:, :, ::8] = 255
    inner = resize.torchmetrics(image, 8)[:, :, 1:-1]
    assert torch.allclose(inner, torch.tensor(255 / 8), atol=0.5)
    picture = Image.fromarray(hwc(image)).resize((8, 8), Image.Resampling.BILINEAR)
    assert np.abs(np.asarray(picture)[:, 1:-1].astype(float) - 32).max() <= 1
    tensors, pillow = resize.clean(image, 8), resize.squash(image, 8)
    assert worst(tensors, pillow) < 1
    assert tensors[:, :, 1:-1].min() > 20


@pytest.mark.parametrize("name", RESIZES)
def test_layout_of_the_input_does_not_matter(name: str, images: list[torch.Tensor]) -> None:
    image = images[1]
    permuted = torch.from_numpy(hwc(image)).permute(2, 0, 1)
    before = image.clone()
    out = RESIZES[name](image, 64)
    assert torch.equal(out, RESIZES[name](permuted, 64))
    assert torch.equal(image, before)
    assert out.dtype == torch.float32


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 80), st.integers(1, 80), st.integers(0, 255), st.sampled_from(list(RESIZES)))
def test_flat_images_stay_flat(height: int, width: int, level: int, name: str) -> None:
    image = torch.full((3, height, width), level, dtype=torch.uint8)
    out = RESIZES[name](image, 28)
    assert out.shape == (3, 28, 28)
    assert (out - level).abs().max() < 1e-3


def random_image(height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height)
    return torch.randint(0, 256, (3, height, width), generator=generator, dtype=torch.uint8)


# -- four pictures of 60000 x 4 took 8.4 GB, because what the crop drops was resized too -----------

CROPS = ("short_side_crop", "short_side_crop_floor", "timm_crop_875")


def whole(name: str, image: torch.Tensor, size: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same by Pillow on the whole picture."""
    with monkeypatch.context() as patch:
        patch.setattr(resize, "_EXTREME", 10**9)
        return RESIZES[name](image, size)


@pytest.mark.parametrize("name", CROPS)
@pytest.mark.parametrize(
    "shape",
    [
        *((4, 400), (400, 4), (1, 77), (77, 1), (3, 1000), (25, 513), (513, 25)),
        *((80, 2000), (2000, 80), (33, 32 * 33), (32 * 33, 33), (64, 64 * 17 + 5), (7, 7 * 16)),
        *((16 * 7 + 1, 7), (32, 1000), (1000, 32)),  # one of the passes changes nothing
    ],
)
def test_what_the_crop_keeps_is_computed_alone_to_the_bit(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(sum(shape))
    image = torch.from_numpy(rng.integers(0, 256, (3, *shape), np.uint8))
    image[:, :, ::3] = 255 * (image[:, :, ::3] > 128).to(torch.uint8)  # overshoots are clipped
    for size in (32, 65):
        expected = whole(name, image, size, monkeypatch)
        found = RESIZES[name](image, size)
        assert torch.equal(found, expected)
        assert (found.dtype, found.is_contiguous()) == (expected.dtype, expected.is_contiguous())


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(0, 30), st.booleans(), st.integers(0, 10**6)
)
def test_any_long_picture_is_cut_to_the_bit(
    short: int, ratio: int, more: int, tall: bool, seed: int
) -> None:
    shape = (short, short * ratio + more)
    image = np.random.default_rng(seed).integers(0, 256, (3, *shape), np.uint8)
    picture = torch.from_numpy(image)
    picture = picture.mT.contiguous() if tall else picture
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resize, "_EXTREME", 1)
        found = resize.short_side_crop(picture, 29)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resize, "_EXTREME", 10**9)
        assert torch.equal(found, resize.short_side_crop(picture, 29))


@pytest.mark.parametrize("name", sorted(RESIZES))
@pytest.mark.parametrize("shape", [(4, 60_000), (60_000, 4)])
def test_a_long_picture_needs_little_memory(name: str, shape: tuple[int, int]) -> None:
    """Pillow's own memory is not traced, so a process of its own would be needed without this."""
    image = torch.zeros(3, *shape, dtype=torch.uint8)
    calls: list[int] = []
    real = resize._bicubic

    def counted(picture: Any, width: int, height: int) -> Any:
        calls.append(width * height)
        return real(picture, width, height)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resize, "_bicubic", counted)
        assert RESIZES[name](image, 224).shape == (3, 224, 224)
    assert sum(calls) <= 2 * 256 * 256
