"""The results as comma-separated values, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io

from genmetrics.core.result import Result
from genmetrics.report.record import RunRecord

COLUMNS = (
    *("metric", "part", "value", "lo", "hi", "level", "n", "n_reference"),
    *("higher_is_better", "status", "fingerprint", "reason"),
)
_NO_INTERVAL = (None, None, None)


def to_csv(record: RunRecord) -> str:
    """Return one row a metric and, below it, one a part; what there is none of is empty.

    The row of a metric has no ``part``. That of a part repeats what belongs to its metric, except
    ``higher_is_better`` and ``reason``: these speak of the metric's own value.
    Numbers have all their digits; infinite ones are ``inf`` and ``-inf``.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, result in record.metrics.items():
        writer.writerow(_row(name, result))
        writer.writerows(_part_row(name, part, result) for part in result.parts)
    return file.getvalue()


def _row(name: str, result: Result) -> list[object]:
    return [
        name,
        None,
        result.value,
        *(result.interval or _NO_INTERVAL),
        result.n,
        result.n_reference,
        "true" if result.higher_is_better else "false",
        result.status,
        result.fingerprint,
        result.reason,
    ]


def _part_row(name: str, part: str, result: Result) -> list[object]:
    return [
        name,
        part,
        result.parts[part],
        *result.intervals.get(part, _NO_INTERVAL),
        result.n,
        result.n_reference,
        None,
        result.status,
        result.fingerprint,
        None,
    ]
