import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.result import Interval
from genmetrics.report.text import interval, number, numbers, part, printable
from tests.report.fakes import result

FINITE = st.floats(-1e300, 1e300)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (441.18812, "441.19"),
        (0.0123456789, "0.012346"),
        (-0.00012345678, "-0.00012346"),
        (2.5e-9, "2.5000e-09"),
        (1234567.8, "1234568"),
        (1.5e12, "1.5000e+12"),
        (0.0, "0"),
        (-0.0, "0"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@settings(deadline=None, max_examples=200)
@given(st.lists(FINITE, max_size=6))
def test_unlike_values_never_look_alike(values):
    texts = numbers(values)
    for a, text_a in zip(values, texts, strict=True):
        for b, text_b in zip(values, texts, strict=True):
            assert a == b or text_a != text_b


def test_only_values_that_would_look_alike_get_more_digits():
    assert numbers([441.188, 441.1881, 12.3456789]) == ["441.1880", "441.1881", "12.346"]


@settings(deadline=None, max_examples=200)
@given(FINITE)
def test_five_digits_are_right_to_half_a_unit(value):
    assert math.isclose(float(number(value)), value, rel_tol=5.1e-5)


def test_interval_has_the_decimals_of_its_value():
    symmetric = result(value=441.18812, interval=Interval(430.168, 452.208))
    assert interval(symmetric, "441.19") == "± 11.02"
    assert interval(symmetric, "441.19", "+-") == "+- 11.02"


def test_skewed_interval_shows_both_ends():
    skewed = result(value=0.9, interval=Interval(0.7, 0.95))
    assert interval(skewed, "0.90000") == "[0.70000, 0.95000]"


def test_small_interval_keeps_two_digits():
    tight = result(value=123.45, interval=Interval(123.45 - 1.2e-5, 123.45 + 1.2e-5))
    assert interval(tight, "123.45") == "± 0.000012"


def test_no_interval_is_no_text():
    assert interval(result(), "441.19") == ""


def test_counts_are_counts():
    assert part(3.0) == "3"
    assert part(0.5) == "0.50000"
    assert part(math.inf) == "inf"


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(codec=None)))
def test_printable_is_one_line_that_any_terminal_takes(text):
    shown = printable(text)
    assert shown.isprintable()
    shown.encode("utf-8")


def test_printable_keeps_what_people_write():
    assert printable("Ein Bär, 熊 é") == "Ein Bär, 熊 é"
    assert printable("a\x1b[31m\nb\udcff") == r"a\x1b[31m\nb\udcff"
