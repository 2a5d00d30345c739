"""The failure of one rank ends all, at once and with one clear line; nothing hangs or is left over.

Retold here: a worker that ran out of memory left the others waiting for half an hour, an exception
on one rank became a time-out on all, Ctrl-C left processes behind, a launcher's variables in the
shell made a single process wait for others.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from genmetrics.cli.main import main
from genmetrics.core import registry
from genmetrics.core.device import cores

from .conftest import write_images
from .rank_target import FAULTS, MODULE, Toy

COUNT, BATCH = 24, 4
SOON = 30.0
"""Seconds after a fault by which everything has ended."""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

pytestmark = pytest.mark.timeout(60)


class End(NamedTuple):
    """How a world ended."""

    codes: list[int]
    stdout: str
    stderr: str
    seconds: float

    @property
    def errors(self) -> list[str]:
        """Lines for humans that tell of an error."""
        return [line for line in self.stderr.splitlines() if line.startswith("genmetrics: error")]


class World:
    """Processes that were started, and everything they start."""

    def __init__(
        self, folder: Path, commands: Sequence[Sequence[str]], environments: Sequence[Mapping]
    ) -> None:
        self._mark = f"RANK_TEST={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        inherited = {key: v for key, v in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
        self._streams = folder / "stdout", folder / "stderr"
        self._begun = time.monotonic()
        with self._streams[0].open("wb") as out, self._streams[1].open("wb") as err:
            self.processes = [
                subprocess.Popen(
                    [sys.executable, *command],
                    env={**inherited, "OMP_NUM_THREADS": "1", name: value, **environment},
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
                for command, environment in zip(commands, environments, strict=True)
            ]

    def end(self) -> End:
        """Wait until all have ended; nothing of what they started is left."""
        codes = [process.wait(timeout=50) for process in self.processes]
        seconds = time.monotonic() - self._begun
        deadline = time.monotonic() + 10
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, f"left over: {left}"
        out, err = (stream.read_text() for stream in self._streams)
        return End(codes, out, err, seconds)

    def kill(self) -> None:
        """Leave nothing behind, whatever the test found."""
        for process in self.left():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def left(self) -> list[int]:
        """Return the ids of what still runs."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                running = self._mark.encode() in (place / "environ").read_bytes().split(b"\0")
                if running and (place / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append(int(place.name))
        return found


@contextmanager
def started(
    folder: Path, how: str, *arguments: str, faults: str = "", **more: str
) -> Iterator[World]:
    """Start a world of two: by ``--processes``, by torchrun, or rank by rank as srun would."""
    target = ("-m", MODULE, *arguments)
    plain = {FAULTS: faults, **more}
    if how == "processes":
        world = World(folder, [(*target, "--processes", "2")], [plain])
    elif how == "torchrun":
        world = World(folder, [(*TORCHRUN, *target)], [plain])
    else:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = str(found.getsockname()[1])
        address = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ranks = [{**plain, **address, "RANK": str(rank)} for rank in range(2)]
        world = World(folder, [target] * 2, ranks)
    try:
        yield world
    finally:
        world.kill()


def run(folder: Path, how: str, *arguments: str, faults: str = "", **more: str) -> End:
    with started(folder, how, *arguments, faults=faults, **more) as world:
        return world.end()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of a run that logs every forward; this process knows the metric meanwhile."""
    monkeypatch.setitem(registry._METRICS, Toy.id, Toy)
    write_images(tmp_path / "gen", COUNT)
    log = tmp_path / "log"
    return [
        *("eval", str(tmp_path / "gen"), "-m", f"toy-ranks:log={log}"),
        *("--cache", str(tmp_path / "cache"), "--batch-size", str(BATCH)),
        *("--device", "cpu", "--workers", "1", "--json", "-q"),
    ]


def document(text: str) -> dict[str, Any]:
    """What may not depend on the world or its history."""
    found = json.loads(text)
    return {key: found[key] for key in ("metrics", "inputs", "skipped", "conversions")}


def forwards(folder: Path) -> int:
    log = folder / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def fresh(folder: Path, job: list[str]) -> list[str]:
    """The same run, with nothing to go on from."""
    return [str(folder / "fresh") if word == str(folder / "cache") else word for word in job]


def require_resume(folder: Path, job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What the broken run kept and the rest give the bits of a run that never failed."""
    before = forwards(folder)
    assert 0 < before <= COUNT // BATCH
    assert main(job) == 0
    resumed = capsys.readouterr().out
    # a rank that was killed loses the batch it computed, and the one under way to the disk
    assert 0 < forwards(folder) - before < COUNT // BATCH
    assert main(fresh(folder, job)) == 0
    assert document(resumed) == document(capsys.readouterr().out)


def wait_for_forwards(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 30
    while forwards(folder) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


# one bad file


def cut(path: Path) -> None:
    """A sound header and no end: found when the picture is decoded."""
    Image.effect_noise((64, 64), 90).save(path, "JPEG")
    path.write_bytes(path.read_bytes()[:-900])


def break_header(path: Path) -> None:
    """Found while planning."""
    path.write_bytes(b"\x89PNG\r\n\x1a\n but no more")


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [cut, break_header])
def test_a_bad_file_of_rank_1_is_named_once(job, tmp_path, spoil):
    spoil(tmp_path / "gen" / "99.jpg")
    end = run(tmp_path, "processes", *job)
    assert end.codes == [2]
    (line,) = end.stderr.splitlines()
    assert line.startswith("genmetrics: error: 1 sample cannot be used: ")
    assert "99.jpg" in line
    assert end.stdout == ""


@pytest.mark.slow
def test_bad_files_are_skipped_as_by_one_process(job, tmp_path, capsys):
    cut(tmp_path / "gen" / "98.jpg")
    break_header(tmp_path / "gen" / "99.jpg")
    job += ["--on-error", "skip"]
    end = run(tmp_path, "processes", *job)
    assert end.codes == [1]
    assert main(fresh(tmp_path, job)) == 1
    alone = document(capsys.readouterr().out)
    assert document(end.stdout) == alone
    assert {row["id"] for row in alone["skipped"]} == {"98", "99"}


@pytest.mark.slow
def test_an_error_that_only_rank_1_meets_names_it(tmp_path):
    for name in ("gen", "ref"):
        write_images(tmp_path / name, 6)
    Image.new("RGB", (5, 7)).save(tmp_path / "ref" / "5.png")
    pairs = ["--pair-with", str(tmp_path / "ref"), "-m", "psnr", "--no-cache", "--device", "cpu"]
    end = run(tmp_path, "torchrun", "eval", str(tmp_path / "gen"), *pairs, "-q")
    assert end.codes == [1]  # torchrun's own
    assert len(end.errors) == 1
    assert end.errors[0].startswith("genmetrics: error: rank 1: ")
    assert "5.png" in end.errors[0]
    assert "genmetrics/" not in end.stderr  # no traceback of ours


# a rank is killed


@pytest.mark.slow
@pytest.mark.parametrize("how", ["processes", "torchrun", "by hand"])
def test_rank_1_is_killed(job, tmp_path, capsys, how):
    end = run(tmp_path, how, *job, faults="1:forward3:kill")
    assert end.seconds < SOON
    assert end.stdout == ""
    why = "killed by signal 9" if how == "processes" else "killed, or out of memory?"
    line = f"genmetrics: error: rank 1 is gone ({why}); run again, what was computed is kept"
    if how == "torchrun":  # which may end rank 0 before it has noticed
        assert end.codes == [1]
        assert end.errors in ([], [line])
    else:
        assert end.codes == ([1] if how == "processes" else [1, -9])
        assert end.stderr.splitlines() == [line]
    require_resume(tmp_path, job, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["processes", "torchrun", "by hand"])
def test_rank_0_is_killed(job, tmp_path, capsys, how):
    end = run(tmp_path, how, *job, faults="0:forward3:kill")
    assert end.seconds < SOON
    assert end.stdout == ""
    line = (
        "genmetrics: error: rank 1: rank 0 is gone (killed, or out of memory?); run again, what was"
        " computed is kept"
    )
    if how == "torchrun":
        assert end.codes == [1]
        assert end.errors in ([], [line], ["genmetrics: error: rank 1: interrupted"])
    else:
        assert end.codes == ([-9] if how == "processes" else [-9, 1])
        assert end.stderr.splitlines() == [line]
    require_resume(tmp_path, job, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "place"), [(1, "arrived"), (0, "arrived"), (1, "end")])
