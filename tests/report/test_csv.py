import csv
import io
import math

from genmetrics.report.csv import COLUMNS, to_csv
from tests.report.fakes import HOSTILE, record, result


def rows(made):
    return list(csv.DictReader(io.StringIO(to_csv(made), newline="")))


def test_one_row_a_metric_with_all_digits():
    fid, kid, *_, psnr, cmmd = rows(record())
    assert tuple(fid) == COLUMNS
    assert fid == {
        "name": "fid@clean",
        "value": "441.18812",
        "lo": "430.168",
        "hi": "452.208",
        "level": "0.95",
        "n": "384",
        "n_reference": "1000",
        "higher_is_better": "false",
        "status": "ok",
        "fingerprint": "sha256:" + "3fa9c1d2" * 8,
        "reason": "",
    }
    assert kid["value"] == "-0.0001234567"
    assert psnr["value"] == "inf"
    assert cmmd["value"] == ""
    assert cmmd["status"] == "failed"
    assert cmmd["reason"] == "cmmd gave NaN\nin two lines"


def test_numbers_come_back_bit_for_bit_and_names_whole():
    value = 0.1 + 0.2
    (row,) = rows(record({HOSTILE: result(HOSTILE, value, reason='a "b", c')}))
    assert float(row["value"]) == value
    assert row["name"] == HOSTILE
    assert row["reason"] == 'a "b", c'
    assert math.isclose(float(row["n"]), 384)
