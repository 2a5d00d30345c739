from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError
from genmetrics.core.sample import Sample
from genmetrics.core.state import FeatureRows, natural_key


def rows(*ids: str) -> FeatureRows:
    found = FeatureRows()
    for name in ids:
        value = np.array([[float(len(name)), float(sum(map(ord, name)))]], np.float32)
        found.append([Sample(id=name)], {"image": {"v": value}})
    return found


def test_natural_order_puts_2_before_10():
    assert sorted(["r_10", "r_2", "r_1", "a/3", "a/12"], key=natural_key) == [
        "a/3", "a/12", "r_1", "r_2", "r_10",
    ]  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab019_/é", min_size=1, max_size=6), unique=True))
def test_natural_order_is_total(names):
    assert len({natural_key(name) for name in names}) == len(names)
    assert sorted(names, key=natural_key) == sorted(reversed(names), key=natural_key)


def test_rows_come_back_in_order_of_id_whoever_added_them():
    one, other = rows("b", "r_10"), rows("r_2", "a")
    one.merge(other)
    samples, features = one.ordered()
    assert [sample.id for sample in samples] == ["a", "b", "r_2", "r_10"]
    expected = [float(sum(map(ord, name))) for name in ("a", "b", "r_2", "r_10")]
    assert features["image"]["v"][:, 1].tolist() == expected


def test_a_sample_that_two_ranks_scored_is_an_error():
    one = rows("a", "b")
    with pytest.raises(InputError, match="'b' was given twice"):
        one.merge(rows("b"))
    assert len(one) == 2


def test_an_id_given_twice_is_refused_at_once_and_adds_nothing():
    one = rows("a")
    features = {"image": {"v": np.ones((2, 2), np.float32)}}
    for ids in (("b", "b"), ("c", "a")):
        with pytest.raises(InputError, match="was given twice"):
            one.append([Sample(id=name) for name in ids], features)
    assert len(one) == 1


def test_automatic_ids_of_two_ranks_do_not_collide():
    one, other = FeatureRows(), FeatureRows()
    for found, count in ((one, 3), (other, 2)):
        samples = [Sample(id=name) for name in found.next_ids(count)]
        found.append(samples, {"image": {"v": np.ones((count, 1), np.float32)}})
    one.merge(other)
    samples, _ = one.ordered()
    assert len({sample.id for sample in samples}) == 5


def test_state_round_trip_and_records():
    found = FeatureRows()
    boxes = [[{"label": "cat", "box": [0, 0, 1, 1]}], []]
    found.append(
        [Sample(id="1", prompt="x"), Sample(id="0", spec={"tag": "t"})],
        {"d": {"detections": boxes}},
    )
    again = FeatureRows()
    again.load_state_dict(found.state_dict())
    samples, features = again.ordered()
    assert [(s.id, s.prompt, s.spec) for s in samples] == [
        ("0", None, {"tag": "t"}),
        ("1", "x", None),
    ]
    assert features["d"]["detections"] == [[], boxes[0]]


def test_row_counts_must_match_the_samples():
    with pytest.raises(InputError, match="2 rows of image.v for 1 samples"):
        FeatureRows().append([Sample(id="a")], {"image": {"v": np.ones((2, 1))}})


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("how", ["append", "merge", "load", "miss"])
def test_a_mark_puts_back_what_came_after_it(before, how):
    def filled(names):
        rows = FeatureRows()
        if names:
            samples = [Sample(id=name) for name in names]
            rows.append(samples, {"role": {"out": np.arange(len(names))}})
        return rows

    rows, more = filled([f"#{i:09d}" for i in range(before)]), filled(["new", "#000000000"])
    kept = copy.deepcopy(vars(rows))
    undo = rows.mark()
    if how == "append":
        rows.append([Sample(id="new")], {"role": {"out": np.arange(1)}})
    elif how == "merge":
        rows.merge(more)
    elif how == "miss":
        rows.miss({"new": "no answer", "#000000007": "none"})
    else:
        rows.load_state_dict(more.state_dict())
    undo()
    np.testing.assert_equal(vars(rows), kept)
    rows.merge(more)
    assert len(rows) == before + 2
