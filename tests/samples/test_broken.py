"""Broken and odd files: decoding succeeds or raises InputError naming the file."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from genmetrics.core.errors import InputError
from genmetrics.samples.image import decode, image_size, load_image
from genmetrics.samples.media import FileMedia
from tests.samples.make import absurd, broken, encode, picture, sound

BROKEN = broken()


@pytest.fixture(scope="module", autouse=True)
def small_guard():
    """A flipped byte may ask for 170 million pixels, which Pillow allows and takes seconds for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 500_000)
        yield


MUST_FAIL = [
    name
    for name in sound()
    if name not in ("apng", "gif-animated", "tiff-pages") and "ppm" not in name
]


def attempt(data: bytes, name: str) -> bool:
    """Decode and read the header; tell whether the first worked. Any other error escapes."""
    for read in (lambda: image_size(data, name=name), lambda: decode(data, name)):
        try:
            read()
            fine = True
        except InputError as error:
            assert str(error).startswith(name)
            assert "\n" not in str(error)
            fine = False
    return fine


def test_there_are_hundreds_of_broken_files():
    assert len(BROKEN) > 400


@pytest.mark.parametrize("part", range(8))
def test_broken_files_raise_one_kind_of_error_with_their_name(part):
    for name, data in list(BROKEN.items())[part::8]:
        attempt(data, f"dir/{name}.png")


@pytest.mark.parametrize("name", absurd())
def test_absurd_headers_are_refused(name):
    harmless = ("png with acTL of no frames", "bmp huge negative height")
    assert not attempt(absurd()[name], name) or name in harmless


@pytest.mark.parametrize("name", MUST_FAIL)
def test_half_a_file_is_never_an_image(name):
    assert not attempt(BROKEN[f"{name} cut at 5/10"], name)


def test_the_reason_is_said():
    with pytest.raises(InputError, match=r"^a\.png is empty \(0 bytes\)"):
        decode(b"", "a.png")
    with pytest.raises(InputError, match=r"^a\.png is not an image: it starts with b'<!DOCTYPE"):
        decode(BROKEN["html"], "a.png")
    with pytest.raises(InputError, match=r"^a\.jpg cannot be decoded: .*[Tt]runcated"):
        decode(BROKEN["jpeg-RGB cut at 8/10"], "a.jpg")
    with pytest.raises(InputError, match=r"^a\.png claims 100000×100000 pixels"):
        decode(BROKEN["png 100000x100000"], "a.png")


def test_postscript_is_not_run():
    with pytest.raises(InputError, match="is not an image"):
        decode(BROKEN["postscript"], "a.png")


def test_odd_directory_entries_are_named(tmp_path):
    folder = tmp_path / "x.png"
    folder.mkdir()
    link = tmp_path / "link.png"
    link.symlink_to(tmp_path / "nowhere.png")
    loop = tmp_path / "loop.png"
    loop.symlink_to(loop)
    for path, reason in (
        (folder, "is a folder"),
        (link, "link to nowhere"),
        (loop, "cannot be opened"),
        (tmp_path / "none.png", "does not exist"),
        (tmp_path / "a.png" / "b.png", "does not exist"),
        ("a\0b.png", "cannot be opened"),
        (tmp_path / ("n" * 300), "cannot be opened"),
    ):
        for read in (load_image, image_size):
            with pytest.raises(InputError, match=reason) as caught:
                read(path)
            assert str(caught.value).startswith(str(path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.timeout(20)
def test_a_pipe_does_not_hang(tmp_path):
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="is a pipe or device"):
        load_image(pipe)
    with pytest.raises(InputError, match="is a pipe or device"):
        FileMedia(str(pipe)).digest()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_named(tmp_path):
    path = tmp_path / "secret.png"
    path.write_bytes(sound()["png-RGB"])
    path.chmod(0)
    with pytest.raises(InputError, match=r"secret\.png cannot be opened: Permission denied"):
        load_image(path)


FUZZED = sorted(set(sound()) - {"avif", "jp2"})  # their decoders are slow on nonsense


@settings(max_examples=400, deadline=None)
@given(
    name=st.sampled_from(FUZZED),
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=12),
    header=st.booleans(),
)
def test_flipped_bytes_never_raise_anything_else(name, flips, header):
    data = bytearray(sound()[name])
    span = min(len(data), 120) if header else len(data)
    for where, value in flips:
        data[min(int(where * span), span - 1)] = value
    attempt(bytes(data), f"{name}.png")


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["avif", "jp2"]),
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_flipped_bytes_of_wavelets_and_video_frames(name, flips):
    data = bytearray(sound()[name])
    for where, value in flips:
        data[min(int(where * len(data)), len(data) - 1)] = value
    attempt(bytes(data), name)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_never_raise_anything_else(data):
    attempt(data, "random.png")


def test_decoding_is_thread_safe():
    names = ["jpeg-RGB", "png-RGBA", "tiff-I;16", "webp", "gif-animated", "tiff-LAB", "png-P-tRNS"]
    expected = {name: decode(sound()[name], name).pixels for name in names}
    wrong: list[str] = []

    def work(shift: int) -> None:
        for turn in range(40):
            name = names[(turn + shift) % len(names)]
            if not np.array_equal(decode(sound()[name], name).pixels, expected[name]):
                wrong.append(name)
            try:
                decode(sound()[name][:60], name)
            except InputError:
                continue

    threads = [threading.Thread(target=work, args=(shift,)) for shift in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_jpeg_cut_anywhere_in_its_picture_fails():
    data = encode(picture().resize((64, 64)), "JPEG", quality=95)
    for length in range(3, len(data) - 40, 37):
        assert not attempt(data[:length], f"cut at {length}")
    assert decode(data, "whole").pixels.shape == (64, 64, 3)


def test_a_cut_jpeg_2000_fails_though_its_decoder_takes_what_is_there():
    data = sound()["jp2"]
    for length in range(len(data) - 2):
        assert not attempt(data[:length], f"cut at {length}")
