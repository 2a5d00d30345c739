"""Handles: the same picture in a folder, a zip, a tar or an array."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import re
import tarfile
import tempfile
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError
from genmetrics.samples.media import ArrayMedia, FileMedia, MissingMedia
from genmetrics.samples.sources import list_samples, read_samples
from tests.samples.make import H, W, encode, picture, sound

RGB = np.asarray(picture())
FILES = {f"{i}.png": encode(picture().rotate(90 * i), "PNG") for i in range(4)}
TARS = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".tar.xz": "w:xz"}


def write_zip(path, files=FILES, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def write_tar(path, mode, files=FILES):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def archives(tmp_path):
    yield write_zip(tmp_path / "stored.zip")
    yield write_zip(tmp_path / "deflated.zip", method=zipfile.ZIP_DEFLATED)
    for suffix, mode in TARS.items():
        yield write_tar(tmp_path / f"set{suffix}", mode)


def test_archives_hold_the_same_samples_as_the_folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    expected = read_samples(folder)
    for path in archives(tmp_path):
        samples = read_samples(path)
        assert [s.id for s in samples] == [s.id for s in expected]
        for mine, other in zip(samples, expected, strict=True):
            assert mine.image.digest() == other.image.digest()
            assert mine.image.size() == other.image.size() == (W, H)
            np.testing.assert_array_equal(mine.image.load().pixels, other.image.load().pixels)
        assert samples[1].path == f"{path}!1.png"


def test_file_media_hashes_what_is_stored(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(sound()["png-L"])
    media = FileMedia(str(path))
    assert media.name == str(path)
    assert media.digest() == hashlib.sha256(sound()["png-L"]).hexdigest()
    assert media.size() == (W, H)
    assert media.load().conversions == ("grayscale",)
    path.unlink()
    assert media.digest() == hashlib.sha256(sound()["png-L"]).hexdigest()  # kept


def test_handles_pickle_and_compare_by_what_they_name(tmp_path):
    for path in archives(tmp_path):
        media = read_samples(path)[2].image
        digest = media.digest()
        copy = pickle.loads(pickle.dumps(media))
        assert copy == media
        assert hash(copy) == hash(media)
        assert copy.digest() == digest
        assert copy.read() == FILES["2.png"]
    assert FileMedia("a.png") == FileMedia("a.png") != FileMedia("b.png")


def test_a_digest_travels_with_its_handle(tmp_path):
    """Ranks get handles from the one that listed them; what was hashed is not hashed again."""
    (tmp_path / "a.png").write_bytes(FILES["0.png"])
    array = save(tmp_path / "a.npy", np.zeros((3, 4, 5, 3), np.uint8))
    packed = save(tmp_path / "a.npz", np.zeros((3, 4, 5, 3), np.uint8), compressed=True)
    media = [FileMedia(str(tmp_path / "a.png"))]
    media += [read_samples(path)[2].image for path in (*archives(tmp_path), array, packed)]
    fresh = pickle.loads(pickle.dumps(media))
    digests = [each.digest() for each in media]
    assert [each.digest() for each in fresh] == digests
    copies = pickle.loads(pickle.dumps(media))
    for path in tmp_path.iterdir():
        path.unlink()
    assert [each.digest() for each in copies] == digests
    with pytest.raises(InputError):
        copies[0].read()


def test_a_row_without_picture_fails_by_name_in_every_process():
    media = pickle.loads(pickle.dumps(MissingMedia("a.arrow!image[3]", "holds no image")))
    for look in (media.read, media.digest, media.size, media.load):
        with pytest.raises(InputError, match=r"^a\.arrow!image\[3\] holds no image$"):
            look()


def test_many_threads_read_one_archive(tmp_path):
    files = {f"{i}.png": encode(picture().rotate(i), "PNG") for i in range(64)}
    for path in (
        write_zip(tmp_path / "a.zip", files, zipfile.ZIP_DEFLATED),
        write_tar(tmp_path / "a.tar", "w", files),
        write_tar(tmp_path / "a.tar.gz", "w:gz", files),
    ):
        samples = read_samples(path) * 4
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda sample: sample.image.read(), samples))
        assert found == [files[f"{sample.id}.png"] for sample in samples]


def test_junk_in_archives_is_left_out(tmp_path):
    files = {
        "gen/2.png": FILES["2.png"],
        "gen/10.PNG": FILES["1.png"],
        "gen/.hidden.png": b"",
        "__MACOSX/gen/._2.png": b"",
        "gen/.DS_Store": b"",
        "gen/notes.txt": b"",
        "gen/sub/": b"",
    }
    for path in (write_zip(tmp_path / "a.zip", files), write_tar(tmp_path / "a.tar", "w", files)):
        samples = read_samples(path)
        assert [s.id for s in samples] == ["2", "10"]  # the folder all share is dropped
        assert samples[1].path == f"{path}!gen/10.PNG"


def repeated(folder, name):
    """An archive that has ``a.png`` twice, with a note and a hidden file that come twice as well.

    ``long.tar`` has a name that only the standard library reads.
    """
    path = folder / name
    files = {"a.png": FILES["0.png"], "b.png": FILES["1.png"], "n.txt": b"1", ".h.png": b"1"}
    later = {"a.png": FILES["3.png"], "n.txt": b"2", ".h.png": b"2"}
    if name == "a.zip":
        write_zip(path, files)
        with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
            warnings.simplefilter("ignore", UserWarning)  # zipfile's own, of each name
            for member, data in later.items():
                archive.writestr(member, data)
        return path
    write_tar(path, "w", files | ({"x" * 120 + ".txt": b""} if name == "long.tar" else {}))
    write_tar(path, "a", {f"./{member}": data for member, data in later.items()})
    if name == "a.tar.gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("name", ["a.tar", "long.tar", "a.tar.gz", "a.zip"])
def test_of_members_with_one_name_the_last_counts_and_a_note_names_it(tmp_path, name):
    path = repeated(tmp_path, name)
    found = list_samples(path)
    assert [sample.id for sample in found.samples] == ["a", "b"]
    assert found.samples[0].image.read() == FILES["3.png"]
    _, note = found.notes(path)
    assert re.fullmatch(
        rf"{path}: 1 name comes more than once \('(\./)?a\.png'\); the last one counts", note
    )


def test_links_in_a_tar_count_as_in_a_folder(tmp_path):
    """A sample is a name, whatever bytes it shares."""
    path = write_tar(tmp_path / "a.tar", "w")
    with tarfile.open(path, "a") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            info = tarfile.TarInfo(f"link{kind.decode()}.png")
            info.type, info.linkname = kind, "0.png"
            archive.addfile(info)
    samples = read_samples(path)
    assert [sample.id for sample in samples] == ["0", "1", "2", "3", "link1", "link2"]
    assert samples[-1].digest(("image",)) == samples[0].digest(("image",))


# -- damaged archives ------------------------------------------------------------------------------


def test_damaged_archives_are_named_with_the_fix(tmp_path):
    for path in list(archives(tmp_path)):
        whole = path.read_bytes()
        # A tar has 10240 bytes here: cut within a member, and exactly between two.
        for length in (0, 10, len(whole) // 4 + 99, len(whole) * 3 // 10):
            path.write_bytes(whole[:length])
            with pytest.raises(InputError, match="again") as caught:
                for sample in read_samples(path):
                    sample.image.read()
            assert str(path) in str(caught.value)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_flipped_byte_in_a_zip_is_seen(tmp_path, method):
    path = write_zip(tmp_path / "a.zip", {"a.png": FILES["1.png"]}, method)
    (sample,) = read_samples(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x55
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"a\.zip!a\.png .*damaged; create or copy it again"):
        sample.image.load()


def test_a_zip_header_that_lies_is_seen(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"a.png": FILES["1.png"]})
    (sample,) = read_samples(path)
    path.write_bytes(b"XX" + path.read_bytes()[2:])
    with pytest.raises(InputError, match="has no header"):
        sample.image.read()
    path.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        sample.image.read()


def test_other_zip_methods_are_refused_by_name(tmp_path):
    path = write_zip(tmp_path / "a.zip", method=zipfile.ZIP_LZMA)
    with pytest.raises(
        InputError, match=r"0\.png is of method 14; archive the images with `zip -0"
    ):
        read_samples(path)


def test_a_broken_image_in_an_archive_is_named(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"cut.png": FILES["1.png"][:60]})
    (sample,) = read_samples(path)
    with pytest.raises(InputError, match=r"a\.zip!cut\.png cannot be decoded"):
        sample.image.load()


# -- arrays ----------------------------------------------------------------------------------------


def save(path, array, compressed=False):
    if path.suffix == ".npy":
        np.save(path, array)
    else:
        (np.savez_compressed if compressed else np.savez)(path, array)
    return path


def test_rows_of_arrays_are_samples(tmp_path):
    array = np.random.default_rng(0).integers(0, 256, (12, 5, 7, 3), np.uint8)
    for path in (
        save(tmp_path / "a.npz", array),
        save(tmp_path / "b.npz", array, compressed=True),
        save(tmp_path / "c.npy", array),
    ):
        samples = read_samples(path)
        assert [s.id for s in samples] == [str(i) for i in range(12)]
        assert samples[3].path == f"{path}!arr_0[3]"
        assert samples[3].image.size() == (7, 5)
        for sample, row in zip(samples, array, strict=True):
            pixels, conversions = pickle.loads(pickle.dumps(sample.image)).load()
            np.testing.assert_array_equal(pixels, row)
            assert conversions == ()
        assert len({s.image.digest() for s in samples}) == 12


def test_the_digest_of_a_row_covers_its_shape(tmp_path):
    flat = np.zeros((1, 2, 6, 3), np.uint8)
    tall = np.zeros((1, 6, 2, 3), np.uint8)
    digests = [
        read_samples(save(tmp_path / f"{i}.npy", a))[0].image.digest()
        for i, a in enumerate((flat, tall, flat))
    ]
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((2, 3, 4, 3)), r"float64 \(2, 3, 4, 3\)"),
        (np.zeros((2, 3, 4), np.uint8), r"uint8 \(2, 3, 4\)"),
        (np.zeros((2, 3, 4, 4), np.uint8), "expected images as uint8"),
        (np.zeros((0, 3, 4, 3), np.uint8), "expected images as uint8"),
        (np.asfortranarray(np.zeros((2, 3, 4, 3), np.uint8)), "Fortran order"),
        (np.array([{}, {}], dtype=object), r"object \(2,\)"),
    ],
)
def test_other_arrays_are_refused_and_never_unpickled(tmp_path, array, reason):
    for path in (tmp_path / "a.npy", tmp_path / "a.npz"):
        with pytest.raises(InputError, match=reason):
            read_samples(save(path, array))


def test_statistics_and_cut_arrays_say_what_they_are(tmp_path):
    path = tmp_path / "stats.npz"
    np.savez(path, mu=np.zeros(3), sigma=np.eye(3))
    with pytest.raises(InputError, match="mu, sigma but not arr_0.*--ref"):
        read_samples(path)
    cut = save(tmp_path / "cut.npy", np.zeros((9, 8, 8, 3), np.uint8))
    cut.write_bytes(cut.read_bytes()[:700])
    with pytest.raises(InputError, match="declares 9 images of 8×8 but holds 572 bytes"):
        read_samples(cut)
    for name in ("junk.npy", "junk.npz"):
        (tmp_path / name).write_bytes(b"junk" * 30)
        with pytest.raises(InputError, match="not a readable archive"):
            read_samples(tmp_path / name)
    media = ArrayMedia(str(cut), 8, (8, 8, 3), 128)
    with pytest.raises(InputError, match=r"arr_0\[8\] is cut short"):
        media.load()


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(["a.zip", "d.zip", "a.tar", "a.tar.gz", "a.npz", "c.npz", "a.npy"]),
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_flipped_bytes_of_archives_never_raise_anything_else(kind, flips):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / kind
        if kind.endswith(".zip"):
            write_zip(path, method=zipfile.ZIP_DEFLATED if kind[0] == "d" else zipfile.ZIP_STORED)
        elif ".tar" in kind:
            write_tar(path, "w:gz" if kind.endswith("gz") else "w")
        else:
            save(path, np.zeros((3, 4, 5, 3), np.uint8), compressed=kind[0] == "c")
        data = bytearray(path.read_bytes())
        for where, value in flips:
            data[min(int(where * len(data)), len(data) - 1)] = value
        path.write_bytes(bytes(data))
        try:
            for sample in read_samples(path):
                sample.image.load()
        except InputError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)


def test_bytes_are_hashed_once_unless_the_file_was_touched(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(encode(picture(), "PNG"))
    media = FileMedia(str(path))
    hashed = []
    plain = FileMedia._sha256
    monkeypatch.setattr(FileMedia, "_sha256", lambda self, d: hashed.append(1) or plain(self, d))
    media.look()
    media.load()
    media.load()
    assert len(hashed) == 1
    os.utime(path, ns=(1, 1))  # the same bytes at another time are looked at again, and taken
    media.load()
    assert len(hashed) == 2
    path.write_bytes(encode(picture("L"), "PNG"))
    with pytest.raises(InputError, match="changed while the run was under way"):
        media.load()
