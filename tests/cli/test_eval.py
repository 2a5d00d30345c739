import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import spawn, write_crops
from tests.cli.test_main import one_line
from tests.report.test_document import strictly


@pytest.fixture
def out(tmp_path):
    return tmp_path / "runs" / "a"


def psnr(pairs, *more):
    generated, clean = pairs
    return ("eval", generated, "--pair-with", clean, "-m", "psnr", "--device", "cpu", *more)


def test_all_fine_is_0_with_table_and_files(run, pairs, out):
    code, text, err = run(*psnr(pairs, "--out", out))
    assert code == 0
    assert " psnr ↑ " in text
    assert "\x1b" not in text
    assert "genmetrics: generated: 4 images" in err
    assert "genmetrics: metrics: psnr" in err
    assert f"wrote {out / 'results.json'}" in err
    assert sorted(p.name for p in out.iterdir()) == ["report.html", "results.json", "samples.jsonl"]
    made = strictly((out / "results.json").read_text())
    lines = [strictly(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["crop_0", "crop_1", "crop_2", "crop_3"]
    mean = np.mean([line["psnr"] for line in lines])
    assert made["metrics"]["psnr"]["value"] == pytest.approx(mean, rel=1e-12)
    assert 25 < mean < 32  # noise of 10 levels is 28 dB
    assert made["runtime"]["precision"] == "fp32"


def test_json_is_the_only_thing_on_stdout(run, pairs):
    code, text, err = run(*psnr(pairs, "--json"))
    assert code == 0
    assert strictly(text)["schema"] == "genmetrics.results/2"
    assert " psnr ↑ " in err


def test_quiet_says_nothing_but_the_result(run, pairs):
    code, text, err = run(*psnr(pairs, "--json", "--quiet"))
    assert (code, err) == (0, "")
    assert strictly(text)["metrics"]["psnr"]["n"] == 4


def test_what_libraries_print_stays_out_of_stdout(run, pairs, monkeypatch):
    from genmetrics.run import evaluate

    real = evaluate.extract

    def noisy(*args, **options):
        print("Setting up a model ...")
        return real(*args, **options)

    monkeypatch.setattr(evaluate, "extract", noisy)
    code, text, err = run(*psnr(pairs, "--json"))
    assert code == 0
    strictly(text)
    assert "Setting up a model ..." in err


def test_skipped_samples_are_1_and_named(run, pairs, out):
    (pairs[0] / "crop_1.png").write_bytes(b"no picture")
    code, text, _ = run(*psnr(pairs, "--on-error", "skip", "--out", out))
    assert code == 1
    assert "1 skipped sample:" in text
    made = strictly((out / "results.json").read_text())
    (skipped,) = made["skipped"]
    assert skipped["id"] == "crop_1"
    assert made["metrics"]["psnr"]["n"] == 3


def test_missing_partners_that_were_allowed_are_1(run, pairs):
    (pairs[1] / "crop_2.png").unlink()
    code, text, _ = run(*psnr(pairs, "--allow-missing"))
    assert code == 1
    assert "1 missing partner: " in text
    assert "crop_2" in text


def test_metric_without_a_value_is_1(run, pairs, out):
    masks = out.parent / "masks"
    masks.mkdir(parents=True)
    for path in pairs[0].iterdir():
        white = np.full(np.asarray(Image.open(path)).shape[:2], 255, np.uint8)
        Image.fromarray(white).save(masks / path.name)
    code, text, _ = run(*psnr(pairs, "--masks", masks, "--json"))
    entry = strictly(text)["metrics"]["psnr"]
    assert code == 1
    assert entry["value"] is None
    assert entry["status"] == "unavailable"
    assert entry["reason"]


def test_unusable_files_are_all_named_and_nothing_is_written(run, pairs, out):
    for name in ("crop_0.png", "crop_3.png"):
        (pairs[0] / name).write_bytes(b"no picture")
    code, text, err = run(*psnr(pairs, "--out", out))
    assert (code, text) == (2, "")
    line = one_line(err)
    assert "crop_0.png" in line
    assert "crop_3.png" in line
    assert "--on-error skip" in line
    assert not out.parent.exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("-m", "fdi"), "unknown metric 'fdi' (did you mean 'fid'?)"),
        (("-m", "ssim@wnag"), "did you mean 'wang'?"),
        (("-m", "psnr:chanel=rgb"), "did you mean 'channel'?"),
        (("-m", "psnr:channel=rgba"), "psnr:channel=rgba is not one of"),
        (("--suite", "ligth"), "unknown suite 'ligth' (did you mean 'lite'?)"),
        (("-m", "fd-lite"), "reference set: pass --ref"),
        ((), "no metric asked for"),
        (("-m", "psnr", "--batch-size", "some"), "--batch-size 'some'"),
        (("-m", "psnr", "--batch-size", "0"), "--batch-size '0'"),
        (("-m", "psnr", "--weights", "net.pth"), "--weights 'net.pth' is not ID=PATH"),
        (("-m", "psnr", "--weights", "inceptoin-2015-12-05=x"), "did you mean"),
        (("-m", "psnr", "--weights", "a=1", "--weights", "a=2"), "a is given twice"),
        (("-m", "psnr", "--cache", "c", "--no-cache"), "exclude each other"),
        (("-m", "psnr", "--device", "cuda:99"), "cuda:99"),
        (("-m", "psnr", "--device", "cpu", "--decode", "nvjpeg"), "needs a CUDA device"),
        (("-m", "psnr", "--layout", "foldr"), "did you mean 'folder'?"),
    ],
)
def test_bad_input_is_2_one_line_and_writes_nothing(run, pairs, out, more, said):
    generated, clean = pairs
    code, text, err = run("eval", generated, "--pair-with", clean, "--out", out, *more)
    assert (code, text) == (2, "")
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not out.parent.exists()


