"""From ids to metrics: what a run is asked to compute."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from genmetrics.core.device import resolve_device
from genmetrics.core.errors import UsageError, require_number
from genmetrics.core.metric import Metric
from genmetrics.core.registry import NETWORK_OPTIONS, Request, create, options_of, parse
from genmetrics.extractors.decoders import require_decode
from genmetrics.extractors.precision import precision_on
from genmetrics.run.suites import suite


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be computed.

    Attributes:
        metrics: Ids such as ``"fid@clean"`` or ``"kid@tf1:subsets=50"``, or Metric objects.
        suites: Names of suites.
        weights: Weight id to a local file that replaces the manifest's.
        seed: Replaces the seed of every metric that has one.
        precision: How networks compute, where a metric does not say otherwise.
        compiled: Whether networks are compiled.
        decode: Whose pixels of image files.
    """

    metrics: Sequence[str | Metric] = ()
    suites: Sequence[str] = ()
    weights: Mapping[str, str | Path] = field(default_factory=dict)
    seed: int | None = None
    precision: str = "fp32"
    compiled: bool = False
    decode: str = "pil"


class Built(NamedTuple):
    """Metrics by key: the id, with its options where two share an id.

    Attributes:
        metrics: Key to metric.
        asked: Ids with the options they were asked for, to their keys.
    """

    metrics: dict[str, Metric]
    asked: dict[str, str]


def build_metrics(asked: Asked, device: str = "auto") -> Built:
    """Build everything that is asked for; loads no model.

    Raises:
        UsageError: Nothing is asked for, or something that does not exist or does not fit.
    """
    import genmetrics.metrics  # noqa: F401  (registers them all)

    for wrong in asked.metrics:
        if not isinstance(wrong, str | Metric):
            raise UsageError(f"metric {wrong!r} is neither an id nor a Metric object")
    if asked.seed is not None:
        require_number("run", "seed", asked.seed, 0)
    names = [m for m in asked.metrics if isinstance(m, str)]
    given = [m for m in asked.metrics if isinstance(m, Metric)]
    requests = parse([*(name for each in asked.suites for name in suite(each)), *names])
    if not requests and not given:
        raise UsageError("no metric asked for; pass -m ID or --suite NAME (see `genmetrics list`)")
    _require_known(asked.weights)
    requests = [_seeded(request, asked.seed) for request in requests]
    ids = [request.id for request in requests]
    keys = [r.id if ids.count(r.id) == 1 else r.name for r in requests]
    built = {
        key: create(request, device=device, weights=dict(asked.weights))
        for key, request in zip(keys, requests, strict=True)
    }
    _add_objects(built, given)
    own = {key: _own_choices(r) for key, r in zip(keys, requests, strict=True)}
    for key, metric in built.items():
        _compute_as(metric, {**_choices(asked), **own.get(key, {})}, device)
    return Built(built, {r.name: key for r, key in zip(requests, keys, strict=True)})


def _choices(asked: Asked) -> dict[str, Any]:
    """Return how networks compute, as far as that is not the default."""
    plain = {"precision": "fp32", "compiled": False, "decode": "pil"}
    chosen = {name: getattr(asked, name) for name in plain}
    return {name: value for name, value in chosen.items() if value != plain[name]}


def _own_choices(request: Request) -> dict[str, Any]:
    return {name: v for name, v in request.options.items() if name in NETWORK_OPTIONS}


def _compute_as(metric: Metric, choices: Mapping[str, Any], device: str) -> None:
    """Set how the metric's networks compute."""
    if not choices:
        return
    place, chosen = resolve_device(device), dict(choices)
    require_decode(place, chosen.get("decode", "pil"))
    if "precision" in chosen:
        chosen["precision"] = precision_on(place, chosen["precision"])
    metric.compute_with(**chosen)


def _add_objects(built: dict[str, Metric], given: Sequence[Metric]) -> None:
    """Add copies of metric objects, so that the callers' keep what they have and bring nothing."""
    for original in given:
        metric = copy.copy(original).detached()
        name = metric.protocol.metric
        twin = built.get(name)
        if twin is not None and twin.protocol.fingerprint != metric.protocol.fingerprint:
            name = f"{name}:{metric.protocol.fingerprint[7:15]}"
        built[name] = metric


def _seeded(request: Request, seed: int | None) -> Request:
    if seed is None or "seed" not in options_of(request.metric) or "seed" in request.options:
        return request
    return request._replace(options={**request.options, "seed": seed})


def _require_known(weights: Mapping[str, Any]) -> None:
    """An override of unknown weights is a spelling mistake, not something to ignore."""
    from genmetrics.weights import locate

    for name in weights:
        locate(name, weights)
