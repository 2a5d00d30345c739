"""What cannot be a world is refused by one line before the work.

Retold here: a launcher's variables in the shell made a single process wait for others.
"""

from __future__ import annotations

import json
import time

import pytest

from genmetrics.cli.main import main
from genmetrics.core.device import cores

from .conftest import write_images
from .worlds import COUNT, a_job, run, started  # noqa: F401

pytestmark = pytest.mark.timeout(60)

# ranks that do not fit together


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-m", "{toy-ranks,psnr}"), "give all ranks the same"),
        (("-m", "toy-ranks", "--batch-size", "{4,5}"), "give all ranks the same arguments"),
        (("-m", "toy-ranks", "--on-error", "{fail,skip}"), "give all ranks the same arguments"),
    ],
)
def test_ranks_with_other_arguments(tmp_path, options, said):
    write_images(tmp_path / "gen", COUNT)
    plain = ["eval", str(tmp_path / "gen"), "--device", "cpu", "--no-cache", "-q"]
    end = run(tmp_path, "processes", *plain, *options)
    assert end.codes == [2]
    assert said in end.stderr


@pytest.mark.slow
def test_ranks_with_other_weights(tmp_path):
    import torch

    from genmetrics.weights import load_state_dict, require

    write_images(tmp_path / "gen", COUNT)
    state = load_state_dict(require("efficientnet-lite0"))
    for rank in range(2):
        next(iter(state.values())).add_(rank)
        torch.save(state, tmp_path / f"weights-{rank}.pth")
    end = run(
        *(tmp_path, "processes", "eval", str(tmp_path / "gen"), "-m", "vendi@lite", "--no-cache"),
        *("--weights", f"efficientnet-lite0={tmp_path}/weights-{{0,1}}.pth", "-q"),
    )
    assert end.codes == [2]
    (line,) = end.stderr.splitlines()
    assert "rank 1 would compute vendi@lite (extractor) with sha256" in line


@pytest.mark.slow
def test_a_missing_folder_is_told_once(tmp_path):
    missing = str(tmp_path / "nothing")
    end = run(tmp_path, "by hand", "eval", missing, "-m", "toy-ranks", "--json", "--no-cache")
    assert end.codes == [2, 2]
    (line,) = end.stderr.splitlines()
    assert line.startswith(f"genmetrics: error: {missing}")
    assert end.stdout == ""


# the launch


@pytest.mark.slow
def test_a_rank_that_never_arrives(job, tmp_path):
    end = run(tmp_path, "processes", *job, faults="1:start:exit")
    assert end.codes == [1]
    (line,) = end.stderr.splitlines()
    assert line.startswith("genmetrics: error: rank 1 is gone (ended with code 3)")


@pytest.mark.slow
def test_no_orphan_waits_for_a_rank_0_that_never_arrives(job, tmp_path):
    with started(tmp_path, "processes", *job) as world:
        while len(world.left()) < 2:  # rank 1 has been started, and has yet to load what it needs
            time.sleep(0.05)
        world.processes[0].kill()
        assert world.end().codes == [-9]


@pytest.mark.slow
def test_processes_inside_a_launcher_of_another_number(job, tmp_path):
    end = run(tmp_path, "torchrun", *job, "--processes", "3")
    # ranks that have not met speak each for itself
    assert set(end.errors) == {
        "genmetrics: error: --processes 3 inside a launcher that started 2; drop it"
    }


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_no_number_of_processes(job, capsys, count):
    assert main([*job, "--processes", count]) == 2
    assert "--processes" in capsys.readouterr().err


def test_far_too_many_processes(job, capsys):
    assert main([*job, "--processes", str(4 * cores() + 1)]) == 2
    assert f"on {cores()} cores" in capsys.readouterr().err


@pytest.mark.slow
def test_a_device_that_is_not_there(job, tmp_path):
    device = "cuda:77"
    job[job.index("--device") + 1] = device
    end = run(tmp_path, "processes", *job)
    assert end.codes == [2]
    (line,) = end.stderr.splitlines()
    assert device in line


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK"])
def test_one_variable_of_a_launcher_starts_no_world(job, name, monkeypatch, capsys):
    monkeypatch.setenv(name, "8")
    assert main(job) == 0
    assert json.loads(capsys.readouterr().out)["runtime"]["processes"] == 1
    job[1] += "-not-there"
    assert main(job) == 2
    assert "does not exist" in capsys.readouterr().err  # this process speaks for the run


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RANK": "0"}, "without MASTER_ADDR; set it to the machine of rank 0"),
        ({"RANK": "first", "MASTER_ADDR": "a"}, "RANK is 'first' in the environment"),
        ({"RANK": "2", "MASTER_ADDR": "a"}, "RANK is 2 and WORLD_SIZE 2"),
    ],
)
def test_an_environment_that_cannot_be_right(job, monkeypatch, capsys, environment, said):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    for name, value in {"WORLD_SIZE": "2", **environment}.items():
        monkeypatch.setenv(name, value)
    assert main(job) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