def test_a_rank_is_killed_while_values_are_exchanged_or_all_is_done(job, tmp_path, rank, place):
    end = run(tmp_path, "by hand", *job, faults=f"{rank}:{place}:kill")
    assert end.seconds < SOON
    assert end.codes[rank] == -9
    # having said so, one survivor in some hundred is aborted by torch while Python shuts down
    assert end.codes[1 - rank] in (1, -signal.SIGABRT)
    (line,) = end.errors
    assert f"rank {rank} is gone" in line or "lost the others" in line


# the disk is full


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk that holds one shard, where this process may mount one."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_on_one_rank(job, tmp_path, capsys):
    place = tmp_path / "caches" / "1"
    own = [word.replace(str(tmp_path / "cache"), str(place.parent / "{0,1}")) for word in job]
    with small_disk(place) as mounted:
        end = run(tmp_path, "by hand", *own, faults="" if mounted else "1:store:full")
        assert end.seconds < SOON
        assert end.codes == [2, 2]
        (line,) = end.stderr.splitlines()
        assert line.startswith(f"genmetrics: error: rank 1: {place}")
        assert "No space left on device" in line
        assert not list(place.parent.glob("**/*.tmp"))
        if mounted:
            larger = ["mount", "-o", "remount,size=1m", str(place)]
            subprocess.run(larger, check=True)
        before = forwards(tmp_path)
        again = run(tmp_path, "by hand", *own)
    assert again.codes == [0, 0]
    assert again.stderr == ""
    assert forwards(tmp_path) - before < COUNT // BATCH
    assert main(fresh(tmp_path, job)) == 0
    assert document(again.stdout) == document(capsys.readouterr().out)


