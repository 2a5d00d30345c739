"""From samples to what extractors read, and the look at every file before that."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from PIL import Image

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Sample
from genmetrics.samples.check import check_media
from genmetrics.samples.items import load_item
from genmetrics.samples.media import FileMedia
from genmetrics.samples.sources import read_samples
from tests.samples.make import H, W, encode, picture, sound


def media(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return FileMedia(str(path))


@pytest.fixture
def sample(tmp_path):
    mask = Image.fromarray(np.array([[0, 127, 128, 255] + [0] * (W - 4)] * H, np.uint8))
    return Sample(
        id="a",
        image=media(tmp_path, "a.png", sound()["png-RGB"]),
        prompt="a cat",
        reference=media(tmp_path, "r.png", sound()["png-L"]),
        mask=media(tmp_path, "m.png", encode(mask, "PNG")),
        spec={"tag": "x"},
    )


def test_exactly_the_asked_fields_are_loaded(sample):
    item = load_item(sample, ("image", "prompt", "reference", "mask", "spec"))
    np.testing.assert_array_equal(item.image.permute(1, 2, 0), np.asarray(picture()))
    np.testing.assert_array_equal(item.reference[1], np.asarray(picture("L")))
    assert item.image.dtype == item.reference.dtype == torch.uint8
    assert item.mask.dtype == torch.bool
    assert item.mask.shape == (H, W)
    assert item.mask[0, :5].tolist() == [False, False, True, True, False]
    assert (item.id, item.prompt, item.spec) == ("a", "a cat", {"tag": "x"})
    assert item.conversions == ("grayscale",)  # the reference; masks are grey by nature
    item = load_item(sample, ("prompt",))
    assert (item.image, item.reference, item.prompt, item.conversions) == (None, None, "a cat", ())


def test_only_a_mask_may_be_unset(sample):
    bare = Sample(id="b", image=sample.image)
    item = load_item(bare, ("image", "mask"))
    assert item.mask is None
    for field in ("prompt", "reference", "spec"):
        with pytest.raises(InputError, match=f"sample 'b' has no {field}"):
            load_item(bare, ("image", field))


def test_a_mask_of_ones_is_not_taken_for_all_black(sample, tmp_path):
    ones = media(tmp_path, "ones.png", encode(Image.new("L", (W, H), 1), "PNG"))
    with pytest.raises(InputError, match=r"ones\.png reaches level 1 of 255"):
        load_item(sample.having(mask=ones), ("mask",))
    for image, expected in (
        (Image.new("1", (W, H), 1), True),
        (Image.new("L", (W, H), 0), False),
        (Image.new("RGB", (W, H), "white"), True),
        (Image.new("RGB", (W, H), "red"), False),
        (Image.fromarray(np.full((H, W), 65535, np.uint16)), True),
    ):
        given = media(tmp_path, "mask.png", encode(image, "PNG"))
        item = load_item(sample.having(mask=given), ("mask",))
        assert item.mask.unique().tolist() == [expected]


def test_sizes_may_differ_between_samples(tmp_path):
    for i in range(8):
        Image.new("RGB", (10 + i, 20 - i)).save(tmp_path / f"{i}.png")
    shapes = [load_item(s, ("image",)).image.shape for s in read_samples(tmp_path)]
    assert shapes == [(3, 20 - i, 10 + i) for i in range(8)]


# -- one truncated file ended hours of work, or took its batch along -------------------------------


def test_bad_files_are_found_before_a_model_loads(tmp_path):
    for i in range(10):
        (tmp_path / f"{i}.jpg").write_bytes(sound()["jpeg-RGB"])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.png").write_text("not an image")
    (tmp_path / "link.png").symlink_to("nowhere")
    (tmp_path / "start.jpg").write_bytes(sound()["jpeg-RGB"][:100])
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")
    samples = read_samples(tmp_path)
    reasons = check_media(samples, workers=3)
    bad = ["empty", "link", "pipe", "start", "text"]
    assert list(reasons) == [name for name in bad if name != "pipe" or hasattr(os, "mkfifo")]
    assert "is empty (0 bytes)" in reasons["empty"]
    assert str(tmp_path / "text.png") in reasons["text"]
    good = [s for s in samples if s.id not in reasons]
    assert len(good) == 10
    assert check_media(good) == {}


def test_a_file_cut_behind_its_header_fails_by_name_when_decoded(tmp_path):
    data = encode(picture().resize((200, 200)), "JPEG")
    (tmp_path / "half.jpg").write_bytes(data[: len(data) // 2])
    (sample,) = read_samples(tmp_path)
    with pytest.raises(InputError, match=r"half\.jpg cannot be decoded: .*truncated"):
        load_item(sample, ("image",))


def test_references_and_masks_are_checked_too(sample, tmp_path):
    broken = media(tmp_path, "broken.png", b"")
    for field in ("image", "reference", "mask"):
        reasons = check_media([sample.having(**{field: broken})])
        assert reasons == {"a": f"{broken.name} is empty (0 bytes); write it again or remove it"}
