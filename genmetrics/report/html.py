"""The report as one page of HTML: no script, nothing loaded from elsewhere."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from genmetrics import __version__
from genmetrics.core.errors import UsageError
from genmetrics.core.metric import Metric
from genmetrics.core.registry import find
from genmetrics.core.result import Result
from genmetrics.core.sample import Sample
from genmetrics.metrics.base import SetMetric
from genmetrics.report.svg import whisker
from genmetrics.report.table import describe_runtime
from genmetrics.report.text import counted, interval, number, numbers, part, printable, short
from genmetrics.report.thumbnails import Thumbnails
from genmetrics.run.decide import Report

SHOWN = 8
"""Samples at each end of a metric's strip."""

_PICTURES = 160  # on the whole page; more metrics show fewer each, which bounds the page's size
_LISTED = 200  # rows of a list; results.json has them all


def page(report: Report, *, command: str | None = None) -> str:
    """Return the page. The same report and command give the same bytes.

    Args:
        report: What a run found.
        command: Command line that made it; a call in Python is shown where there is none.
    """
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    title = f"genmetrics: {Path(str(report.inputs.get('generated', {}).get('path', ''))).name}"
    body = "\n".join(
        [
            _header(report),
            _summary(report.results),
            _metrics(report),
            _left_out(report),
            _run(report, command),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _text(value: object) -> str:
    """Escape for HTML; file names and prompts may hold anything."""
    return html.escape(printable(str(value)))


def _header(report: Report) -> str:
    rows = [
        (
            _text(side),
            f"<code>{_text(found['path'])}</code>",
            f"{found['n']:,}",
            _fingerprint(found["digest"]),
        )
        for side, found in report.inputs.items()
    ]
    table = _table(("set", "path", "samples", "content"), rows, {2: "number"})
    return (
        f"<h1>Image quality report</h1>\n<p class=dim>{_text(report.created)} · genmetrics"
        f" {__version__} · {_text(describe_runtime(report))}</p>\n<h2>Inputs</h2>\n{table}"
    )


def _fingerprint(digest: str) -> str:
    return f'<code title="{_text(digest)}">{_text(short(digest))}</code>'


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], classes: Mapping[int, str]) -> str:
    """Lay out cells that are HTML already; ``classes`` is by column."""
    kinds = [f' class="{classes[i]}"' if i in classes else "" for i in range(len(titles))]
    head = "".join(f"<th{kind}>{title}</th>" for title, kind in zip(titles, kinds, strict=True))
    lines = [
        "<tr>" + "".join(f"<td{k}>{c}</td>" for c, k in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    ]
    return (
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _summary(results: Mapping[str, Result]) -> str:
    texts = _value_texts(results)
    rows = []
    for i, (name, result) in enumerate(results.items()):
        arrow = "higher is better" if result.higher_is_better else "lower is better"
        state = "" if result.status == "ok" else ' class="bad"'
        counts = f"{result.n:,}" + (f" / {result.n_reference:,}" if result.n_reference else "")
        rows.append(
            (
                f'<a href="#m{i}">{_text(name)}</a>'
                f' <span class="dim" title="{arrow}">{_arrow(result)}</span>',
                f"<span{state}>{texts[name]}</span>",
                interval(result, texts[name]),
                whisker(result, _bounds(result)),
                counts,
                _fingerprint(result.fingerprint),
            )
        )
    classes = {1: "number value", 2: "number", 4: "number"}
    titles = ("metric", "value", _interval_title(results), "", "n / reference", "protocol")
    return f"<h2>Results</h2>\n{_table(titles, rows, classes)}"


def _arrow(result: Result) -> str:
    return "↑" if result.higher_is_better else "↓"


def _interval_title(results: Mapping[str, Result]) -> str:
    levels = {r.interval.level for r in results.values() if r.interval is not None}
    return f"{100 * levels.pop():g} % interval" if len(levels) == 1 else "interval"


def _value_texts(results: Mapping[str, Result]) -> dict[str, str]:
    """The value of each metric, or its status."""
    texts = iter(numbers([r.value for r in results.values() if r.value is not None]))
    return {name: r.status if r.value is None else next(texts) for name, r in results.items()}


def _class_of(result: Result) -> type[Metric] | None:
    """The metric's class; None if it was never registered (an object handed to ``evaluate``)."""
    try:
        return find(result.id)[0]
    except UsageError:
        return None


def _bounds(result: Result) -> tuple[float | None, float | None]:
    metric = _class_of(result)
    return (None, None) if metric is None else metric.bounds


def _metrics(report: Report) -> str:
    texts = _value_texts(report.results)
    with_samples = sum(result.per_sample is not None for result in report.results.values())
    shown = min(SHOWN, max(1, _PICTURES // (2 * max(1, with_samples))))
    thumbnails = Thumbnails()
    cards = [
        _card(i, name, result, texts[name]) + _strips(report, result, shown, thumbnails) + "</div>"
        for i, (name, result) in enumerate(report.results.items())
    ]
    return "<h2>Metrics</h2>\n" + "\n".join(cards)


def _card(i: int, name: str, result: Result, value: str) -> str:
    """One metric; the caller closes the block."""
    metric = _class_of(result)
    summary = "" if metric is None else f"<p>{_text(metric.summary)}</p>"
    direction = "higher" if result.higher_is_better else "lower"
    state = "" if result.status == "ok" else " bad"
    protocol = html.escape(json.dumps(result.protocol, indent=2, ensure_ascii=True))
    return (
        f'<div class="card" id="m{i}">\n<header><h3>{_text(name)}</h3>'
        f'<span class="figure{state}">{value}</span>'
        f'<span class="dim">{interval(result, value)}</span>'
        f'<span class="dim">{direction} is better</span></header>\n{summary}\n'
        f"{_warnings(result)}{_parts(result)}"
        f"<details><summary>Protocol <code>{_text(result.fingerprint)}</code></summary>"
        f"<pre>{protocol}</pre></details>\n"
    )


def _warnings(result: Result) -> str:
    failed = [] if result.reason is None else [(' class="failed"', result.reason)]
    items = [*failed, *(("", text) for text in result.warnings)]
    if not items:
        return ""
    lines = "".join(f"<li{kind}>{_text(text)}</li>" for kind, text in items)
    return f'<ul class="warnings">{lines}</ul>\n'


def _parts(result: Result) -> str:
    if not result.parts:
        return ""
    rows = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{part(value)}</dd></div>"
        for name, value in result.parts.items()
    )
    return f'<dl class="parts">{rows}</dl>\n'


def _strips(report: Report, result: Result, shown: int, thumbnails: Thumbnails) -> str:
    """The samples at both ends of a metric, worst first."""
    if result.per_sample is None:
        return ""
    samples = {sample.id: sample for sample in report.samples if sample.image is not None}
    ranked = sorted(
        ((v, k) for k, v in result.per_sample.items() if not math.isnan(v) and k in samples),
        reverse=not result.higher_is_better,
    )
    shown = min(shown, max(1, len(ranked) // 2))
    if not ranked or ranked[0][0] == ranked[-1][0]:
        return ""
    worst, best = ranked[:shown], ranked[: -shown - 1 : -1]
    if _is_of_sets(result):
        titles = (
            "Images that cost the most (influence on the value)",
            "Images that helped the most",
        )
    else:
        titles = ("Worst", "Best")
    blocks = [
        f'<h4>{title}</h4>\n<div class="strip">\n'
        + "\n".join(_figure(samples[key], value, thumbnails) for value, key in some)
        + "\n</div>\n"
        for title, some in zip(titles, (worst, best), strict=True)
    ]
    return "".join(blocks)


def _is_of_sets(result: Result) -> bool:
    metric = _class_of(result)
    return result.n_reference > 0 or (metric is not None and issubclass(metric, SetMetric))


def _figure(sample: Sample, value: float, thumbnails: Thumbnails) -> str:
    assert sample.image is not None
    source = thumbnails.of(sample.image)
    name = _text(sample.id)
    picture = (
        '<div class="gone">not readable</div>'
        if source is None
        else f'<img alt="{name}" src="{source}">'
    )
    title = name if sample.prompt is None else f"{name}: {_text(sample.prompt[:300])}"
    return (
        f'<figure title="{title}">{picture}<figcaption>{number(value, 4)}'
        f'<span class="name">{name}</span></figcaption></figure>'
    )


def _left_out(report: Report) -> str:
    blocks = []
    if report.failures:
        skipped = [
            (
                f"<code>{_text(f.who.sample.path or f.who.sample.id)}</code>",
                f.who.side,
                _text(f.reason),
            )
            for f in report.failures[:_LISTED]
        ]
        title = counted(len(report.failures), "skipped sample")
        blocks.append(
            f"<h2>{title}</h2>\n{_table(('file', 'set', 'reason'), skipped, {})}"
            f"{_more(len(report.failures))}"
        )
    if report.missing:
        names = ", ".join(f"<code>{_text(name)}</code>" for name in report.missing[:_LISTED])
        title = counted(len(report.missing), "missing partner")
        blocks.append(f"<h2>{title}</h2>\n<p>{names}</p>{_more(len(report.missing))}")
    if report.conversions:
        rows = [(_text(name), f"{count:,}") for name, count in report.conversions.items()]
        table = _table(("what was done to reach RGB of 8 bit", "images"), rows, {1: "number"})
        blocks.append(f'<h2>Conversions</h2>\n<div class="facts">{table}</div>')
    return "\n".join(blocks)


def _more(count: int) -> str:
    return f"<p class=dim>and {count - _LISTED:,} more</p>" if count > _LISTED else ""


def _run(report: Report, command: str | None) -> str:
    rows = [(_text(name.replace("_", " ")), _text(v)) for name, v in report.runtime.items()]
    how = command or _python_call(report)
    return (
        '<h2>Run</h2>\n<div class="facts">'
        f"{_table(('setting', 'value'), rows, {})}</div>\n"
        f"<h2>How to reproduce</h2>\n<pre>{html.escape(_printable_lines(how))}</pre>\n"
        "<p class=dim>Equal content, names and protocol fingerprints give equal values."
        "</p>"
    )


def _python_call(report: Report) -> str:
    def path(side: str) -> Any:
        return report.inputs.get(side, {}).get("path")

    sides = [repr(path(side)) for side in ("generated", "reference") if path(side) is not None]
    return f"gm.evaluate({', '.join(sides)}, metrics={list(report.results)!r})"


def _printable_lines(text: str) -> str:
    """Escape control characters, but keep line breaks."""
    return "\n".join(printable(line) for line in text.split("\n"))
