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
from genmetrics.run.group import Group, _describe
from genmetrics.run.launch import _lost_starter
from genmetrics.run.meeting import STARTER, Lines


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


def connected() -> tuple[socket.socket, socket.socket]:
    """The two ends of a line."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


def rank_of_two(rank: int, store: Store, *, owned: bool = False) -> Group:
    group = Group("cpu", owned=owned)
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


@pytest.mark.parametrize("owned", [True, False])
def test_a_rank_without_its_store_leaves_at_once(capsys, monkeypatch, owned):
    """It speaks where nobody else does: not in a program that gets the error."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    group = rank_of_two(1, Gone(), owned=owned)
    with pytest.raises(RankError, match="rank 0 is gone"):
        group.check()
    group.__exit__(InputError, InputError("own error"), None)
    assert waits == []
    assert capsys.readouterr().err == ("genmetrics: error: rank 1: own error\n" if owned else "")


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
    other = Lines({0: ends[1]}, own=2)
    assert other.broken() == set()
    lines.close("why")
    other.wait(5)
    assert other.broken() == {0}
    assert other.said == "why"
    other.close()


@pytest.mark.parametrize("said", [b"", b"half a w"])
def test_a_rank_0_that_is_killed_said_nothing(said):
    theirs, ours = connected()
    line = Lines({0: ours}, own=1)
    theirs.send(said)
    assert line.broken() == set()
    theirs.close()
    line.wait(5)
    assert line.broken() == {0}
    assert line.said is None
    line.close()


def test_what_rank_0_failed_of_outlives_it():
    """It left, its store with it, before this rank came back from a long forward."""
    theirs, ours = connected()
    theirs.send(b'["InputError", "rank 0: why"]\n')
    theirs.close()
    group = rank_of_two(1, Gone())
    group._lines = Lines({0: ours}, own=1)
    group._lines.wait(5)
    for ask in (group.check, group.flagged, lambda: group.tally(1), lambda: next(group.claims(3))):
        with pytest.raises(InputError, match="^rank 0: why$"):
            ask()
    group.__exit__(InputError, InputError("rank 0: why"), None)


def test_what_started_this_process_is_gone(monkeypatch):
    monkeypatch.setenv(STARTER, str(os.getppid()))
    assert _lost_starter() is None
    monkeypatch.setenv(STARTER, "1" if os.getppid() != 1 else "2")
    assert _lost_starter() == (0, "killed, or out of memory?")
