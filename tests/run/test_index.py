from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.run.index import KeyIndex, words_of


def digest(i):
    return hashlib.sha256(str(i).encode()).hexdigest()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 60), max_size=20), max_size=12))
def test_as_a_dictionary_in_which_the_first_stays(pieces):
    index, expected = KeyIndex(), {}
    place = 0
    for piece in pieces:
        index.add(words_of([digest(i) for i in piece]), np.arange(place, place + len(piece)))
        for i in piece:
            expected.setdefault(i, place)
            place += 1
    assert len(index) == len(expected)
    asked = [0, *range(62), 5, 5]
    assert index.find([digest(i) for i in asked]).tolist() == [expected.get(i, -1) for i in asked]


@pytest.mark.parametrize("pieces", [1, 3, 40])
def test_digests_whose_heads_are_equal_are_told_apart(pieces):
    keys = [f"{i:016x}" * 2 + "0" * 32 for i in range(40)]  # the first two words cancel out
    index = KeyIndex()
    for some in np.array_split(np.arange(40), pieces):
        index.add(words_of([keys[i] for i in some]), some)
    assert index.find(keys).tolist() == list(range(40))
    assert index.find([f"{99:016x}" * 2 + "0" * 32]).tolist() == [-1]


def test_one_at_a_time_or_many():
    index = KeyIndex()
    assert digest(0) not in index
    assert index.having([]).tolist() == []
    index.add(words_of([digest(0)]), np.array([7]))
    assert digest(0) in index
    assert index.having([digest(1), digest(0)]).tolist() == [False, True]


def test_adding_one_by_one_makes_few_tables():
    index = KeyIndex()
    for i in range(500):
        index.add(words_of([digest(i)]), np.array([i]))
    assert len(index) == 500
    assert len(index._tables) < 10
