"""The report as one page of HTML: no script, nothing loaded from elsewhere."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from genmetrics.core.errors import UsageError
from genmetrics.core.metric import Metric
from genmetrics.core.registry import find
from genmetrics.core.result import PerSample, Result
from genmetrics.metrics.base import SetMetric
from genmetrics.report.columns import Samples, Skipped
from genmetrics.report.gallery import Strip, group_means, shown_samples, strips
from genmetrics.report.svg import whisker
from genmetrics.report.table import describe_runtime
from genmetrics.report.text import (
    brief,
    counted,
    interval,
    number,
    numbers,
    part,
    printable,
    short,
    shortened,
    spread,
)
from genmetrics.report.thumbnails import thumbnails

if TYPE_CHECKING:
    from genmetrics.report.record import RunRecord

SHOWN = 8
"""Samples at each end of a metric's strip."""

_PICTURES = 160  # on the whole page; more metrics show fewer each, which bounds the page's size
_LISTED = 200  # rows of a list; results.json has them all
_GROUPS = 50  # of a metric


def page(record: RunRecord) -> str:
    """Return the page. The same record gives the same bytes, just made or read back.

    Pictures are read again from where the samples lie; where one is gone its name stands alone.
    """
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    source = Path(str(record.inputs.get("generated", {}).get("path", ""))).name
    body = "\n".join(
        [
            _header(record),
            _summary(record.metrics),
            _metrics(record),
            _left_out(record),
            _run(record),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(f'genmetrics: {record.name or source}')}</title>\n"
        f"<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _text(value: object) -> str:
    """Escape for HTML; file names and prompts may hold anything."""
    return html.escape(printable(str(value)))


def _header(record: RunRecord) -> str:
    rows = [
        (
            _text(side),
            f"<code>{_text(found.get('path', ''))}</code>",
            _count(found.get("n")),
            _fingerprint(str(found.get("digest", ""))),
        )
        for side, found in record.inputs.items()
    ]
    table = _table(("set", "path", "samples", "content"), rows, {2: "number"})
    title = "Image quality report" + (f": {_text(record.name)}" if record.name else "")
    facts = [_text(record.created), f"genmetrics {_text(record.genmetrics)}"]
    facts += [_text(text) for text in [describe_runtime(record)] if text]
    return (
        f"<h1>{title}</h1>\n<p class=dim>{' · '.join(facts)}</p>\n{_warnings(None, record.notes)}"
        + (f"<h2>Inputs</h2>\n{table}" if rows else "")
    )


def _count(n: object) -> str:
    return f"{n:,}" if isinstance(n, int) else ""


def _fingerprint(digest: str) -> str:
    return f'<code class="short" title="{_text(digest)}">{_text(short(digest))}</code>'


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
                f'&nbsp;<span class="dim" title="{arrow}">{_arrow(result)}</span>',
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


def _metrics(record: RunRecord) -> str:
    texts = _value_texts(record.metrics)
    with_samples = sum(result.per_sample is not None for result in record.metrics.values())
    most = min(SHOWN, max(1, _PICTURES // (2 * max(1, with_samples))))
    shown = shown_samples(record.samples)
    chosen = {
        name: strips(result, shown, most, of_sets=_is_of_sets(result))
        for name, result in record.metrics.items()
    }
    pictures = thumbnails(
        record.samples, [place for some in chosen.values() for s in some for place in s.places]
    )
    cards = [
        _card(i, name, result, texts[name])
        + "".join(_strip(strip, result, record.samples, pictures) for strip in chosen[name])
        + "</div>"
        for i, (name, result) in enumerate(record.metrics.items())
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
        f"{_warnings(result.reason, result.warnings)}{_parts(result)}{_groups(result)}"
        f"<details><summary>Protocol <code>{_text(result.fingerprint)}</code></summary>"
        f"<pre>{protocol}</pre></details>\n"
    )


def _warnings(reason: str | None, warnings: Sequence[str]) -> str:
    failed = [] if reason is None else [(' class="failed"', reason)]
    items = [*failed, *(("", text) for text in warnings)]
    if not items:
        return ""
    lines = "".join(f"<li{kind}>{_text(text)}</li>" for kind, text in items)
    return f'<ul class="warnings">{lines}</ul>\n'


def _parts(result: Result) -> str:
    if not result.parts:
        return ""
    rows = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{part(value)}{_part_interval(result, name)}</dd></div>"
        for name, value in result.parts.items()
    )
    return f'<dl class="parts">{rows}</dl>\n'


def _part_interval(result: Result, name: str) -> str:
    if name not in result.intervals:
        return ""
    value = result.parts[name]
    text = spread(result.intervals[name], value, number(value))
    return f' <span class="dim">{text}</span>'


def _groups(result: Result) -> str:
    """Means of the groups, whose mean is the value."""
    if result.groups is None or result.per_sample is None:
        return ""
    rows = [
        (_text(shortened(name, 80)), brief(mean), f"{n:,}")
        for name, (mean, n) in group_means(result).items()
    ]
    shown = rows[:_GROUPS]
    table = _table(("group", "mean", "samples"), shown, {1: "number", 2: "number"})
    return (
        f"<details><summary>{counted(len(rows), 'group')}: the value is the mean of their means"
        f'</summary><div class="facts">{table}</div>{_more(len(rows), _GROUPS)}</details>\n'
    )


def _is_of_sets(result: Result) -> bool:
    metric = _class_of(result)
    return result.n_reference > 0 or (metric is not None and issubclass(metric, SetMetric))


def _strip(strip: Strip, result: Result, samples: Samples, pictures: Mapping[int, str]) -> str:
    figures = "\n".join(
        _figure(place, result, samples, pictures.get(place)) for place in strip.places
    )
    return f'<h4>{_text(strip.title)}</h4>\n<div class="strip">\n{figures}\n</div>\n'


def _figure(place: int, result: Result, samples: Samples, source: str | None) -> str:
    assert isinstance(result.per_sample, PerSample)
    row = samples.row(place)
    name = _text(row.id)
    picture = (
        '<div class="gone">not readable</div>'
        if source is None
        else f'<img alt="{name}" src="{source}">'
    )
    why = result.details.get(row.id, {}).get("reason")
    reason = f'<span class="why">{_text(shortened(str(why), 160))}</span>' if why else ""
    said = [text for text in (row.prompt, why) if text]
    title = ": ".join([name, *(_text(str(text)[:300]) for text in said)])
    value = brief(float(result.per_sample.numbers[place]))
    return (
        f'<figure title="{title}">{picture}<figcaption>{value}'
        f'<span class="name">{name}</span>{reason}</figcaption></figure>'
    )


def _left_out(record: RunRecord) -> str:
    whole = [each for each in record.skipped if each.model is None]
    partly = [each for each in record.skipped if each.model is not None]
    blocks = [_skipped(counted(len(whole), "skipped sample"), whole)] if whole else []
    if partly:
        title = (
            f"{counted(len(partly), 'failure')} of one model: the other metrics count the sample"
        )
        blocks.append(_skipped(title, partly))
    if record.missing:
        names = ", ".join(f"<code>{_text(name)}</code>" for name in record.missing[:_LISTED])
        title = counted(len(record.missing), "missing partner")
        blocks.append(f"<h2>{title}</h2>\n<p>{names}</p>{_more(len(record.missing))}")
    if record.conversions:
        rows = [(_text(name), f"{count:,}") for name, count in record.conversions.items()]
        table = _table(("what was done to reach RGB of 8 bit", "images"), rows, {1: "number"})
        blocks.append(f'<h2>Conversions</h2>\n<div class="facts">{table}</div>')
    return "\n".join(blocks)


def _skipped(title: str, skipped: Sequence[Skipped]) -> str:
    by_model = skipped[0].model is not None
    rows = [
        (
            f"<code>{_text(each.path or each.id)}</code>",
            *([f"<code>{_text(each.model)}</code>"] if by_model else []),
            _text(each.side),
            _text(shortened(each.cause, 500)),
        )
        for each in skipped[:_LISTED]
    ]
    titles = ("file", *(["model"] if by_model else []), "set", "reason")
    return f"<h2>{title}</h2>\n{_table(titles, rows, {})}{_more(len(skipped))}"


def _more(count: int, listed: int = _LISTED) -> str:
    return f"<p class=dim>and {count - listed:,} more</p>" if count > listed else ""


def _run(record: RunRecord) -> str:
    rows = [(_text(name.replace("_", " ")), _text(v)) for name, v in record.runtime.items()]
    settings = f'<div class="facts">{_table(("setting", "value"), rows, {})}</div>\n'
    return (
        (f"<h2>Run</h2>\n{settings}" if rows else "")
        + f"<h2>How to reproduce</h2>\n<pre>{html.escape(_printable_lines(_how(record)))}</pre>\n"
        + _overrides(record)
        + "<p class=dim>Equal content, names and protocol fingerprints give equal values.</p>"
    )


def _how(record: RunRecord) -> str:
    """The command line or the call; made up from the inputs where nobody noted it."""
    if "argv" in record.command:
        return shlex.join(map(str, record.command["argv"]))
    if "call" in record.command:
        return str(record.command["call"])
    paths = [record.inputs.get(side, {}).get("path") for side in ("generated", "reference")]
    sides = [repr(path) for path in paths if path is not None]
    return f"gm.evaluate({', '.join([*sides, f'metrics={list(record.metrics)!r}'])})"


def _overrides(record: RunRecord) -> str:
    replaced = record.command.get("overrides") or {}
    rows = [(f"<code>{_text(name)}</code>", _text(by)) for name, by in replaced.items()]
    return f'<div class="facts">{_table(("replaced", "by"), rows, {})}</div>\n' if rows else ""


def _printable_lines(text: str) -> str:
    """Escape control characters, but keep line breaks."""
    return "\n".join(printable(line) for line in text.split("\n"))
