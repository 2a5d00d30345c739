"""Which files go to another decoder than Pillow, and what comes back.

torchvision's decoder for the CPU stands in for nvJPEG, which needs a device.
"""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import genmetrics as gm
from genmetrics.core.errors import InputError, UsageError
from genmetrics.extractors import decoders
from genmetrics.run import build as planning
from genmetrics.samples import jpeg
from genmetrics.samples.image import decode
from genmetrics.samples.items import load_item
from genmetrics.samples.jpeg import JpegDecoder, nvjpeg, plain_frame
from genmetrics.samples.media import FileMedia
from genmetrics.samples.sources import read_samples
from tests.samples.make import encode, sound, with_orientation

# decoders of torchvision say since 0.29 that torchcodec follows them
pytestmark = pytest.mark.filterwarnings("ignore:.*TorchVision are deprecated:DeprecationWarning")


def photo(side: int = 96) -> Image.Image:
    from skimage import data

    return Image.fromarray(data.astronaut()[:side, : 2 * side])


def on_the_cpu(encoded):
    from torchvision.io import ImageReadMode, decode_jpeg

    return decode_jpeg(encoded, ImageReadMode.RGB)


@pytest.fixture
def stand_in(monkeypatch):
    """A run that takes the CPU for a CUDA device with nvJPEG; lists the files of each call."""
    calls: list[int] = []

    def decode_together(encoded):
        calls.append(len(encoded))
        return [picture.bitwise_xor(1) for picture in on_the_cpu(encoded)]  # a level off

    decoder = JpegDecoder(decode_together)
    monkeypatch.setattr(jpeg, "nvjpeg", lambda device: decoder)
    monkeypatch.setattr(planning, "require_decode", lambda device, decode: None)
    return calls


# -- which files -----------------------------------------------------------------------------------

