"""What a command says, and which of several ranks says it."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import pytest

from genmetrics.cli import output
from genmetrics.run import launch
from genmetrics.run.ranks import Ranks


@pytest.mark.parametrize(("rank", "heard"), [(0, 1), (1, 0)])
def test_only_the_main_rank_warns(monkeypatch, rank, heard):
    @contextmanager
    def world(processes, device, command):
        ranks = Ranks()
        ranks.rank = rank
        yield ranks

    monkeypatch.setattr(launch, "world", world)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with output.world(None, "cpu"):
            warnings.warn("precision tf32 is not available", stacklevel=1)
    assert len(said) == heard
