import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from genmetrics.samples.reopen import media_of, reopen
from genmetrics.samples.sources import read_samples


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "some!pictures"
    made.mkdir()
    for i in range(12):
        Image.new("RGB", (8, 6), (20 * i, 0, 255)).save(made / f"{i:02}.png")
    return made


def as_zip(folder):
    path = folder.parent / "a!b.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for image in sorted(folder.iterdir()):
            file.write(image, f"in!side/{image.name}")
    return path


def as_tar(folder, suffix="tar", mode="w"):
    path = folder.parent / f"shard.{suffix}"
    with tarfile.open(path, mode) as file:
        for image in sorted(folder.iterdir()):
            file.add(image, image.name)
    return path


def as_shard(folder):
    for image in folder.iterdir():
        image.with_suffix(".txt").write_text("a prompt")
    return as_tar(folder)


def as_packed(folder):
    return as_tar(folder, "tar.gz", "w:gz")


def pixels(folder):
    return np.stack([np.asarray(Image.open(path)) for path in sorted(folder.iterdir())])


def as_npy(folder):
    np.save(folder.parent / "a.npy", pixels(folder))
    return folder.parent / "a.npy"


def as_npz(folder):
    np.savez(folder.parent / "a.npz", pixels(folder))
    return folder.parent / "a.npz"


def as_packed_npz(folder):
    np.savez_compressed(folder.parent / "b.npz", pixels(folder))
    return folder.parent / "b.npz"


def table(folder):
    pa = pytest.importorskip("pyarrow")
    rows = [{"bytes": path.read_bytes(), "path": None} for path in sorted(folder.iterdir())]
    return pa, pa.table({"image": rows})


def as_parquet(folder):
    _, made = table(folder)
    import pyarrow.parquet as pq

    pq.write_table(made, folder.parent / "a.parquet", row_group_size=5)
    return folder.parent / "a.parquet"


def as_arrow(folder):
    pa, made = table(folder)
    path = str(folder.parent / "a.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, made.schema) as writer:
        writer.write_table(made, max_chunksize=5)
    return folder.parent / "a.arrow"


FORMS = [
    *(lambda folder: folder, as_zip, as_tar, as_shard, as_packed),
    *(as_npy, as_npz, as_packed_npz, as_parquet, as_arrow),
]


@pytest.mark.parametrize("form", FORMS)
def test_every_picture_is_found_again_by_its_name(folder, form):
    samples = read_samples(form(folder))
    assert len(samples) == 12
    found = reopen([sample.path for sample in samples[::-3]])
    assert len(found) == 4
    for sample in samples[::-3]:
        media = found[sample.path]
        assert media.name == sample.path
        assert np.array_equal(media.load().pixels, sample.image.load().pixels)


def test_folder_of_frames_is_its_first_frame(folder):
    assert media_of(str(folder)).load().pixels[0, 0].tolist() == [0, 0, 255]


@pytest.mark.parametrize(
    "form",
    [as_zip, as_tar, as_packed, as_npy, as_npz, as_parquet, as_arrow],
    ids=lambda f: f.__name__,
)
def test_what_is_damaged_or_not_there_is_none(folder, form):
    path = form(folder)
    gone = [f"{path}!nothing.png", f"{path}!image[99]", f"{path}!arr_0[99]", f"{path}!image[x]"]
    assert set(reopen(gone).values()) == {None}
    path.write_bytes(path.read_bytes()[:40])
    assert media_of(f"{path}!in!side/00.png") is None
    assert media_of(f"{path}!image[0]") is None


@pytest.mark.parametrize(
    "path", ["", "nowhere.png", "a!b", "nowhere.zip!a.png", "a\0b", "!", "x" * 5000]
)
def test_names_of_nothing_are_none(path):
    assert media_of(path) is None


def test_member_of_a_file_that_is_no_archive_is_none(folder):
    assert media_of(f"{folder / '00.png'}!a.png") is None
