"""The results as a Markdown table, and its place in the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"

Records = Mapping[str, Mapping[str, Any]]


def render(document: Mapping[str, Any]) -> str:
    """Return the Markdown of a results document."""
    records: Records = document["benchmarks"]
    rows = [row for record in records.values() for row in record["rows"]]
    lines = [*_about(records), "", "| what | target | measured | |", "|---|---|---|---|"]
    lines += [_row(row) for row in rows]
    lines += ["", "Medians behind them, in seconds unless the name says MiB:", ""]
    lines += [
        f"- {row['what']}: {_medians(row['medians'])}{_note(row)}"
        for row in rows
        if row["medians"] or row["note"]
    ]
    for name, record in records.items():
        if record["failure"] is not None:
            lines += ["", f"Not measured: {name}: {record['failure']}"]
    if document["quick"]:
        lines = ["**Quick sizes: this shows that everything runs, and nothing else.**", "", *lines]
    return "\n".join(lines) + "\n"


def write_into(page: Path, table: str) -> None:
    """Replace what stands between the markers of a page.

    Raises:
        ValueError: The page has no markers.
    """
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"{page} has no lines {BEGIN} and {END}; add them where the table belongs")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{head}{BEGIN}\n{table}{END}{tail}")


def _about(records: Records) -> Iterator[str]:
    """Say what holds for all benchmarks once, and what does not for those it holds for."""
    for text in (_when, _where, _versions):
        groups: dict[str, list[str]] = {}
        for name, record in records.items():
            groups.setdefault(text(record), []).append(name)
        for said, names in groups.items():
            yield said if len(groups) == 1 else f"{', '.join(names)}: {said}"
            yield ""
    loads = {name: record["settings"]["highest_load"] for name, record in records.items()}
    if loads:
        name = max(loads, key=loads.__getitem__)
        yield f"Load average before a measurement: at most {loads[name]:.1f} ({name})."


def _when(record: Mapping[str, Any]) -> str:
    commit, repeats = record["commit"] or "unknown", record["settings"]["repeats"]
    rounds = "one round" if repeats == 1 else f"medians of {repeats} rounds"
    return f"Measured {record['measured'][:10]} at commit {commit}, {rounds}."


def _where(record: Mapping[str, Any]) -> str:
    machine = record["machine"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB,"
        f" {machine['system']}, Python {machine['python']}; {record['settings']['threads']}"
        " threads a process."
    )


def _versions(record: Mapping[str, Any]) -> str:
    packages = record["machine"]["packages"].items()
    found = ", ".join(f"{name} {version}" for name, version in packages if version is not None)
    return f"Versions: {found}."


def _row(row: Mapping[str, Any]) -> str:
    verdict = row["verdict"]
    word = {True: "pass", False: "falls short", None: ""}[verdict["passed"]]
    return f"| {row['what']} | {verdict['target'] or 'none'} | {verdict['measured']} | {word} |"


def _medians(medians: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in medians.items())


def _note(row: Mapping[str, Any]) -> str:
    if not row["note"]:
        return "."
    return f"; {row['note']}." if row["medians"] else f"{row['note']}."
