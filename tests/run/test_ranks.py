"""The failure of one rank ends all, at once and with one clear line; nothing hangs or is left over.

Retold here: a worker that ran out of memory left the others waiting for half an hour, an exception
on one rank became a time-out on all, Ctrl-C left processes behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from genmetrics.cli.main import main

from .conftest import write_images
from .worlds import (  # noqa: F401
    BATCH,
    COUNT,
    a_job,
    document,
    forwards,
    fresh,
    require_resume,
    run,
    started,
    wait_for_forwards,
)

pytestmark = pytest.mark.timeout(60)

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
    assert end.codes[rank] == -9
    assert end.codes[1 - rank] == 1
    (line,) = end.errors
    assert f"rank {rank} is gone" in line or "lost the others" in line


# the disk is full


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk that holds what the extractor is or a shard, not both, where one may be mounted."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
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
    end = run(tmp_path, "by hand", *job, faults="1:forward2:surprise", GENMETRICS_TRACEBACK="1")
    assert end.codes == [1, 1]
    (line,) = end.errors
    assert line.startswith("genmetrics: error: rank 1: ")
    assert ".png: toy: RuntimeError: surprise; it failed for the batch of 4 samples" in line
    assert "in failing" in end.stderr  # rank 1 shows where
    require_resume(tmp_path, job, capsys, alone=BATCH)  # in search of the one at fault


@pytest.mark.slow
def test_two_errors_at_once_end_all_the_same(job, tmp_path):
    end = run(tmp_path, "by hand", *job, faults="0:forward2:zero 1:forward2:one")
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
        end = world.end()
    assert end.codes == [code]
    assert end.stderr == ("genmetrics: interrupted\n" if code == 130 else "")
    assert end.stdout == ""
    require_resume(tmp_path, job, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.4, 0.8, 1.3, 1.8, 2.4, 4.0])
def test_it_is_interrupted_at_any_moment(job, tmp_path, delay):
    """While models are imported, ranks meet, work, or wait for each other."""
    with started(tmp_path, "processes", *job, faults="1:forward1:sleep") as world:
        while len(world.left()) < 2:
            time.sleep(0.02)
        time.sleep(delay)
        world.processes[0].send_signal(signal.SIGINT)
        end = world.end()
    # Python ends by the signal where it met the text of a class that is being made; shells say 130
    assert end.codes[0] in (130, -signal.SIGINT)
    assert end.stderr == "genmetrics: interrupted\n"
    assert end.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_that_meets_a_destructor_is_not_lost(job, tmp_path, name, code):
    """Python said "Exception ignored", the run went on, and ended with 0."""
    end = run(tmp_path, "processes", *job, faults=f"0:forward2:{name}")
    assert end.codes == [code]
    assert end.stderr == ("genmetrics: interrupted\n" if code == 130 else "")
    assert end.stdout == ""
    assert forwards(tmp_path) < COUNT // BATCH


@pytest.mark.slow
def test_it_is_interrupted_before_all_have_met(job, tmp_path):
    with started(tmp_path, "processes", *job, faults="1:start:sleep") as world:
        time.sleep(2.5)
        os.killpg(world.processes[0].pid, signal.SIGINT)
        end = world.end()
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
