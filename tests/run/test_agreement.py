"""Ranks that were given something else are refused, by name."""

from __future__ import annotations

import pytest

from genmetrics.core.errors import InputError, UsageError
from genmetrics.run import agreement
from genmetrics.run.agreement import same_arguments, same_files, same_models
from genmetrics.run.ranks import ALONE, Ranks
from genmetrics.samples.sources import read_samples

from .conftest import write_images
from .toys import ToyBrightness, ToyDistance, ToySpec


class Two(Ranks):
    """Rank 0 of two; the other brings what it is told to."""

    world = 2

    def __init__(self, *others):
        self.others = list(others)

    def gather(self, value, meanwhile=None):
        other = self.others.pop(0)
        return [value, other(value) if callable(other) else other]

    gather_to_main = gather


def same(value):
    return value


def test_equal_arguments_pass_and_others_are_named():
    same_arguments(ALONE, limit=3)
    same_arguments(Two(same), limit=3, seed=None)
    with pytest.raises(UsageError, match=r"rank 1 was given limit 4, rank 0 3; give all ranks"):
        same_arguments(Two({"limit": "4", "seed": "None"}), limit=3, seed=None)


def test_other_metrics_and_other_weights_are_named():
    mine = {"toy-distance": ToyDistance(ToySpec())}
    same_models(mine, Two(same, same))
    with pytest.raises(UsageError, match=r"rank 1 was given metrics toy-x, rank 0 toy-distance"):
        same_models(mine, Two({"metrics": "toy-x"}))
    theirs = ToySpec(fault="zeros").to_dict()
    with pytest.raises(UsageError, match=r"rank 1 would compute toy-distance \(.*\) with fault"):
        same_models(mine, Two(same, theirs))
    same_models({"toy-brightness": ToyBrightness(ToySpec())}, ALONE)


def test_a_stale_copy_on_another_machine_is_refused(tmp_path):
    samples = read_samples(write_images(tmp_path, 3))
    same_files(samples, Two(same))  # one machine, one folder: nobody looks
    other = ("elsewhere", "/data")
    same_files(samples, Two(other, same))
    with pytest.raises(InputError, match=r"1.png has 7 bytes on rank 1 \(elsewhere\) and has \d+"):
        same_files(samples, Two(other, lambda found: {**found, str(tmp_path / "1.png"): 7}))
    with pytest.raises(InputError, match=r"2.png is missing on rank 1 \(elsewhere\) .* rank 0"):
        same_files(samples, Two(other, lambda found: {**found, str(tmp_path / "2.png"): None}))


def test_of_ranks_that_share_a_folder_one_looks(tmp_path, monkeypatch):
    samples = read_samples(write_images(tmp_path, 3))
    looked = []
    monkeypatch.setattr(agreement, "file_sizes", lambda found: looked.append(len(found)) or {})

    class Second(Two):
        rank = 1

        def gather(self, value, meanwhile=None):
            return [value, value, ("elsewhere", "/")]

        def gather_to_main(self, value, meanwhile=None):
            assert value == {}
            return []

        def share(self, make):
            return None

    same_files(samples, Second())
    assert looked == []
