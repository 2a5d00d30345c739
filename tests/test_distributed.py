"""Metrics of several ranks, joined: every world gives the same bits."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

import genmetrics as gm
from genmetrics.core.errors import InputError, ProtocolMismatchError
from tests.ranks import accumulate, accumulate_set, describe, describe_set, one_thread

RANKS = Path(__file__).with_name("ranks.py")


def launch(folder: Path, world: int, n: int, *more: str) -> list[dict]:
    """Run the script in as many ranks; what each of them found, in order of rank."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}",
         str(RANKS), str(folder), str(n), *more],
        capture_output=True, text=True, timeout=60, env=one_thread(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(list(folder.iterdir())) == world
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def test_without_a_process_group_it_is_a_copy():
    metric = accumulate(range(5))
    joined = gm.distributed.sync(metric)
    assert joined is not metric
    assert describe(joined) == describe(metric)
    joined.reset()
    assert metric.compute().n == 5


@pytest.mark.slow
@pytest.mark.parametrize(("world", "n"), [(2, 7), (3, 2), (3, 13)])
def test_every_world_gives_the_bits_of_one_process(world, n, tmp_path):
    # worlds of 3 with 2 images: a rank without any takes part
    assert launch(tmp_path, world, n) == [describe(accumulate(range(n)))] * world


@pytest.mark.slow
def test_an_image_on_two_ranks_is_an_error_on_both(tmp_path):
    assert [line["error"] for line in launch(tmp_path, 2, 4, "--same")] == [
        "rank 1: sample id 'image-0' was given twice; ids must be unique over all updates and ranks"
    ] * 2


def test_without_a_process_group_a_set_is_copied_whole():
    """Formerly an AttributeError: ranks had to be joined metric by metric."""
    metrics = accumulate_set(range(7), real=True)
    joined = gm.distributed.sync(metrics)
    assert isinstance(joined, gm.MetricSet)
    assert describe_set(joined) == describe_set(metrics)
    joined.reset()
    assert metrics["psnr"].compute().n == 7


@pytest.mark.slow
def test_a_set_is_joined_in_one_go(tmp_path):
    alone = describe_set(accumulate_set(range(7), real=True))
    assert launch(tmp_path, 2, 7, "--set") == [alone] * 2


def test_a_set_takes_one_gather(monkeypatch):
    gathers = []
    plain = gm.distributed._gather
    monkeypatch.setattr(gm.distributed, "_gather", lambda s: gathers.append(s) or plain(s))
    gm.distributed.sync(accumulate_set(range(1), real=False))
    assert len(gathers) == 1


def test_sets_of_other_names_are_refused_with_the_rank(monkeypatch):
    mine, other = gm.MetricSet({"a": gm.PSNR()}), gm.MetricSet({"b": gm.PSNR()})
    shares = [gm.distributed._share(one) for one in (mine, other)]
    monkeypatch.setattr(gm.distributed, "_gather", lambda share: shares)
    with pytest.raises(InputError, match="rank 1: the state is of b, this set is of a"):
        gm.distributed.sync(mine)


def test_unlike_protocols_are_refused(monkeypatch):
    mine, other = gm.PSNR(device="cpu"), gm.SSIM(device="cpu")
    shares = [gm.distributed._share(metric) for metric in (mine, other)]
    monkeypatch.setattr(gm.distributed, "_gather", lambda share: shares)
    with pytest.raises(ProtocolMismatchError, match="rank 1: the state is of protocol"):
        gm.distributed.sync(mine)


def test_a_rank_that_cannot_give_its_state_ends_all(monkeypatch):
    broken = copy.copy(gm.PSNR(device="cpu"))
    monkeypatch.setattr(broken, "_state", lambda: 1 / 0)
    with pytest.raises(InputError, match="rank 0 cannot give .* ZeroDivisionError"):
        gm.distributed.sync(broken)
