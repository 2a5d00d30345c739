"""Several named sets in one pass: each as if it were alone, the reference and the models once."""

from __future__ import annotations

import json

import pytest

import genmetrics as gm
from genmetrics.cli.main import main
from genmetrics.core.errors import UsageError

from .conftest import write_images
from .lane_toys import Memory, Opinion, SmallSpec
from .toys import ToyBrightness, ToyDistance, ToySpec

NAMES = ("alpha", "beta", "gamma")


@pytest.fixture
def sets(tmp_path):
    """Three sets of which two share files, and a reference."""
    found = {name: write_images(tmp_path / name, 11, seed=i) for i, name in enumerate(NAMES)}
    (found["beta"] / "0.png").write_bytes((found["alpha"] / "3.png").read_bytes())
    write_images(tmp_path / "ref", 9, seed=7)
    return found


def test_three_sets_in_one_pass_equal_each_alone_to_the_bit(sets, tmp_path, monkeypatch):
    monkeypatch.setattr(Memory, "used", 0)
    monkeypatch.setattr(Memory, "built", [])
    log = tmp_path / "log"

    def metrics():
        return [ToyDistance(ToySpec(log=str(log))), "fd-lite", "psnr", Opinion("model", SmallSpec)]

    ref = tmp_path / "ref"
    write_images(tmp_path / "pairs", 11, seed=9)
    for name in NAMES:  # one counterpart an id, of the same size, serves all sets
        for file in sets[name].glob("*.png"):
            (sets[name] / file.name).write_bytes((tmp_path / "pairs" / file.name).read_bytes())
    more = {"pair_with": tmp_path / "pairs", "cache": False, "batch_size": 4}
    together = gm.evaluate(sets, ref, metrics(), **more)
    assert list(together) == list(NAMES)
    seen = [word for line in log.read_text().splitlines() for word in line.split()]
    assert Memory.built == ["model"]
    log.unlink()
    for name in NAMES:
        alone = gm.evaluate(sets[name], ref, metrics(), **more)
        assert together[name].results == alone.results
        assert together[name].inputs == alone.inputs
        assert together[name].conversions == alone.conversions
    assert len(seen) <= 9 + 11  # equal files of the sets once, the reference once


def test_each_set_extracts_only_what_is_its_own(sets, tmp_path):
    log = tmp_path / "log"
    metrics = [ToyDistance(ToySpec(log=str(log))), ToyBrightness(ToySpec(log=str(log)))]
    reports = gm.evaluate(sets, tmp_path / "ref", metrics, cache=False, batch_size=4)
    seen = [word for line in log.read_text().splitlines() for word in line.split()]
    assert len(seen) == 9 + 3 * 11 - 1  # a file of two sets is one row
    values = {name: reports[name]["toy-distance"].value for name in NAMES}
    assert len(set(values.values())) == 3
    for name in NAMES:
        alone = gm.evaluate(sets[name], tmp_path / "ref", metrics, cache=False, batch_size=4)
        assert reports[name].results == alone.results


def test_a_bad_file_of_one_set_is_left_out_of_that_one(sets, tmp_path):
    (sets["beta"] / "5.png").write_bytes(b"no picture")
    with pytest.raises(UsageError, match=r"beta.5\.png"):
        gm.evaluate(sets, tmp_path / "ref", [ToyDistance(ToySpec())], cache=False)
    reports = gm.evaluate(
        sets, tmp_path / "ref", [ToyDistance(ToySpec())], cache=False, on_error="skip"
    )
    assert [reports[name].ok for name in NAMES] == [True, False, True]
    assert [reports[name]["toy-distance"].n for name in NAMES] == [11, 10, 11]


def test_the_command_writes_a_run_directory_each(sets, tmp_path, capsys):
    words = [f"{name}={folder}" for name, folder in sets.items()]
    code = main(
        ["eval", *words, "--ref", str(tmp_path / "ref"), "-m", "fd-lite", "--no-cache",
         "--out", str(tmp_path / "runs"), "--json", "-q", "--batch-size", "4"]
    )  # fmt: skip
    assert code == 0
    documents = json.loads(capsys.readouterr().out)
    for document, name in zip(documents, NAMES, strict=True):
        written = json.loads((tmp_path / "runs" / name / "results.json").read_text())
        assert written["metrics"] == document["metrics"]
        lines = (tmp_path / "runs" / name / "samples.jsonl").read_text().splitlines()
        assert len(lines) == 11


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a=gen", "gen"], "'gen' has no name"),
        (["a=gen", "a=other"], "the name 'a' is taken"),
        (["reference=gen", "b=gen"], "the name 'reference' is taken"),
        (["a/b=gen", "b=gen"], "'a/b=gen' has no name"),
    ],
)
def test_names_of_sets_that_make_no_sense(words, said, capsys):
    assert main(["eval", *words, "-m", "fd-lite", "--ref", "r"]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_with_an_equals_sign_is_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "lr=1e-4", 4)
    write_images(tmp_path / "ref", 4, seed=1)
    assert main(["eval", "lr=1e-4", "--ref", "ref", "-m", "fd-lite", "--no-cache", "-q"]) == 0
    assert "fd-lite" in capsys.readouterr().out


def test_precision_is_an_option_of_a_metric_too(sets, tmp_path):
    report = gm.evaluate(
        sets["alpha"], tmp_path / "ref", ["fd-lite", "kd-lite:precision=bf16"], cache=False
    )
    assert report["fd-lite"].protocol["extractor"]["precision"] == "fp32"
    assert report["kd-lite"].protocol["extractor"]["precision"] == "bf16"
    both = gm.evaluate(
        sets["alpha"], tmp_path / "ref", ["fd-lite", "kd-lite:precision=fp32"], cache=False,
        precision="bf16",
    )  # fmt: skip
    assert both["fd-lite"].protocol["extractor"]["precision"] == "bf16"
    assert both["kd-lite"].protocol["extractor"]["precision"] == "fp32"
    with pytest.raises(UsageError, match="psnr has no network, so precision means nothing"):
        gm.evaluate(sets["alpha"], metrics="psnr:precision=bf16", cache=False)
    with pytest.raises(UsageError, match="precision=fp8 is not one of fp32, tf32, bf16"):
        gm.evaluate(sets["alpha"], metrics="fd-lite:precision=fp8", cache=False)
