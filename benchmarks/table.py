"""The results as a Markdown table, and its place in the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def render(results: Mapping[str, Any]) -> str:
    """Return the Markdown of a results document."""
    lines = [*_about(results), "", "| what | target | measured | |", "|---|---|---|---|"]
    lines += [_row(row) for row in results["rows"]]
    lines += ["", "Medians behind them, in seconds unless the name says MiB:", ""]
    lines += [
        f"- {row['what']}: {_medians(row['medians'])}{_note(row)}"
        for row in results["rows"]
        if row["medians"] or row["note"]
    ]
    for failure in results.get("failures", ()):
        lines += ["", f"Not measured: {failure}"]
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


def _about(results: Mapping[str, Any]) -> list[str]:
    machine, settings = results["machine"], results["settings"]
    versions = ", ".join(
        f"{name} {version}" for name, version in machine["packages"].items() if version is not None
    )
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB,"
        f" {machine['system']}, Python {machine['python']}; {settings['threads']} threads a"
        f" process, medians of {settings['repeats']}; load average before a measurement at most"
        f" {settings['highest_load']:.1f}.",
        "",
        f"Versions: {versions}.",
    ]
    if settings["quick"]:
        lines = ["**Quick sizes: this shows that everything runs, and nothing else.**", "", *lines]
    return lines


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
