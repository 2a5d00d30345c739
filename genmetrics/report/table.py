"""The report as a table for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from genmetrics.core.result import Result
from genmetrics.report.record import RunRecord
from genmetrics.report.text import counted, interval, numbers, part, printable, short

WIDTH = 100
"""Columns where nobody says how many there are."""

_LISTED = 5  # skipped and missing samples that are named; results.json names them all
_GAP = "  "


class Symbols(NamedTuple):
    """What a table needs beyond ASCII."""

    lower: str
    higher: str
    plus_minus: str
    rule: str


UNICODE = Symbols("↓", "↑", "±", "─")
ASCII = Symbols("(low)", "(high)", "+-", "-")


class Line(NamedTuple):
    """A line of the table, and how it stands out where there is colour."""

    text: str
    style: str = ""


def render(
    record: RunRecord, *, width: int = WIDTH, color: bool = False, symbols: Symbols = UNICODE
) -> str:
    """Return the table and the notes under it, as text that ends with a line break.

    Args:
        record: What a run found.
        width: Columns there are; names that cannot be broken may go beyond.
        color: Whether escape codes may be used.
        symbols: ``ASCII`` for outputs that cannot show arrows.
    """
    lines = [*_rows(record.metrics, width, symbols), *_notes(record, width)]
    texts = [_paint(line) if color and line.style else line.text for line in lines]
    return "".join(f"{text.rstrip()}\n" for text in texts)


def _paint(line: Line) -> str:
    from rich.style import Style

    return Style.parse(line.style).render(line.text.rstrip())


def _rows(results: Mapping[str, Result], width: int, symbols: Symbols) -> Iterator[Line]:
    cells = _cells(results, symbols)
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    others = sum(widths[1:]) + len(_GAP) * len(widths)
    widths[0] = max(min(widths[0], width - others), 8)
    yield Line(_join(cells[0], widths), "bold")
    yield Line(" " + symbols.rule * (sum(widths) + len(_GAP) * (len(widths) - 1)), "dim")
    for row, result in zip(cells[1:], results.values(), strict=True):
        style = "" if result.status == "ok" else "red"
        first, *rest = _fold(row[0], widths[0])
        yield Line(_join([first, *row[1:]], widths), style)
        for text in rest:
            yield Line(f" {text}", style)
        for text in _wrap(_parts(result), width, "     "):
            yield Line(text, "dim")


def _fold(name: str, width: int) -> list[str]:
    """Break an id behind its colons, so that its options stay whole where they fit."""
    if len(name) <= width:
        return [name]
    pieces = textwrap.wrap(name.replace(":", ": "), width)
    return [piece.replace(": ", ":") for piece in pieces]


def _join(row: Sequence[str], widths: Sequence[int]) -> str:
    return " " + _GAP.join(text.ljust(size) for text, size in zip(row, widths, strict=True))


def _cells(results: Mapping[str, Result], symbols: Symbols) -> list[list[str]]:
    """The header and one row a metric; numbers are aligned on their decimal points."""
    levels = {r.interval.level for r in results.values() if r.interval is not None}
    level = f"{100 * levels.pop():g} % interval" if len(levels) == 1 else "interval"
    known = [r.value for r in results.values() if r.value is not None]
    texts = iter(numbers(known))
    values = [r.status if r.value is None else next(texts) for r in results.values()]
    marks: dict[str, list[str]] = {name: [] for name in results}
    for i, names in enumerate(_numbered(results).values(), 1):
        for name in names:
            marks[name].append(str(i))
    rows = [["metric", "value", level, "n / ref", "protocol", "note"]]
    for (name, result), value, shown in zip(results.items(), values, _aligned(values), strict=True):
        arrow = symbols.higher if result.higher_is_better else symbols.lower
        counts = f"{result.n} / {result.n_reference}" if result.n_reference else str(result.n)
        spread = interval(result, value, symbols.plus_minus)
        note = ",".join(marks[name])
        rows.append([f"{name} {arrow}", shown, spread, counts, short(result.fingerprint), note])
    return rows


def _aligned(texts: Sequence[str]) -> list[str]:
    """Pad numbers so that their decimal points stand under each other."""
    heads = [len(text.split(".")[0]) if text[-1:].isdigit() else 0 for text in texts]
    return [
        " " * (max(heads, default=0) - head) * bool(head) + text
        for text, head in zip(texts, heads, strict=True)
    ]


def _parts(result: Result) -> str:
    """The further numbers of a metric; the standard error is in the interval already."""
    shown = {k: v for k, v in result.parts.items() if k != "standard_error"}
    return "   ".join(f"{key} {part(value)}" for key, value in shown.items())


def _numbered(results: Mapping[str, Result]) -> dict[str, list[str]]:
    """Each note and the metrics it is about."""
    notes: dict[str, list[str]] = {}
    for name, result in results.items():
        prefix = "" if result.status == "ok" else f"{result.status}: "
        reasons = [] if result.reason is None else [f"{prefix}{result.reason}"]
        for text in [*reasons, *result.warnings]:
            notes.setdefault(printable(text), []).append(name)
    return notes


def _notes(record: RunRecord, width: int) -> Iterator[Line]:
    yield Line("")
    for i, text in enumerate(_numbered(record.metrics), 1):
        mark = f" {i:>2}  "
        for wrapped in _wrap(text, width, " " * len(mark), first=mark):
            yield Line(wrapped)
    for (noun, of), names in _left_out(record).items():
        if names:
            text = f"{counted(len(names), noun)}{of}: {listing(names)}"
            for wrapped in _wrap(text, width, "     ", first=" "):
                yield Line(wrapped, "yellow")
    for note in record.notes:
        for wrapped in _wrap(printable(note), width, "     ", first=" "):
            yield Line(wrapped, "yellow")
    if record.conversions:
        texts = [f"{count} {name}" for name, count in record.conversions.items()]
        yield Line(f" converted: {', '.join(texts)}", "dim")
    runtime = describe_runtime(record)
    if runtime:
        yield Line(f" {runtime}", "dim")


def _left_out(record: RunRecord) -> dict[tuple[str, str], Sequence[str]]:
    """What was left out, by its noun and what stands behind it."""
    partly = [each.line for each in record.skipped if each.model is not None]
    return {
        ("skipped sample", ""): [each.line for each in record.skipped if each.model is None],
        ("failure", " of one model"): partly,
        ("missing partner", ""): record.missing,
    }


def listing(names: Sequence[str]) -> str:
    """Name the first few."""
    shown = "; ".join(printable(name) for name in names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown}; and {len(names) - _LISTED:,} more"


def describe_runtime(record: RunRecord) -> str:
    """Say in one line where, how long, and how much came from the cache."""
    runtime = record.runtime
    if "seconds" not in runtime:
        return ""
    where = f" on {runtime['device']}" if "device" in runtime else ""
    how = f" ({runtime['precision']})" if "precision" in runtime else ""
    texts = [f"{runtime['seconds']:.1f} s{where}{how}"]
    if runtime.get("features_reused"):
        total = runtime["features_reused"] + runtime.get("features_computed", 0)
        texts.append(f"{runtime['features_reused']:,} of {total:,} features from cache")
    return ", ".join(texts)


def _wrap(text: str, width: int, indent: str, *, first: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        # file names and ids must stay whole, so that they can be copied
        break_long_words=False,
        break_on_hyphens=False,
    )
