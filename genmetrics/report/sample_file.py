"""samples.jsonl read into columns: a line at a time, each checked."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np

from genmetrics.core.errors import InputError
from genmetrics.core.result import RESERVED, VALUE, PerSample
from genmetrics.report.columns import Labels, Samples
from genmetrics.report.fields import as_number, put_back, refuse_twice

_FIX = "the file is damaged or was changed, run again"
_NAN = math.nan
_MISSING: Any = object()

Kind = Literal["groups", "clusters"]


class Columns(NamedTuple):
    """What each line has of one metric."""

    value: bool | None
    """Whether there is a number; None: the first line says."""
    parts: tuple[str, ...]
    groups: bool
    clusters: bool


class _Fault(Exception):
    """What is wrong with a line."""


class SampleFile:
    """The columns of a samples.jsonl.

    Args:
        columns: What the lines have of each metric, by its key.
        version: Version of the schema.
    """

    def __init__(self, columns: Mapping[str, Columns], version: int) -> None:
        self.ids: list[str] = []
        self._version = version
        self._columns = dict(columns)
        self._known = RESERVED | columns.keys()
        self._paths: list[str | None] = []
        self._prompts: list[str | None] = []
        self._reasons: dict[str, str] = {}
        self._numbers: dict[tuple[str, str], array[float]] = {}
        self._labels: dict[tuple[Kind, str], list[str | None]] = {}
        self._details: dict[str, dict[str, dict[str, Any]]] = {key: {} for key in columns}
        self._texts: dict[str, str] = {}  # prompts and labels come again and again: one text each

    def read(self, path: Path) -> None:
        """Read all lines.

        Raises:
            InputError: A line is cut off, is no object, or has other fields than it should.
        """
        decode = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=refuse_twice).decode
        number = 0
        try:
            with path.open(encoding="utf-8", newline="\n") as file:
                for text in file:
                    number += 1
                    self._take(text, decode)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}; check the path") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 behind line {number}; {_FIX}") from error
        except (_Fault, ValueError, RecursionError) as error:
            raise InputError(f"{path} line {number}: {error}; {_FIX}") from error
        self._settle()
        if len(set(self.ids)) < len(self.ids):
            raise InputError(f"{path}: {self._twice()!r} comes twice; {_FIX}")

    def _twice(self) -> str:
        seen: set[str] = set()
        return next(id_ for id_ in self.ids if id_ in seen or seen.add(id_))  # type: ignore[func-returns-value]

    def samples(self) -> Samples:
        """The samples."""
        return Samples(self.ids, self._paths, self._prompts, self._reasons)

    def column(self, key: str, name: str = VALUE) -> PerSample | None:
        """A number a sample; None where the metric has none."""
        numbers = self._numbers.get((key, name))
        if numbers is None:
            return None
        return PerSample(self.ids, np.frombuffer(numbers) if numbers else np.empty(0))

    def parts(self, key: str) -> dict[str, PerSample]:
        """The further numbers of the samples."""
        found = {name: self.column(key, name) for name in self._columns[key].parts}
        return {name: column for name, column in found.items() if column is not None}

    def details(self, key: str) -> dict[str, dict[str, Any]]:
        """What a metric says of samples."""
        return self._details[key]

    def labels(self, key: str, kind: Kind) -> Labels | None:
        """Groups or clusters."""
        found = self._labels.get((kind, key))
        return None if found is None else Labels(self.ids, found)

    def _take(self, text: str, decode: Callable[[str], Any]) -> None:
        if not text.endswith("\n"):
            raise _Fault("it is cut off: the file was not written or copied to its end")
        line = decode(text)
        if type(line) is not dict:
            raise _Fault("it is no object")
        odd = line.get("not_finite")
        if odd is not None:
            wrong = put_back(odd, line) if isinstance(odd, dict) else "not_finite"
            if wrong is not None:
                raise _Fault(f"not_finite names {wrong!r}, where no null stands")
        if not self.ids:
            self._begin(line)
        self._who(line)
        for key, columns in self._columns.items():
            self._take_numbers(line.get(key, _MISSING), key, columns)
        if self._version == 1 and line.get("reason") is not None:
            self._restore(line["reason"])
        self._take_labels(line)
        if "details" in line:
            self._take_details(line["id"], line["details"])
        if not self._known.issuperset(line):
            other = next(iter(line.keys() - self._known))
            raise _Fault(f"it has {other!r}, of which results.json does not know")

    def _begin(self, first: Mapping[str, Any]) -> None:
        """Make the columns; in the first version by the metrics that the first line has."""
        for key, columns in self._columns.items():
            if columns.value is None:
                columns = self._columns[key] = columns._replace(value=key in first)
            for name in ((VALUE,) if columns.value else ()) + columns.parts:
                self._numbers[key, name] = array("d")
            if columns.groups:
                self._labels["groups", key] = []
            if columns.clusters:
                self._labels["clusters", key] = []

    def _settle(self) -> None:
        """Without any line there are columns all the same."""
        if not self.ids:
            self._begin({})

    def _who(self, line: dict[str, Any]) -> None:
        id_, path, prompt = line.get("id"), line.get("path"), line.get("prompt")
        if type(id_) is not str:
            raise _Fault(f"id is {id_!r:.60}; expected a text")
        for name, text in (("path", path), ("prompt", prompt), ("reason", line.get("reason"))):
            if text is not None and type(text) is not str:
                raise _Fault(f"{name} is {text!r:.60}; expected a text")
        self.ids.append(id_)
        self._paths.append(path)
        self._prompts.append(self._one(prompt))
        if line.get("reason") is not None:
            self._reasons[id_] = line["reason"]

    def _one(self, text: str | None) -> str | None:
        return None if text is None else self._texts.setdefault(text, text)

    def _take_numbers(self, cell: Any, key: str, columns: Columns) -> None:
        if not columns.parts:
            if columns.value:
                self._numbers[key, VALUE].append(self._number(cell, key))
            elif cell is not _MISSING:
                raise _Fault(f"it has {key!r}, of which results.json has nothing by sample")
            return
        if type(cell) is not dict:
            raise _Fault(f"{key} is {_shown(cell)}; expected an object of numbers")
        if columns.value:
            self._numbers[key, VALUE].append(self._number(cell.get(VALUE, _MISSING), key))
        for name in columns.parts:
            self._numbers[key, name].append(self._number(cell.get(name), f"{key}.{name}"))
        other = cell.keys() - {VALUE, *columns.parts}
        if other or (VALUE in cell) != columns.value:
            raise _Fault(f"{key} has other numbers than results.json says: {', '.join(cell)}")

    def _restore(self, reason: str) -> None:
        """Put back infinite numbers, of which the first version told in the reason alone."""
        for text in reason.split("; "):
            key, _, number = text.rpartition(" is ")
            if number in ("inf", "-inf") and (key, VALUE) in self._numbers:
                self._numbers[key, VALUE][-1] = float(number)

    def _number(self, value: Any, place: str) -> float:
        if type(value) is float:
            return value
        if value is None:
            return _NAN
        number = as_number(value)
        if number is None:
            raise _Fault(f"{place} is {_shown(value)}; expected a number or null")
        return number

    def _take_labels(self, line: Mapping[str, Any]) -> None:
        for (kind, key), column in self._labels.items():
            unsaid = None if kind == "groups" else line.get("prompt") or line["id"]
            said = line.get(kind)
            label = said.get(key, unsaid) if type(said) is dict else unsaid
            if label is not None and type(label) is not str:
                raise _Fault(f"{kind}.{key} is {_shown(label)}; expected a text")
            column.append(self._one(label))

    def _take_details(self, id_: str, details: Any) -> None:
        if type(details) is not dict:
            raise _Fault(f"details are {_shown(details)}; expected an object")
        for key, said in details.items():
            if key not in self._details or type(said) is not dict:
                raise _Fault(f"details.{key} is {_shown(said)}; expected an object of a metric")
            self._details[key][id_] = said


def _shown(value: Any) -> str:
    return "missing" if value is _MISSING else f"{value!r:.60}"


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is no JSON")