PLAIN = {
    "4:2:0": {},
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "progressive": {"progressive": True},
    "optimised": {"optimize": True},
    "upright": {"exif": with_orientation(1)},
    "a profile and a comment": {"icc_profile": b"x" * 3000, "comment": b"\xff\xd9 \xff\xda"},
    "restart markers": {"restart_marker_rows": 1},
    "a thumbnail in EXIF": {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0\xff\xd8\xff\xd9"},
}


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("quality", [30, 95])
def test_plain_files_come_within_two_levels_of_pillow(kind, quality):
    data = encode(photo(), "JPEG", quality=quality, **PLAIN[kind])
    frame = plain_frame(data)
    assert frame is not None
    assert frame.size == (192, 96)
    picture = JpegDecoder(on_the_cpu)(data, "a.jpg")
    expected = torch.from_numpy(decode(data, "a.jpg").pixels.copy()).permute(2, 0, 1)
    assert picture is not None
    assert picture.shape == expected.shape
    assert (picture.int() - expected.int()).abs().max() <= 2


def never(encoded):
    raise AssertionError("this file is Pillow's")


@pytest.mark.parametrize("orientation", range(2, 9))
def test_rotated_files_are_pillows(orientation):
    data = encode(photo(), "JPEG", exif=with_orientation(orientation))
    assert JpegDecoder(never)(data, "a.jpg") is None


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_files_of_one_or_four_channels_are_pillows(mode):
    assert plain_frame(encode(photo().convert(mode), "JPEG")) is None


def test_files_whose_channels_are_red_green_and_blue_are_pillows():
    data = encode(photo(), "JPEG", keep_rgb=True)
    assert Image.open(io.BytesIO(data)).mode == "RGB"
    assert plain_frame(data) is None


def test_everything_that_is_no_jpeg_is_pillows():
    for name, data in sound().items():
        assert plain_frame(data) is None or "jpeg" in name.lower() or "jpg" in name.lower(), name
    assert plain_frame(b"") is plain_frame(b"\xff\xd8") is plain_frame(b"\xff\xd8\xff\xd9") is None


def changed(data: bytes, kind: int, offset: int, value: int) -> bytes:
    """Change a byte of the first segment of a kind."""
    at = data.index(bytes((0xFF, kind)))
    return data[: at + offset] + bytes((value,)) + data[at + offset + 1 :]


@pytest.mark.parametrize(
    ("offset", "value"), [(1, 0xC1), (1, 0xC9), (4, 12), (10, 0), (9, 4), (3, 16)]
)
def test_other_codings_and_depths_are_pillows(offset, value):
    """Extended, arithmetic, 12 bits, another number of a channel, of channels, another length."""
    data = encode(photo(), "JPEG")
    assert plain_frame(data) is not None
    assert plain_frame(changed(data, 0xC0, offset, value)) is None


def test_a_file_that_was_cut_is_pillows_who_says_so(tmp_path):
    data = encode(photo(), "JPEG", exif=PLAIN["a thumbnail in EXIF"]["exif"])
    for length in (len(data) // 2, len(data) - 2, 100, 3):
        assert plain_frame(data[:length]) is None
    path = tmp_path / "cut.jpg"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="truncated"):
        FileMedia(str(path)).load_with(JpegDecoder(never))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_header_breaks_the_reader(source):
    data = bytearray(encode(photo(16), "JPEG"))
    for _ in range(source.draw(st.integers(1, 4))):
        data[source.draw(st.integers(0, min(len(data), 700) - 1))] = source.draw(
            st.integers(0, 255)
        )
    plain_frame(bytes(data[: source.draw(st.integers(0, len(data)))]))


def test_a_decompression_bomb_is_refused(monkeypatch):
    data = encode(photo(), "JPEG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(InputError, match="bomb.jpg claims 192×96 pixels"):
        JpegDecoder(never)(data, "bomb.jpg")


# -- threads ---------------------------------------------------------------------------------------


def test_what_threads_ask_for_meanwhile_is_decoded_in_one_call():
    files = [encode(photo(16 + i), "JPEG") for i in range(9)]
    entered, go = threading.Event(), threading.Event()
    calls = []

    def slow(encoded):
        calls.append(len(encoded))
        entered.set()
        assert go.wait(30)
        return on_the_cpu(encoded)

    decoder = JpegDecoder(slow)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(decoder, files[0], "0")
        assert entered.wait(30)
        rest = [pool.submit(decoder, data, str(i)) for i, data in enumerate(files[1:], 1)]
        while len(decoder._waiting) < 8:
            threading.Event().wait(0.001)
        go.set()
        pictures = [future.result(30) for future in (first, *rest)]
    assert calls == [1, 8]
    assert [p.shape[1] for p in pictures] == list(range(16, 25))


def test_one_bad_file_fails_alone():
    bad = encode(photo(20), "JPEG")

    def picky(encoded):
        if any(bytes(data.numpy()) == bad for data in encoded):
            raise RuntimeError("Failed to decode batch:\n 2")
        return on_the_cpu(encoded)

    decoder = JpegDecoder(picky)
    files = [encode(photo(16), "JPEG"), bad, encode(photo(18), "JPEG")]
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(decoder, data, f"{i}.jpg") for i, data in enumerate(files)]
    assert [futures[i].result().shape[1] for i in (0, 2)] == [16, 18]
    with pytest.raises(InputError, match=r"^1.jpg cannot be decoded by nvJPEG: .*batch: 2; "):
        futures[1].result()


def test_nobody_waits_for_a_picture_that_the_decoder_leaves_out():
    with pytest.raises(ValueError, match="shorter"):
        JpegDecoder(lambda encoded: [])(encode(photo(), "JPEG"), "a.jpg")


def test_a_full_memory_is_no_damage_of_the_file():
    def full(encoded):
        raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError):
        JpegDecoder(full)(encode(photo(), "JPEG"), "a.jpg")


# -- items and runs --------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Six plain JPEGs, a rotated one, a grey one and a PNG."""
    rng = np.random.default_rng(0)
    for i in range(6):
        crop = photo().crop((i, i, 80 + i, 60 + i))
        crop.save(tmp_path / f"plain{i}.jpg", quality=int(rng.integers(60, 96)))
    photo().save(tmp_path / "rotated.jpg", exif=with_orientation(6))
    photo().convert("L").save(tmp_path / "grey.jpg")
    photo().save(tmp_path / "other.png")
    return tmp_path


