"""The results as comma-separated values, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io

from genmetrics.core.result import Result
from genmetrics.report.record import RunRecord

COLUMNS = (
    *("name", "value", "lo", "hi", "level", "n", "n_reference"),
    *("higher_is_better", "status", "fingerprint", "reason"),
)


def to_csv(record: RunRecord) -> str:
    """Return one row a metric under a header; what there is none of is empty.

    Numbers have all their digits; infinite ones are ``inf`` and ``-inf``.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_row(name, result) for name, result in record.metrics.items())
    return file.getvalue()


def _row(name: str, result: Result) -> list[object]:
    return [
        name,
        result.value,
        *(result.interval or (None, None, None)),
        result.n,
        result.n_reference,
        "true" if result.higher_is_better else "false",
        result.status,
        result.fingerprint,
        result.reason,
    ]
