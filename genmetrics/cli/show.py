"""``genmetrics show ID``: everything about one metric."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from genmetrics.cli import options
from genmetrics.cli.list import direction, metric_facts, needs
from genmetrics.cli.output import emit
from genmetrics.core.errors import GenmetricsError, UsageError

if TYPE_CHECKING:
    from genmetrics.core.metric import Metric
    from genmetrics.core.registry import Request


def show(
    id: Annotated[str, typer.Argument(metavar="ID[:key=value,...]", help="A metric's id.")],
    as_json: options.Json = False,
) -> None:
    """Show what a metric is, reads and depends on, and its protocol."""
    facts = _facts(id, _request(id))
    emit(f"{json.dumps(facts, indent=2)}\n" if as_json else "\n".join(_lines(facts)) + "\n")


def _request(text: str) -> Request:
    """Read the one id.

    Raises:
        UsageError: None, several, or a suite.
    """
    import genmetrics.metrics  # noqa: F401  (registers them all)
    from genmetrics.core.registry import parse
    from genmetrics.run.suites import SUITES

    if text in SUITES:
        ids = ", ".join(SUITES[text])
        raise UsageError(f"{text!r} is a suite ({ids}); show one of its metrics")
    requests = parse([text])
    if len(requests) != 1:
        raise UsageError(f"show takes one id, {text!r} names {len(requests)}")
    return requests[0]


def _facts(asked: str, request: Request) -> dict[str, Any]:
    metric = request.metric
    built, reason = _build(request)
    return {
        "asked": asked,
        "resolved": request.name,
        **metric_facts(metric),
        "minimum": metric.minimum if built is None else built.minimum,
        "class": metric.__name__,
        "needs": needs(metric),
        "direction": direction(metric),
        "documentation": inspect.cleandoc(metric.__doc__ or ""),
        "options": _options(metric),
        "protocol": None if built is None else built.protocol.to_dict(),
        "fingerprint": None if built is None else built.protocol.fingerprint,
        "weights": [] if built is None else list(_weights(built)),
        "provisional": built is not None and _unknown_content(built),
        "reason": reason,
    }


def _unknown_content(metric: Metric) -> bool:
    """Tell whether weights that are not here, and have no pinned hash, belong to the protocol."""
    return any(getattr(spec, "sha256", None) == "" for spec in metric.extractors.values())


def _build(request: Request) -> tuple[Metric | None, str | None]:
    """Make the metric, or say why it cannot be made here (a protocol may need a model's files)."""
    from genmetrics.core.registry import create

    try:
        return create(request, device="cpu"), None
    except GenmetricsError as error:
        return None, str(error)


def _options(metric: type[Metric]) -> dict[str, dict[str, Any]]:
    from genmetrics.core.registry import options_of

    hints = typing.get_type_hints(metric.__init__)
    return {
        name: {
            "type": _kind(hints.get(name, str)),
            "default": None if parameter.default is parameter.empty else parameter.default,
        }
        for name, parameter in options_of(metric).items()
    }


def _kind(hint: Any) -> str:
    """Name a type as a user would write its values."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return "|".join(str(choice) for choice in typing.get_args(hint))
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_kind(kind) for kind in typing.get_args(hint))
    names = {bool: "true|false", int: "integer", float: "number", str: "text", type(None): "none"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _weights(metric: Metric) -> Iterator[dict[str, Any]]:
    """The weights behind a metric's extractors, and where they lie."""
    from genmetrics.weights import entries, locate, locate_model

    seen = set()
    for spec in metric.extractors.values():
        name = getattr(spec, "weights", None)
        if not isinstance(name, str) or name in seen:
            continue
        seen.add(name)
        known = name in entries()
        path = locate(name).path if known else locate_model(name).path
        fetch = f"genmetrics weights fetch {name}" if known and path is None else None
        yield {"id": name, "path": None if path is None else str(path), "fetch": fetch}


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    asked, resolved = facts["asked"], facts["resolved"]
    yield resolved if asked == resolved else f"{resolved} (what {asked!r} stands for)"
    yield facts["summary"]
    if facts["documentation"]:
        yield ""
        yield from _plain(facts["documentation"]).splitlines()
    yield ""
    for name, value in _rows(facts):
        yield f"{name:<13}{value}"
    if facts["protocol"] is not None:
        yield "protocol"
        yield json.dumps(facts["protocol"], indent=2)


def _plain(text: str) -> str:
    """Take the markup out of a docstring: roles, double backticks, and the examples' prompts."""
    text = re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
    return re.sub(r"\n\s*Examples:\n.*", "", text, flags=re.DOTALL).rstrip()


def _rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and value, a line each; an empty name continues the line above."""
    lo, hi = ("none" if bound is None else f"{bound:g}" for bound in facts["bounds"])
    yield "class", f"genmetrics.{facts['class']}"
    yield "needs", facts["needs"]
    yield "direction", facts["direction"]
    yield "bounds", "none" if lo == hi == "none" else f"{lo} to {hi}"
    yield "minimum", f"{facts['minimum']} samples a side"
    if facts["variants"]:
        yield "variants", ", ".join(f"{facts['id']}@{variant}" for variant in facts["variants"])
    for i, (name, option) in enumerate(facts["options"].items()):
        yield "" if i else "options", f"{name}={option['default']} ({option['type']})"
    for i, weights in enumerate(facts["weights"]):
        where = weights["path"] or f"missing; run `{weights['fetch']}`"
        yield "" if i else "weights", f"{weights['id']}: {where}"
    if facts["protocol"] is None:
        yield "protocol", f"not known here: {facts['reason']}"
    else:
        note = " (not final: the hash of missing weights is part of it)"
        yield "fingerprint", facts["fingerprint"] + (note if facts["provisional"] else "")
