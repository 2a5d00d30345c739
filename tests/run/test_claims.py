"""Who does which piece of work: each piece once, own pieces first, and nobody idle for long."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import HashStore

from genmetrics.core.sample import Sample
from genmetrics.run.batches import Batch
from genmetrics.run.group import Group
from genmetrics.run.prepare import _AHEAD, Preparer
from genmetrics.run.progress import Silent
from genmetrics.run.ranks import ALONE, Claim
from genmetrics.run.work import How, Job, Prepared, Who

from .toys import ToySpec

SLOWER = 10
"""How many times longer a batch takes on the slow rank."""


def ranks_of(world: int) -> list[Group]:
    """Ranks of one process, with a store in its memory."""
    store = HashStore()
    ranks = [Group("cpu") for _ in range(world)]
    for i, rank in enumerate(ranks):
        rank.rank, rank.world, rank._store = i, world, store
    return ranks


def test_a_world_of_one_takes_all_in_order():
    assert list(ALONE.claims(3)) == [Claim(0, True), Claim(1, True), Claim(2, True)]
    assert list(ALONE.claims(0)) == []


@settings(max_examples=200, deadline=None)
@given(world=st.integers(1, 4), count=st.integers(0, 40), draw=st.randoms(use_true_random=False))
def test_each_piece_is_claimed_once_whoever_is_fast(world, count, draw):
    ranks = ranks_of(world)
    for _ in range(2):  # the second stage of a run begins anew
        claimed: list[tuple[int, Claim]] = []
        open_claims = {r.rank: r.claims(count) for r in ranks}
        weights = [draw.choice([1, 1, 10, 100]) for _ in ranks]
        while open_claims:
            (rank,) = draw.choices(list(open_claims), [weights[r] for r in open_claims])
            claim = next(open_claims[rank], None)
            if claim is None:
                del open_claims[rank]
            else:
                claimed.append((rank, claim))
        assert sorted(claim.position for _, claim in claimed) == list(range(count))
        for rank in ranks:
            _require_own_first(rank, count, claimed)


def _require_own_first(rank: Group, count: int, claimed: list[tuple[int, Claim]]) -> None:
    part = rank.part(count)
    mine = [claim for who, claim in claimed if who == rank.rank]
    assert all(claim.own == (claim.position in part) for claim in mine)
    own = [claim.position for claim in mine if claim.own]
    assert own == sorted(own)
    assert mine == [c for c in mine if c.own] + [c for c in mine if not c.own]
    for i, (who, claim) in enumerate(claimed):
        if who == rank.rank and not claim.own:  # nothing of its own was left to begin
            begun = {c.position for _, c in claimed[:i]}
            assert begun.issuperset(part)


@given(world=st.integers(1, 4), count=st.integers(0, 40))
def test_equal_ranks_keep_their_contiguous_parts(world, count):
    parts = [list(rank.part(count)) for rank in ranks_of(world)]
    assert [position for part in parts for position in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def finish_times(work: list[Iterator[Any]], seconds: list[float]) -> list[float]:
    """When each rank finds nothing left, on a clock on which nothing else takes time."""
    ends = [0.0] * len(work)
    free = [(0.0, rank) for rank in range(len(work))]
    while free:
        now, rank = heapq.heappop(free)
        if next(work[rank], None) is None:
            ends[rank] = now
        else:
            heapq.heappush(free, (now + seconds[rank], rank))
    return ends


@pytest.mark.parametrize("count", [20, 41, 100])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_slow_rank_is_waited_for_no_longer_than_a_batch(world, count):
    seconds = [float(SLOWER), *[1.0] * (world - 1)]
    ends = finish_times([rank.claims(count) for rank in ranks_of(world)], seconds)
    assert max(ends) - min(ends) <= SLOWER


def preparer(rank: Group) -> Preparer:
    """One that prepares samples in no time."""
    how = How(
        device="cpu", batch_size=1, shrink=False, workers=1, on_error="fail", progress=Silent(),
        ranks=rank,
    )  # fmt: skip
    made = Preparer([Job(ToySpec(), ())], {}, how)
    made._prepare = lambda who, wanted, load: Prepared(who, {})  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("count", [20, 41, 100])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_what_a_slow_rank_decodes_ahead_is_waited_for_too(world, count):
    """Those it has claimed are its own: one that is computed, and two that are decoded."""
    batches = [Batch((Who("generated", Sample(id=str(i))),), (0,)) for i in range(count)]
    seconds = [float(SLOWER), *[1.0] * (world - 1)]
    work = [preparer(rank).chunks(batches, 1) for rank in ranks_of(world)]
    ends = finish_times(work, seconds)
    assert max(ends) - min(ends) <= (1 + _AHEAD) * SLOWER
    assert max(ends) < 0.8 * SLOWER * count / world  # than if nobody had helped