# an error nobody expected


@pytest.mark.slow
def test_an_unexpected_error_on_rank_1(job, tmp_path, capsys):
    end = run(tmp_path, "by hand", *job, faults="1:forward2:surprise")
    assert end.seconds < SOON
    assert end.codes == [1, 1]
    assert end.errors == ["genmetrics: error: rank 1: RuntimeError: surprise"]
    assert "in failing" in end.stderr  # rank 1 shows where
    require_resume(tmp_path, job, capsys)


@pytest.mark.slow
def test_two_errors_at_once_end_all_the_same(job, tmp_path):
    end = run(tmp_path, "by hand", *job, faults="0:forward2:zero 1:forward2:one")
    assert end.seconds < SOON
    assert end.codes == [1, 1]
    assert "RuntimeError: zero" in end.stderr or end.errors == [
        "genmetrics: error: rank 1: RuntimeError: one"  # it was first, and rank 0 heard of it
    ]


@pytest.mark.slow
def test_an_error_when_all_is_done_reaches_those_who_are_done(job, tmp_path):
    end = run(tmp_path, "by hand", *job, faults="0:end:late")
    assert end.codes == [1, 1]
    assert "RuntimeError: late" in end.stderr


# somebody ends the run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_the_run_is_interrupted(job, tmp_path, capsys, number, code):
    with started(tmp_path, "processes", *job) as world:
        wait_for_forwards(tmp_path, 2)
        # a terminal signals the foreground group; the other ranks are not in it
        os.killpg(world.processes[0].pid, number)
        signalled = time.monotonic()
        end = world.end()
        assert time.monotonic() - signalled < 10
    assert end.codes == [code]
    assert end.stderr == ("genmetrics: interrupted\n" if code == 130 else "")
    assert end.stdout == ""
    require_resume(tmp_path, job, capsys)


@pytest.mark.slow
def test_it_is_interrupted_before_all_have_met(job, tmp_path):
    with started(tmp_path, "processes", *job, faults="1:start:sleep") as world:
        time.sleep(2.5)
        os.killpg(world.processes[0].pid, signal.SIGINT)
        end = world.end()
    assert end.seconds < 6
    assert end.codes == [130]


# nothing is wrong


@pytest.mark.slow
def test_a_rank_that_is_stopped_or_keeps_the_lock_is_not_dead(job, tmp_path, capsys):
    end = run(tmp_path, "by hand", *job, faults="1:forward1:hold 0:forward1:stop")
    assert end.codes == [0, 0]
    assert end.stderr == ""
    assert main(fresh(tmp_path, job)) == 0
    assert document(end.stdout) == document(capsys.readouterr().out)


@pytest.mark.slow
def test_a_good_run_says_nothing_but_the_document(job, tmp_path, capsys):
    # more ranks than batches
    job[job.index("--batch-size") + 1] = str(COUNT)
    end = run(tmp_path, "processes", *job, PYTHONWARNINGS="error")
    assert end.codes == [0]
    assert end.stderr == ""
    assert main(fresh(tmp_path, job)) == 0
    assert document(end.stdout) == document(capsys.readouterr().out)


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
    assert end.seconds < SOON
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
