"""Threads that compute with one core each, and the number of threads as a setting of a block."""

from __future__ import annotations

import os
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


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, cores()),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "100000"}, cores()),
        ({"OMP_NUM_THREADS": "all"}, cores()),
        # torchrun's own default, not a wish
        ({"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "x"}, cores()),
    ],
)
def test_a_process_uses_all_its_cores_or_what_the_user_says(monkeypatch, environment, expected):
    for name in ("OMP_NUM_THREADS", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert all_threads() == expected


def test_a_process_may_use_the_cores_it_was_given():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("no affinities here")
    given = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(given)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, given)
