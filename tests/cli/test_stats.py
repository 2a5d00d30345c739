import pytest

from genmetrics.samples.statistics import read_statistics
from tests.cli.conftest import write_crops
from tests.cli.test_main import one_line
from tests.report.test_document import strictly


@pytest.fixture
def real(tmp_path):
    return write_crops(tmp_path / "real", 8, seed=2)


def build(real, file, *more):
    return ("stats", "build", real, "-o", file, "--device", "cpu", "--batch-size", 8, *more)


@pytest.mark.slow
def test_statistics_give_the_value_of_the_folder(run, real, tmp_path):
    file = tmp_path / "real.safetensors"
    code, out, _ = run(*build(real, file, "-m", "fd-lite,kd-lite"))
    assert code == 0
    assert out == f"{file}: 8 images by {read_statistics(file).entries[0].extractor['extractor']}\n"
    (entry,) = read_statistics(file).entries  # both metrics read one extractor
    assert entry.n == 8
    assert sorted(entry.arrays) == ["pooled.cov", "pooled.features", "pooled.mean"]

    generated = write_crops(tmp_path / "gen", 8, seed=1, noise=25.0)
    values = []
    for reference in (real, file):
        arguments = ("-m", "fd-lite,kd-lite", "--json", "--device", "cpu", "--batch-size", 8)
        code, out, _ = run("eval", generated, "--ref", reference, *arguments)
        assert code == 0
        values.append({k: v["value"] for k, v in strictly(out)["metrics"].items()})
    assert values[0] == pytest.approx(values[1], rel=1e-9)


def test_statistics_of_another_protocol_are_refused(run, real, tmp_path):
    file = tmp_path / "real.safetensors"
    run(*build(real, file, "-m", "fd-lite"))
    code, _, err = run("eval", real, "--ref", file, "-m", "fid", "--device", "cpu")
    assert code == 2
    assert "another protocol" in one_line(err)


def test_existing_file_is_kept_unless_forced(run, real, tmp_path):
    file = tmp_path / "real.safetensors"
    file.write_bytes(b"mine")
    code, _, err = run(*build(real, file, "-m", "fd-lite"))
    assert code == 2
    assert "exists; pass --force" in one_line(err)
    assert file.read_bytes() == b"mine"
    code, _, _ = run(*build(real, file, "-m", "fd-lite", "--force"))
    assert code == 0
    assert read_statistics(file).entries[0].n == 8


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("-m", "psnr"), "psnr has no reference set"),
        (("-m", "vendi@lite"), "vendi@lite has no reference set"),
        (("-m", "fd-lit"), "did you mean 'fd-lite'?"),
        ((), "no metric asked for"),
        (("-m", "fd-lite", "--limit", "1"), "has 1 reference images, needs at least 2"),
        (("-m", "fid"), "genmetrics weights fetch inception-2015-12-05"),
    ],
)
def test_bad_input_is_2_and_writes_nothing(run, real, tmp_path, more, said):
    code, out, err = run(*build(real, tmp_path / "sub" / "real.safetensors", *more))
    assert (code, out) == (2, "")
    assert said in one_line(err)
    assert not (tmp_path / "sub").exists()


def test_name_that_ref_would_not_recognise_is_refused(run, real, tmp_path):
    code, _, err = run(*build(real, tmp_path / "real.npz", "-m", "fd-lite"))
    assert code == 2
    assert "name it FILE.safetensors" in one_line(err)


def test_skipped_images_are_1_and_named(run, real, tmp_path):
    (real / "crop_1.png").write_bytes(b"no picture")
    file = tmp_path / "real.safetensors"
    code, _, err = run(*build(real, file, "-m", "fd-lite", "--on-error", "skip"))
    assert code == 1
    assert "genmetrics: skipped" in err
    assert "crop_1.png" in err
    assert read_statistics(file).entries[0].n == 7
    code, _, err = run(*build(real, tmp_path / "b.safetensors", "-m", "fd-lite"))
    assert code == 2
    assert "crop_1.png" in one_line(err)
