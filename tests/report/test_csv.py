import csv
import io
import math

from genmetrics.core.result import Interval
from genmetrics.report.csv import COLUMNS, to_csv
from tests.report.fakes import HOSTILE, record, result


def rows(made):
    return list(csv.DictReader(io.StringIO(to_csv(made), newline="")))


def test_one_row_a_metric_with_all_digits():
    fid, kid, *_, psnr, cmmd = [row for row in rows(record()) if not row["part"]]
    assert tuple(fid) == COLUMNS
    assert fid == {
        "metric": "fid@clean",
        "part": "",
        "value": "441.18812",
        "lo": "430.168",
        "hi": "452.208",
        "level": "0.95",
        "n": "384",
        "n_reference": "1000",
        "higher_is_better": "false",
        "status": "ok",
        "fingerprint": result().fingerprint,
        "reason": "",
    }
    assert kid["value"] == "-0.0001234567"
    assert psnr["value"] == "inf"
    assert cmmd["value"] == ""
    assert cmmd["status"] == "failed"
    assert cmmd["reason"] == "cmmd gave NaN\nin two lines"


def test_parts_follow_their_metric():
    made = result(
        "x",
        0.5,
        higher_is_better=True,
        parts={"a": 0.1 + 0.2, "b": math.nan},
        intervals={"a": Interval(0.25, 0.5, 0.9)},
        interval=Interval(0.0, 1.0),
    )
    own, a, b = rows(record({"x": made}))
    assert [row["part"] for row in (own, a, b)] == ["", "a", "b"]
    assert a == {
        **own,
        "part": "a",
        "value": repr(0.1 + 0.2),
        "lo": "0.25",
        "hi": "0.5",
        "level": "0.9",
        "higher_is_better": "",
    }
    assert (b["value"], b["lo"], b["level"], b["n"]) == ("nan", "", "", own["n"])


def test_numbers_come_back_bit_for_bit_and_names_whole():
    value = 0.1 + 0.2
    (row,) = rows(record({HOSTILE: result(HOSTILE, value, reason='a "b", c')}))
    assert float(row["value"]) == value
    assert row["metric"] == HOSTILE
    assert row["reason"] == 'a "b", c'
    assert math.isclose(float(row["n"]), 384)
