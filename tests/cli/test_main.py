import os
import subprocess
import sys

import pytest

from genmetrics import __version__
from tests.cli.conftest import spawn

COMMANDS = ("eval", "list", "show", "stats", "weights", "cache", "env")


def one_line(error):
    """The whole of stderr: one line, no traceback, no box."""
    assert error.count("\n") == 1
    assert error.startswith("genmetrics: error: ")
    return error.removeprefix("genmetrics: error: ").rstrip("\n")


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_names_every_command(run, arguments):
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    for name in COMMANDS:
        assert f" {name} " in out


@pytest.mark.parametrize("group", ["stats", "weights", "cache"])
def test_group_alone_shows_its_help(run, group):
    code, out, err = run(group)
    assert (code, err) == (0, "")
    assert f"genmetrics {group}" in out


def test_version(run):
    assert run("--version") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("evla",), "genmetrics has no command 'evla' (did you mean 'eval'?)"),
        (("cache", "prun"), "genmetrics cache has no command 'prun' (did you mean 'prune'?)"),
        (("weights", "fetsh"), "genmetrics weights has no command 'fetsh' (did you mean 'fetch'?)"),
        (("eval", "g", "--metrcs", "fid"), "no option --metrcs (did you mean '--metrics'?)"),
        (("eval", "g", "--output", "o"), "no option --output (did you mean '--out'?)"),
        (("eval", "g", "--reference", "r"), "no option --reference (did you mean '--ref'?)"),
        (("eval", "g", "--batch=3"), "no option --batch (did you mean '--batch-size'?)"),
        (("eval", "g", "--proceses", "2"), "genmetrics eval has no option --proceses"),
        (("--versoin",), "genmetrics has no option --versoin (did you mean '--version'?)"),
        (("eval",), "GENERATED"),
        (("eval", "g", "--on-error", "ignore"), "'ignore'"),
        (("eval", "g", "--limit", "0"), "--limit '0': "),
        (("eval", "g", "--limit", "many"), "--limit 'many': "),
        (("eval", "g", "--workers=few"), "--workers 'few': "),
        (("eval", "g", "--precision", "int8"), "'int8'"),
        (("eval", "g", "--ref"), "--ref"),
        (("eval", "g", "extra"), "extra"),
        (("list", "fid"), "fid"),
        (("eval", "g", "--processes", "1.5"), "'1.5': expected a whole number of at least 1; see"),
        (("eval", "g", "--limit", "0"), "--limit '0': expected a whole number of at least 1; see"),
        (("eval", "g", "--seed=-1"), "'-1': expected a whole number from 0 to 4294967295; see"),
        (("eval", "g", "--pair-by", "name"), "--pair-by 'name': expected stem or order; see"),
        (("cache", "prune", "--older-than", "a"), "'a': expected a number of at least 0; see"),
    ],
)
def test_bad_usage_is_one_line_with_a_suggestion(run, arguments, said):
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    line = one_line(err)
    assert said in line
    assert "--help`" in line


@pytest.mark.parametrize("option", ["--keep-days", "--ids", "--gpu"])
def test_no_suggestion_is_better_than_one_out_of_nowhere(run, option):
    _, _, err = run("cache", "prune", option, "3")
    assert "did you mean" not in one_line(err)


@pytest.mark.parametrize(
    "words", [(), ("eval",), ("list",), ("cache",), ("cache", "prune"), ("weights", "fetch")]
)
def test_h_is_help_and_flags_show_no_type(run, words):
    code, out, err = run(*words, "-h")
    assert (code, err) == (0, "")
    assert run(*words, "--help") == (0, out, "")
    assert "<bool>" not in out and "BOOLEAN" not in out


@pytest.mark.parametrize("option", ["--weights", "--cache", "--out"])
def test_an_address_is_refused_as_it_was_written(run, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    address = "https://example.org/a"
    value = f"inception-2015-12-05={address}" if option == "--weights" else address
    code, _, err = run("eval", "g", "-m", "psnr", option, value)
    assert code == 2
    assert f"{address} is an address" in one_line(err)
    assert not any(tmp_path.glob("https*"))


def test_interrupt_is_one_line_and_130(run, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr("genmetrics.core.registry.registered", interrupt)
    assert run("list") == (130, "", "genmetrics: interrupted\n")


def test_fault_of_the_program_keeps_its_traceback(run, monkeypatch):
    def fail():
        raise RuntimeError("a bug")

    monkeypatch.setattr("genmetrics.core.registry.registered", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        run("list")


def test_message_with_control_characters_stays_one_line(run, tmp_path):
    code, _, err = run("eval", tmp_path / "a\x1b[31m\nb", "-m", "psnr", "--pair-with", tmp_path)
    assert code == 2
    assert "\x1b" not in one_line(err)


def test_closed_pipe_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "genmetrics", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), err) == (0, "")


def test_output_that_knows_only_ascii_gets_escapes(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = spawn("list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert r"Fr\xe9chet" in done.stdout


LIGHT = """
import sys
from genmetrics.cli.main import main
for arguments in (["--help"], ["eval", "--help"], ["list"], ["show", "fid"], ["show", "clipscore"]):
    assert main(arguments) == 0, arguments
heavy = {"torch", "torchvision", "transformers", "timm", "open_clip", "scipy", "skimage", "PIL"}
print("loaded:", sorted(heavy & set(sys.modules)))
"""


def test_light_commands_import_no_model_library():
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--help",), ("list",), ("show", "fid")])
def test_light_commands_start_at_once(arguments):
    # processor time: wall time follows whatever else the machine does
    seconds = []
    for _ in range(8):
        before = os.times()
        assert spawn(*arguments).returncode == 0
        after = os.times()
        seconds.append(
            after.children_user
            - before.children_user
            + after.children_system
            - before.children_system
        )
    assert min(seconds) < 0.4
