"""``genmetrics list``: every metric and suite there is."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from genmetrics.cli import options
from genmetrics.cli.output import emit

if TYPE_CHECKING:
    from genmetrics.core.metric import Metric

NEEDS = {
    "image": "images",
    "reference_set": "reference set (--ref)",
    "reference": "counterparts (--pair-with)",
    "prompt": "prompts (--prompts)",
    "spec": "specs (--layout)",
}
"""Fields of a sample as the command line knows them."""


def list_metrics(as_json: options.Json = False) -> None:
    """List the metrics and suites there are."""
    import genmetrics.metrics  # noqa: F401  (registers them all)
    from genmetrics.core.registry import registered
    from genmetrics.run.suites import SUITES

    metrics = registered()
    if as_json:
        rows = [
            {**metric_facts(metric), "missing_weights": missing_weights(metric)}
            for metric in metrics.values()
        ]
        emit(f"{json.dumps({'metrics': rows, 'suites': SUITES}, indent=1)}\n")
        return
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    indent = max(map(len, (*metrics, *SUITES))) + 2
    lines = ["metrics (-m ID, show ID for the details, weights fetch ID for what is missing)"]
    for metric in metrics.values():
        lines += _entry(metric, indent, width)
    lines += ["", "suites (--suite NAME)"]
    for name, ids in SUITES.items():
        lines += _hang(name, ", ".join(ids), indent, width)
    emit("\n".join(lines) + "\n")


def metric_facts(metric: type[Metric]) -> dict[str, Any]:
    """Return the facts of a metric's class as JSON values."""
    return {
        "id": metric.id,
        "summary": metric.summary,
        "variants": list(metric.variants),
        "default_variant": metric.default_variant,
        "inputs": list(metric.inputs),
        "higher_is_better": metric.higher_is_better,
        "bounds": list(metric.bounds),
        "minimum": metric.minimum,
    }


def missing_weights(metric: type[Metric]) -> dict[str, list[str]]:
    """Return full id to the weights that are not here, for each variant that lacks any."""
    from genmetrics.core.errors import GenmetricsError
    from genmetrics.core.registry import Request, create
    from genmetrics.extractors.needs import weights_of
    from genmetrics.weights import path_of

    lacking = {}
    for variant in metric.variants or (None,):
        request = Request(metric, variant, {})
        try:
            specs = create(request, device="cpu").extractors.values()
        except GenmetricsError:
            continue  # it needs an option, and which weights follows from that
        ids = dict.fromkeys(filter(None, map(weights_of, specs)))
        missing = [id for id in ids if path_of(id) is None]
        if missing:
            lacking[request.id] = missing
    return lacking


def needs(metric: type[Metric]) -> str:
    """Say what a metric reads, and which flags bring it."""
    return ", ".join(NEEDS.get(field, field) for field in metric.inputs)


def direction(metric: type[Metric]) -> str:
    """Say which way is better."""
    return "higher is better" if metric.higher_is_better else "lower is better"


def _entry(metric: type[Metric], indent: int, width: int) -> Iterator[str]:
    from genmetrics.core.registry import full_id

    yield from _hang(metric.id, metric.summary, indent, width)
    if metric.variants:
        names = [
            full_id(metric, v) + (" (default)" if v == metric.default_variant else "")
            for v in metric.variants
        ]
        yield from _hang("", ", ".join(names), indent, width)
    yield from _hang("", f"{direction(metric)}; needs {needs(metric)}", indent, width)
    lacking = missing_weights(metric)
    if lacking:
        ids = dict.fromkeys(id for ids in lacking.values() for id in ids)
        ready = [id for v in metric.variants if (id := full_id(metric, v)) not in lacking]
        without = f" (not for {', '.join(ready)})" if ready else ""
        yield from _hang("", f"weights missing: {', '.join(ids)}{without}", indent, width)


def _hang(head: str, text: str, indent: int, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=f"  {head:<{indent}}",
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    )
