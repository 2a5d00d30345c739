import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.result import PerSample
from genmetrics.report.columns import Labels
from genmetrics.report.gallery import Strip, group_means, strips
from tests.report.fakes import result


def shown(numbers, most=3, *, higher=True, pictures=None, of_sets=False):
    ids = [f"s{i}" for i in range(len(numbers))]
    made = result("x", 1.0, higher_is_better=higher, per_sample=PerSample(ids, numbers))
    there = np.ones(len(numbers), bool) if pictures is None else np.array(pictures, bool)
    return strips(made, there, most, of_sets=of_sets)


def test_worst_and_best_come_first_in_their_strips():
    worst, best = shown([3, 1, 4, 1.5, 9, 2.6, np.nan, 5])
    assert worst == Strip("Worst", (1, 3, 5))
    assert best == Strip("Best", (4, 7, 2))
    worst, best = shown([3, 1, 4, 1.5, 9, 2.6, np.nan, 5], higher=False)
    assert worst == Strip("Worst", (4, 7, 2))
    assert best == Strip("Best", (1, 3, 5))


def test_ties_are_not_called_the_worst_or_what_cost_the_most():
    # of forty pictures with the same verdict, eight were once shown as those that cost the most
    worst, best = shown([0.0] * 40 + [1.0] * 30 + [2.0], most=8, of_sets=True)
    assert worst.title == (
        "Images that cost the most (influence on the value): 8 of the 40 samples at 0"
    )
    assert best == Strip("Images that helped the most", (70, *range(69, 62, -1)))


def test_there_is_nothing_to_show_of_equal_numbers_or_of_none():
    assert shown([1.0] * 10) == []
    assert shown([np.nan] * 3) == []
    assert shown([]) == []
    assert shown([1.0, 2.0], pictures=[False, False]) == []
    assert strips(result("x"), np.ones(0, bool), 3, of_sets=False) == []


@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, np.inf, -np.inf, np.nan]), max_size=12),
    st.integers(1, 8),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_ends_are_those_of_a_sort_and_share_no_sample(numbers, most, higher):
    made = shown(numbers, most, higher=higher)
    order = sorted(
        (i for i, v in enumerate(numbers) if v == v), key=lambda i: numbers[i] * (2 * higher - 1)
    )
    if not made:
        assert len({numbers[i] for i in order}) < 2
        return
    count = min(most, max(1, len(order) // 2))
    assert made[0].places == tuple(order[:count])
    assert made[1].places == tuple(order[::-1][:count])


def test_means_of_groups_leave_out_what_has_no_number():
    ids = list("abcdef")
    made = result(
        "x",
        per_sample=PerSample(ids, [1.0, 0.0, np.nan, np.inf, 0.5, np.nan]),
        groups=Labels(ids, ["u", "v", "u", "v", None, "w"]),
    )
    means = group_means(made)
    assert list(means) == ["u", "v", "w"]
    assert means["u"] == (1.0, 1)
    assert means["v"] == (0.0, 1)
    assert np.isnan(means["w"][0])
    assert means["w"][1] == 0
