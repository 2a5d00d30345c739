"""Where pictures are prepared: on the CPU, or on the device while the next ones are decoded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from genmetrics.core import device as devices
from genmetrics.core.device import send_ahead
from genmetrics.core.errors import InputError, UsageError
from genmetrics.core.sample import Item
from genmetrics.extractors import _model
from genmetrics.extractors._model import ImageExtractor, ImageSpec
from genmetrics.extractors.decoders import decodes_of, require_decode
from genmetrics.extractors.inception import InceptionSpec
from genmetrics.extractors.pairs import SquaredErrorSpec
from genmetrics.extractors.resize import ON_DEVICE, RESIZES

from .helpers import relative, run

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Pool(nn.Module):
    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return {"pool": images.mean(dim=(2, 3))}


class PoolSpec(ImageSpec):
    outputs = {"pool": "vector"}

    def check(self) -> None:
        pass

    def _build(self, device: str) -> ImageExtractor:
        return ImageExtractor(self, device, Pool())


def spec(resize: str, **choices) -> PoolSpec:
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    return PoolSpec(extractor="pool", weights="none", sha256="", resize=resize, size=28, mean=mean,
                    std=std, **choices)  # fmt: skip


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """torch's device without memory in place of a CUDA device; lists the shapes sent there."""
    sent: list[tuple[int, ...]] = []

    def pinned(tensor: Tensor) -> Tensor:
        sent.append(tuple(tensor.shape))
        return tensor

    monkeypatch.setattr(devices, "SENT_AHEAD", ("meta",))
    monkeypatch.setattr(Tensor, "pin_memory", pinned)
    return sent


PICTURE = torch.arange(3 * 40 * 50).remainder(256).to(torch.uint8).view(3, 40, 50)


@pytest.mark.parametrize("resize", RESIZES)
def test_floats_are_resized_on_the_device_and_bytes_by_pillow(resize: str, card: list) -> None:
    prepared = spec(resize).build("meta").prepare(Item(id="a", image=PICTURE))
    assert prepared.device.type == "meta"
    assert prepared.shape == (3, 28, 28)
    assert prepared.dtype == torch.float32
    # the picture itself, or what Pillow made of it: one transfer either way
    assert card == [(3, 40, 50) if resize in ON_DEVICE else (3, 28, 28)]


@pytest.mark.parametrize("resize", RESIZES)
def test_resizes_that_say_so_compute_where_the_image_lies(resize: str) -> None:
    image = torch.zeros(3, 40, 50, dtype=torch.uint8, device="meta")
    if resize in ON_DEVICE:
        assert RESIZES[resize](image, 28).device.type == "meta"
    else:
        with pytest.raises(NotImplementedError, match="no data"):
            RESIZES[resize](image, 28)


def test_one_copy_of_a_picture_serves_all_extractors(card: list) -> None:
    item = Item(id="a", image=PICTURE)
    for resize in ("clean", "tf1", "torchmetrics", "clean"):
        spec(resize).build("meta").prepare(item)
    assert card == [(3, 40, 50)]
    assert item.image is PICTURE  # extractors without a network find it where it was
    pairs = SquaredErrorSpec().build("meta")
    assert pairs.prepare(Item(id="a", image=PICTURE, reference=PICTURE)).value == 0
    assert card == [(3, 40, 50)]


def test_a_very_large_picture_is_resized_on_the_cpu(card: list, monkeypatch) -> None:
    monkeypatch.setattr(_model, "_LARGEST_REDUCTION", 1)
    extractor = spec("clean").build("meta")
    item = Item(id="a", image=PICTURE)
    assert extractor.prepare(item).device.type == "meta"
    assert card == [(3, 28, 28)]