def test_place_that_cannot_be_written_is_found_before_the_run(run, pairs, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, _, err = run(*psnr(pairs, "--out", tmp_path / "file"))
    assert code == 2
    assert "file is a file; pass a folder" in one_line(err)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("kind", ["empty", "missing"])
def test_folder_without_images_names_itself(run, tmp_path, kind):
    folder = tmp_path / kind
    if kind == "empty":
        folder.mkdir()
    code, _, err = run("eval", folder, "-m", "psnr", "--pair-with", folder)
    assert code == 2
    assert str(folder) in one_line(err)


def test_page_says_how_to_reproduce(run, pairs, out):
    run(*psnr(pairs, "--out", out / "a folder"))
    page = (out / "a folder" / "report.html").read_text(encoding="utf-8")
    assert f"genmetrics eval {pairs[0]}" in page
    assert f"--out &#x27;{out / 'a folder'}&#x27;" in page


@pytest.mark.slow
def test_lite_suite_from_the_shell(tmp_path, out):
    """Everything at once, as users run it; the second run finds every feature in the cache."""
    generated = write_crops(tmp_path / "gen", 12, seed=1, noise=25.0)
    real = write_crops(tmp_path / "real", 12, seed=2)
    arguments = ("eval", generated, "--ref", real, "--suite", "lite", "--json", "--batch-size", 12)
    first = spawn(*arguments, "--out", out)
    assert first.returncode == 0, first.stderr
    made = strictly(first.stdout)
    assert set(made["metrics"]) == {
        "fd-lite",
        "kd-lite",
        "prdc-lite",
        "vendi@lite",
        "authpct@lite",
    }
    assert all(entry["status"] == "ok" for entry in made["metrics"].values())
    assert made["metrics"]["fd-lite"]["n_reference"] == 12
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") >= 12
    lines = (out / "samples.jsonl").read_text().splitlines()
    assert len(lines) == 12
    assert json.loads(lines[0])["fd-lite"] is not None

    again = strictly(spawn(*arguments, env=dict(os.environ)).stdout)
    assert again["metrics"] == made["metrics"]
    assert again["runtime"]["features_computed"] == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_ctrl_c_in_the_middle_is_one_line(tmp_path, out):
    generated = write_crops(tmp_path / "gen", 200, seed=1)
    arguments = ["eval", generated, "--ref", generated, "-m", "fd-lite", "--batch-size", 4]
    process = subprocess.Popen(
        [sys.executable, "-m", "genmetrics", *map(str, arguments), "--out", str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "to do" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    text, err = process.communicate(timeout=60)
    assert (process.returncode, text) == (130, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "genmetrics: interrupted"
    assert not out.exists()
