from __future__ import annotations

import json
import math

from genmetrics.core.result import Interval, Result


def result(**fields) -> Result:
    base = {
        "id": "m",
        "value": 1.0,
        "n": 2,
        "higher_is_better": True,
        "protocol": {},
        "fingerprint": "x",
    }
    return Result(**{**base, **fields})  # fmt: skip


def test_float_of_a_result_is_its_value():
    assert float(result(value=2.5)) == 2.5
    assert math.isnan(float(result(value=None)))


def test_the_json_is_strict_and_says_why_there_is_no_number():
    entry = result(
        value=math.inf, interval=Interval(1.0, math.inf), parts={"p": math.nan}
    ).to_dict()
    json.dumps(entry, allow_nan=False)
    assert entry["value"] is None and "inf" in entry["reason"]
    assert entry["interval"] == [1.0, None] and entry["level"] == 0.95
    assert entry["parts"] == {"p": None}