def test_an_item_holds_the_pixels_that_were_asked_for(folder, stand_in):
    for sample in read_samples(folder):
        plain = sample.id.startswith("plain")
        pil = load_item(sample, ("image",))
        both = load_item(sample, ("image",), {"pil", "nvjpeg"})
        one = load_item(sample, ("image",), {"nvjpeg"})
        assert torch.equal(both.image, pil.image)
        assert both.conversions == pil.conversions == one.conversions
        if plain:
            assert torch.equal(one.decoded["nvjpeg"], pil.image.bitwise_xor(1))
            assert torch.equal(both.decoded["nvjpeg"], one.decoded["nvjpeg"])
            assert one.image is None
        else:
            assert one.decoded == both.decoded == {}
            assert torch.equal(one.image, pil.image)
    assert len(stand_in) == 12


def test_rows_of_arrays_are_never_taken_for_files(tmp_path, stand_in):
    data = encode(photo(16), "JPEG")
    row = np.frombuffer(data[: len(data) // 3 * 3], np.uint8).reshape(1, 1, -1, 3)
    np.savez(tmp_path / "a.npz", arr_0=row)
    (sample,) = read_samples(tmp_path / "a.npz")
    item = load_item(sample, ("image",), {"nvjpeg"})
    assert item.decoded == {}
    assert item.image.shape == (3, 1, len(data) // 3)


def test_a_run_reads_the_pixels_its_protocol_names(folder, tmp_path, stand_in):
    """Features by two decoders are two extractors', and never one another's in the store."""
    runs = {
        name: gm.evaluate(
            folder, folder, ["fd-lite"], decode=name, cache=tmp_path / "c", batch_size=4
        )
        for name in ("pil", "nvjpeg")
    }
    assert sum(stand_in) == 6  # equal files are one row
    assert runs["nvjpeg"].runtime["features_computed"] == 9
    protocols = {name: run["fd-lite"].protocol["extractor"] for name, run in runs.items()}
    assert "decode" not in protocols["pil"]
    assert protocols["nvjpeg"] == {**protocols["pil"], "decode": "nvjpeg"}
    fingerprints = {run["fd-lite"].fingerprint for run in runs.values()}
    assert fingerprints == {
        gm.FDLite().protocol.fingerprint,
        gm.FDLite().compute_with(decode="nvjpeg").protocol.fingerprint,
    }
    again = gm.evaluate(folder, folder, ["fd-lite"], decode="nvjpeg", cache=tmp_path / "c")
    assert again.runtime["features_computed"] == 0


def test_on_a_cpu_it_is_refused_before_any_work(folder):
    with pytest.raises(UsageError, match="decode 'nvjpeg' needs a CUDA device.*on cpu"):
        gm.evaluate(folder, folder, ["fd-lite"], decode="nvjpeg", device="cpu", cache=False)
    with pytest.raises(UsageError, match="CUDA devices, not on cpu"):
        nvjpeg("cpu")
    assert decoders.DECODES == ("pil", "nvjpeg")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", PLAIN)
def test_nvjpeg_comes_near_pillow_and_gives_the_same_each_time(kind):
    data = encode(photo(), "JPEG", quality=90, **PLAIN[kind])
    with ThreadPoolExecutor(8) as pool:
        pictures = list(pool.map(lambda i: nvjpeg("cuda")(data, str(i)), range(64)))
    expected = torch.from_numpy(decode(data, "a").pixels.copy()).permute(2, 0, 1).int()
    for picture in pictures:
        off = (picture.cpu().int() - expected).abs()
        # where colour is stored at half the size it is enlarged in another way
        assert off.max() <= 3 if kind == "4:4:4" else off.float().mean() < 2
        assert torch.equal(picture, pictures[0])
