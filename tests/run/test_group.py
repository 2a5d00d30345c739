"""One rank by itself: a stand-in for the store, and sockets of this process.

What whole worlds do is in ``test_ranks.py``.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from typing import Any

import pytest

from genmetrics.core.errors import InputError, MissingExtraError, RankError, UsageError
from genmetrics.run import meeting
from genmetrics.run.launch import _lost_starter
from genmetrics.run.meeting import STARTER, Lines
from genmetrics.run.ranks import Group, _describe


class Store:
    """The questions a rank asks."""

    def __init__(self, **values: str) -> None:
        self.values = dict(values)

    def add(self, key: str, amount: int) -> int:
        self.values[key] = str(int(self.values.get(key, "0")) + amount)
        return int(self.values[key])

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if self.values.get(key, "") == expected:
            self.values[key] = desired
        return self.get(key)


class Gone(Store):
    """A store whose host has ended."""

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("Connection reset by peer")

    add = check = get = compare_set = _fail


def rank_of_two(rank: int, store: Store) -> Group:
    group = Group("cpu")
    group.rank, group.world, group._store = rank, 2, store  # type: ignore[assignment]
    return group


def test_the_first_of_two_failures_stays():
    store = Store()
    for rank in (1, 0):
        rank_of_two(rank, store)._tell(_describe(rank, InputError(f"error {rank}")))
    with pytest.raises(InputError, match="^rank 1: error 1$"):
        rank_of_two(0, store).check()


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (UsageError("what and why"), UsageError, "rank 1: what and why"),
        (MissingExtraError("x", "y"), InputError, "rank 1: x needs the package y"),
        (ValueError("two\nlines"), RankError, "rank 1: ValueError: two lines"),
        (KeyboardInterrupt(), RankError, "rank 1: interrupted"),
    ],
)
def test_an_error_keeps_its_kind_on_other_ranks(error, raised, message):
    store = Store()
    rank_of_two(1, store)._tell(_describe(1, error))
    with pytest.raises(raised, match=f"^{message}") as caught:
        rank_of_two(0, store).check()
    assert type(caught.value) is raised


def test_a_rank_without_its_store_leaves_at_once(capsys):
    began = time.monotonic()
    group = rank_of_two(1, Gone())
    with pytest.raises(RankError, match="rank 0 is gone"):
        group.check()
    group.__exit__(InputError, InputError("own error"), None)
    assert time.monotonic() - began < 1
    assert capsys.readouterr().err == "genmetrics: error: rank 1: own error\n"


def test_pieces_of_work_are_claimed_once_and_counted_alike():
    store = Store()
    one, other = (rank_of_two(rank, store) for rank in range(2))
    first = other.claims(5)
    assert next(first) == (2, True)
    assert [claim.position for claim in one.claims(5)] == [0, 1, 3, 4]
    assert list(first) == []
    assert next(one.claims(5)).own
    with pytest.raises(UsageError, match="4 pieces of work where another has 5"):
        next(other.claims(4))


def test_a_value_that_cannot_travel_fails_before_the_others_wait_for_it():
    store = Store()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        rank_of_two(0, store).gather(lambda: None)
    assert store.values == {}


def test_a_line_breaks_when_the_other_end_closes_and_not_before(monkeypatch):
    monkeypatch.setattr(meeting, "SILENCE", 8.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ends = [socket.create_connection(server.getsockname()) for _ in range(2)]
        lines = Lines({rank: server.accept()[0] for rank in (1, 2)})
    line = lines._lines[1]
    assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert lines.broken() == set()
    ends[0].close()
    time.sleep(0.05)
    assert lines.broken() == {1}
    assert lines.broken() == {1}
    lines.close(told=True)
    assert ends[1].recv(9) == b"!"
    assert ends[1].recv(9) == b""
    ends[1].close()


def test_what_started_this_process_is_gone(monkeypatch):
    monkeypatch.setenv(STARTER, str(os.getppid()))
    assert _lost_starter() is None
    monkeypatch.setenv(STARTER, "1" if os.getppid() != 1 else "2")
    assert _lost_starter() == (0, "killed, or out of memory?")
