"""Rows of a jsonl or csv file, with line numbers for errors."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from genmetrics.core.errors import InputError, shown
from genmetrics.core.fields import Field
from genmetrics.samples.image import read_file

TABLES = (".jsonl", ".csv")

PROMPTS = ("prompt", "caption", "text")
"""What a prompt is called in the JSON of a tar and in the columns of a table; the first counts."""


class Row(NamedTuple):
    """One row: where it stands and its cells by column."""

    where: str
    cells: Mapping[str, Any]

    def text(self, column: str) -> str | None:
        """Return a cell as text, None where it is absent; a whole number counts as its digits.

        Raises:
            InputError: The cell holds something else.
        """
        value = self.cells.get(column)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise InputError(f"{self.where}: {column!r} is {value!r}; expected text")

    def record(self, column: str) -> Mapping[str, Any] | list[Any] | None:
        """Return a cell that holds a JSON object or list (in csv: its text), None where absent.

        Raises:
            InputError: The cell holds something else.
        """
        value = self.cells.get(column)
        if isinstance(value, str):
            text = value.strip()
            if text in ("", "null"):
                return None
            if text[0] in "{[":
                value = _json(text, f"{self.where}: {column!r}")
        if value is None:
            return None
        if not isinstance(value, dict | list):
            raise InputError(
                f"{self.where}: {column!r} is {shown(repr(value))}; expected a JSON object or list"
            )
        return value


def cell(row: Row, field: Field) -> Any:
    """Read a cell of a table as what its field holds; None where it is absent."""
    return row.text(field.name) if field.kind == "text" else row.record(field.name)


def is_table(path: Path) -> bool:
    """Tell by the suffix."""
    return path.suffix.lower() in TABLES


def read_table(path: Path) -> list[Row]:
    """Read all rows of a ``.jsonl`` (an object a line) or ``.csv`` (with a header line), in UTF-8.

    Raises:
        InputError: Another suffix, not UTF-8, a broken line (by number), a column that comes twice,
            or no rows at all.
    """
    if not is_table(path):
        raise InputError(f"{path} is not a table; expected {' or '.join(TABLES)}")
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    reader = _jsonl_rows if path.suffix.lower() == ".jsonl" else _csv_rows
    rows = list(reader(text, path))
    if not rows:
        raise InputError(f"{path} has no rows")
    return rows


def _jsonl_rows(text: str, path: Path) -> Iterator[Row]:
    # Only "\n" ends a line: str.splitlines would cut at U+2028, which JSON allows within a text.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        cells = _json(line, where)
        if not isinstance(cells, dict):
            raise InputError(f"{where} holds a {type(cells).__name__}; expected a JSON object")
        yield Row(where, cells)


def _csv_rows(text: str, path: Path) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        require_once([name.strip() for name in reader.fieldnames or []], f"{path} line 1")
        for cells in reader:
            where = f"{path} line {reader.line_num}"
            if None in cells or None in cells.values():
                raise InputError(
                    f"{where} has more or fewer cells than the header; quote texts with commas"
                )
            yield Row(where, {key.strip(): cell for key, cell in cells.items()})
    except csv.Error as error:
        raise InputError(f"{path} line {reader.line_num} is not csv: {error}") from error


def require_once(columns: Sequence[str], where: str) -> None:
    """Raise :class:`InputError` with the columns that come twice; which one counts is a guess."""
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        names = ", ".join(map(repr, twice))
        raise InputError(f"{where} has the column {names} more than once; keep or rename one")


def pairs_once(where: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return what makes a dict of a JSON object for ``json.loads``, and refuses a key twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            require_once([key for key, _ in pairs], where)
        return found

    return once


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=pairs_once(where))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