@pytest.mark.parametrize("resize", RESIZES)
def test_on_a_cpu_nothing_moves(resize: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(tensor: Tensor) -> Tensor:
        raise AssertionError("pinned on a CPU")

    monkeypatch.setattr(Tensor, "pin_memory", never)
    it = spec(resize)
    prepared = it.build("cpu").prepare(Item(id="a", image=PICTURE))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (it.mean, it.std))
    assert torch.equal(prepared, (RESIZES[resize](PICTURE, 28) / 255 - mean) / std)
    assert send_ahead(PICTURE, "cpu") is send_ahead(PICTURE, "mps") is PICTURE


def test_a_picture_on_the_device_already_is_not_pinned(card: list) -> None:
    there = PICTURE.to("meta")
    assert spec("clean").build("meta").prepare(Item(id="a", image=there)).device.type == "meta"
    assert card == []


# -- who decodes -----------------------------------------------------------------------------------


def test_decode_enters_the_fingerprint_only_where_it_is_not_pillows() -> None:
    plain, other = spec("clean"), spec("clean", decode="nvjpeg")
    assert "decode" not in plain.to_dict()
    assert other.to_dict() == {**plain.to_dict(), "decode": "nvjpeg"}
    assert plain.fingerprint != other.fingerprint


def test_each_extractor_reads_the_pixels_its_protocol_names() -> None:
    item = Item(id="a", image=PICTURE, decoded={"nvjpeg": 255 - PICTURE})
    by_pil, by_nvjpeg = (spec("clean", decode=d).build("cpu") for d in ("pil", "nvjpeg"))
    other = Item(id="b", image=255 - PICTURE)
    assert torch.equal(by_nvjpeg.prepare(item), by_pil.prepare(other))
    assert not torch.equal(by_nvjpeg.prepare(item), by_pil.prepare(item))
    # a file that was not for nvJPEG
    assert torch.equal(by_nvjpeg.prepare(other), by_pil.prepare(other))
    with pytest.raises(InputError, match="'c' has no image"):
        by_pil.prepare(Item(id="c", decoded={"nvjpeg": PICTURE}))


def test_which_decoders_a_run_needs() -> None:
    specs = [spec("clean", decode="nvjpeg"), SquaredErrorSpec()]
    assert decodes_of(specs) == {"nvjpeg", "pil"}
    assert decodes_of(specs[:1]) == {"nvjpeg"}


def test_nvjpeg_elsewhere_than_on_cuda_is_refused() -> None:
    require_decode("cuda:1", "nvjpeg")
    require_decode("cpu", "pil")
    with pytest.raises(UsageError, match="decode 'nvjpeg' needs a CUDA device.*on cpu"):
        require_decode("cpu", "nvjpeg")
    with pytest.raises(UsageError, match="decode='jpeg' is not one of pil, nvjpeg"):
        require_decode("cuda", "jpeg")


# -- on a device -----------------------------------------------------------------------------------


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("resize", RESIZES)
def test_preparing_on_cuda_gives_what_the_cpu_gives(resize: str, items: list[Item]) -> None:
    here, there = (spec(resize).build(device) for device in ("cpu", "cuda"))
    for item in items:
        prepared = there.prepare(item)
        assert prepared.device.type == "cuda"
        # 0.005 of 255 levels, over the smallest std
        assert torch.allclose(prepared.cpu(), here.prepare(item), atol=0.005 / 255 / 0.2)


@pytest.mark.gpu
@needs_cuda
def test_a_reduction_that_cuda_refuses_runs_on_the_cpu() -> None:
    image = torch.randint(0, 256, (3, 40, 33 * 28), dtype=torch.uint8)
    here, there = (
        spec("clean").build(d).prepare(Item(id="a", image=image)) for d in ("cpu", "cuda")
    )
    assert torch.allclose(there.cpu(), here, atol=1e-4)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("protocol", ["clean", "tf1", "pytorch-fid", "torchmetrics"])
def test_features_on_cuda_are_those_of_the_cpu(
    protocol: str, inception_file: Path, items: list[Item]
) -> None:
    made = InceptionSpec.create(protocol, weights=inception_file)
    here, there = (run(made.build(device), items) for device in ("cpu", "cuda"))
    assert relative(there["2048"], here["2048"]) < 1e-3
