"""Threads that compute with one core each, and the number of threads as a setting of a block."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch

from genmetrics.core.device import cores
from genmetrics.core.threads import all_threads, single_threaded, threads


def in_a_new_thread(question):
    """Ask in a thread that was started just now."""
    found = []
    asking = threading.Thread(target=lambda: found.append(question()))
    asking.start()
    asking.join()
    return found[0]


@pytest.mark.parametrize("count", [1, 3])
def test_each_thread_of_a_pool_uses_one_core_and_nobody_else_does(count):
    with threads(2):
        with single_threaded(count, "test") as pool:
            met = threading.Barrier(count)

            def ask():
                met.wait(10)  # so that each thread answers once
                return threading.current_thread().name, torch.get_num_threads()

            answers = [future.result() for future in [pool.submit(ask) for _ in range(count)]]
        assert len({name for name, _ in answers}) == count
        assert {number for _, number in answers} == {1}
        assert torch.get_num_threads() == 2
        assert in_a_new_thread(torch.get_num_threads) == 2


def test_a_system_without_more_threads_is_an_error_and_nobody_waits(monkeypatch):
    start, begun = threading.Thread.start, []

    def limited(thread):
        if begun:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    with threads(2):
        monkeypatch.setattr(threading.Thread, "start", limited)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            single_threaded(3, "test")
        monkeypatch.undo()
        assert torch.get_num_threads() == 2
    begun[0].join(10)
    assert not begun[0].is_alive()


def test_the_number_of_threads_comes_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise KeyError
    assert torch.get_num_threads() == before


DECIDES = """
import numpy as np
from genmetrics import stats
from genmetrics.core.threads import all_threads, threads
rng = np.random.default_rng(0)
x, y = rng.standard_normal((2, 700, 600), dtype=np.float32)
with threads(all_threads()):
    reference = stats.Moments(600).update(x)
    found = stats.frechet_estimate(reference, y)
    print(repr(found.value), repr(stats.frechet_infinity(reference, y, points=3)))
    print(found.influence.tobytes().hex(), repr(stats.vendi_estimate(y).value))
"""
NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCHELASTIC_RUN_ID")


@pytest.mark.slow
def test_the_environment_does_not_move_the_last_bits_of_a_decision():
    """With OMP_NUM_THREADS=1 the same features gave 52.79367925327307, else 52.793679253273694."""
    clean = {name: value for name, value in os.environ.items() if name not in NUMBERS}
    found = [
        subprocess.run(
            [sys.executable, "-c", DECIDES], env=clean | more, capture_output=True, text=True
        )
        for more in ({}, {"OMP_NUM_THREADS": "1"}, dict.fromkeys(NUMBERS[:3], "1"))
    ]
    assert [run.returncode for run in found] == [0] * 3, found[0].stderr
    assert found[0].stdout == found[1].stdout == found[2].stdout


@pytest.mark.parametrize("wish", [None, "1", "100000", "all"])
def test_a_decision_uses_all_its_cores_whatever_the_environment_says(monkeypatch, wish):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if wish is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", wish)
    assert all_threads() == cores()


def test_a_process_may_use_the_cores_it_was_given():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("no affinities here")
    given = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(given)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, given)
