"""What an extractor gives is what its spec says, row for row, or it goes no further."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genmetrics.core.batching import Batches
from genmetrics.core.errors import FeatureError, UsageError
from genmetrics.core.extractor import Extractor, ExtractorSpec
from genmetrics.core.outputs import checked, plain_json, plain_records
from genmetrics.core.protocol import LOCAL
from genmetrics.core.rows import UNANSWERED, Ragged, concatenate, one_row


@dataclass(frozen=True, kw_only=True)
class Spec(ExtractorSpec):
    outputs = {"v": "vector", "s": "score", "r": "record"}
    extractor: str = "odd"
    given: object = field(default=None, metadata=LOCAL)

    def check(self) -> None:
        pass

    def build(self, device: str) -> Odd:
        return Odd(self, device)


class Odd(Extractor):
    fill = 1

    def prepare(self, item):
        return item

    def forward(self, prepared):
        return self.spec.given(len(prepared))


def sound(n):
    return {"v": np.ones((n, 2)), "s": np.zeros(n), "r": [{} for _ in range(n)]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda n: None, "gave None; expected a mapping"),
        (lambda n: {}, "gave the outputs none; its spec declares v, s, r"),
        (lambda n: {**sound(n), "x": [1] * n}, "gave the outputs v, s, r, x"),
        (lambda n: {**sound(n), "v": np.ones((n - 1, 2))}, "gave 2 rows of 'v' for 3"),
        (lambda n: {**sound(n), "r": [{}] * (n + 1)}, "gave 4 rows of 'r' for 3"),
        (lambda n: sound(0), "gave 0 rows of 'v' for 3"),
        (lambda n: {**sound(n), "v": np.ones(n)}, r"'v' is a ndarray of shape \(3,\).*\(n, d\)"),
        (lambda n: {**sound(n), "s": np.ones((n, 1))}, r"'s' is a ndarray of shape \(3, 1\)"),
        (lambda n: {**sound(n), "s": np.array(["a"] * n)}, "expected an array of numbers"),
        (lambda n: {**sound(n), "r": "abc"}, "'r' is a str; expected a list"),
        (lambda n: {**sound(n), UNANSWERED: "no"}, "'_unanswered' is no list"),
        (lambda n: {**sound(n), UNANSWERED: [None]}, "gave 1 rows of '_unanswered' for 3"),
    ],
)
def test_what_is_malformed_is_one_line_that_names_model_and_output(change, said):
    """A row too few moved all others to their neighbours' samples; none at all never ended."""
    extractor = Odd(Spec(given=change), "cpu")
    with pytest.raises(FeatureError, match=said) as caught:
        Batches(extractor, 3).run([1, 2, 3])
    assert str(caught.value).startswith("odd") and "\n" not in str(caught.value)


def test_rows_of_unequal_length_and_answers_that_are_missing_pass():
    found = {**sound(2), "v": Ragged.of([np.ones((1, 2)), np.ones((3, 2))])}
    assert checked(Spec(), {**found, UNANSWERED: [None, "no"]}, 2)


def test_reasons_survive_batches_of_which_only_some_have_any():
    pieces = [sound(2), {**sound(1), UNANSWERED: ["busy"]}, sound(1)]
    assert concatenate(pieces)[UNANSWERED] == [None, None, "busy", None]
    assert concatenate(pieces[::-1])[UNANSWERED] == [None, "busy", None, None]
    assert one_row(concatenate(pieces))[UNANSWERED] == ["part 2: busy"]
    assert UNANSWERED not in one_row(sound(2))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(JSON)
def test_plain_values_stay_as_they_are(value):
    assert plain_json(value) == value


def test_numbers_of_numpy_become_plain_and_what_json_lacks_is_named():
    value = {"a": np.float32(0.5), "b": np.int64(3), "c": np.arange(2), "d": (np.bool_(True),)}
    assert plain_json(value) == {"a": 0.5, "b": 3, "c": [0, 1], "d": [True]}
    deep = []
    for _ in range(100):
        deep = [deep]
    for wrong, said in (
        (float("nan"), "nan"),
        ({1, 2}, "1, 2"),
        (deep, "levels"),
        (10**400, "1000"),
    ):
        with pytest.raises(ValueError, match=said):
            plain_json(wrong)
    features, faults = plain_records(Spec(), {**sound(2), "r": [{"x": np.nan}, {"x": 1}]})
    assert features["r"] == [None, {"x": 1}]
    assert faults == {0: "odd gave nan in 'r', no JSON value"}


@pytest.mark.parametrize(
    ("option", "value"),
    [("requests", 0), ("requests", -1), ("per_minute", 0), ("per_minute", float("nan")),
     ("per_minute", -1.0), ("per_minute", 1e-9)],
)  # fmt: skip
def test_options_of_endpoints_that_make_no_sense(option, value):
    with pytest.raises(UsageError, match=f"odd: {option}"):
        Spec(**{option: value})
