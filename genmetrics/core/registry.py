"""The registry of metrics: ids, variants, options."""

from __future__ import annotations

import inspect
import types
import typing
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from genmetrics.core.errors import PluginWarning, UsageError, did_you_mean
from genmetrics.core.metric import Metric
from genmetrics.core.result import RESERVED

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

M = TypeVar("M", bound=type[Metric])

_METRICS: dict[str, type[Metric]] = {}
_BROKEN: dict[str, str] = {}
"""Names of entry points that cannot be loaded, and ids that went with them, to the reason."""

_FACTS = ("id", "summary", "inputs", "higher_is_better")  # what has no default
_NOT_OPTIONS = ("self", "device", "weights", "reference")  # set by the run, not a metric's option

NETWORK_OPTIONS: Mapping[str, Any] = {"precision": Literal["fp32", "tf32", "bf16"]}
"""Options of every metric that has a network: how it computes, whatever the run's others do."""


class Request(NamedTuple):
    """A metric asked for by name: ``fid@clean:key=value``."""

    metric: type[Metric]
    variant: str | None
    options: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Full id, such as ``"fid@clean"``."""
        return full_id(self.metric, self.variant)

    @property
    def name(self) -> str:
        """Full id with the options, which tells two requests for one metric apart."""
        options = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.id}:{options}" if options else self.id


def register(metric: M) -> M:
    """Class decorator: make a metric known by its ``id``.

    Raises:
        UsageError: The id is taken or reserved, or the class lacks what every metric states.
    """
    known = _METRICS.get(getattr(metric, "id", ""), metric)
    if known is not metric:
        raise UsageError(
            f"metric id {metric.id!r} is taken by {known.__module__}; choose another id"
        )
    lacking = [name for name in _FACTS if not hasattr(metric, name)]
    if lacking:
        raise UsageError(f"metric class {metric.__name__} lacks {', '.join(lacking)}; set it there")
    if metric.id in RESERVED:
        raise UsageError(f"metric id {metric.id!r} is a name of samples.jsonl; choose another id")
    _METRICS[metric.id] = metric
    return metric


def load_plugins(entries: Iterable[EntryPoint]) -> None:
    """Load other packages' metrics. What cannot be loaded is left out, with one warning a package.

    Args:
        entries: Entry points whose modules register metrics, or which are metrics themselves.
    """
    faults: dict[str, list[str]] = {}
    names: dict[str, list[str]] = {}
    for entry in entries:
        before = dict(_METRICS)
        try:
            found = entry.load()
            if isinstance(found, type) and issubclass(found, Metric):
                register(found)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever another package's module raises, or an exit
            package = entry.dist.name if entry.dist else entry.name
            text = " ".join(f"{type(error).__name__}: {error}".split())
            faults.setdefault(package, []).append(f"{entry.value}: {text}")
            names.setdefault(package, []).extend([entry.name, *(_METRICS.keys() - before)])
            _METRICS.clear()
            _METRICS.update(before)
    for package, each in faults.items():
        what = "; ".join(dict.fromkeys(each))
        reason = f"metrics of {package} cannot be loaded ({what}); mend or uninstall that package"
        _BROKEN.update(dict.fromkeys(names[package], reason))
        warnings.warn(reason, PluginWarning, stacklevel=2)


def unloaded() -> list[str]:
    """Return one line for each package whose metrics cannot be loaded."""
    return list(dict.fromkeys(_BROKEN.values()))


def registered() -> dict[str, type[Metric]]:
    """Return id to class of every metric, in alphabetical order."""
    return dict(sorted(_METRICS.items()))


def full_id(metric: type[Metric], variant: str | None) -> str:
    """Join id and variant."""
    return metric.id if variant is None else f"{metric.id}@{variant}"


def find(name: str) -> tuple[type[Metric], str | None]:
    """Resolve ``"fid"`` or ``"fid@tf1"`` to the class and its variant.

    Raises:
        UsageError: No such id or variant; the message suggests the closest.
    """
    base, _, variant = name.partition("@")
    metric = _METRICS.get(base)
    if metric is None and base in _BROKEN:
        raise UsageError(f"metric {name!r} is not there: {_BROKEN[base]}")
    if metric is None:
        known = list(_METRICS) + [full_id(m, v) for m in _METRICS.values() for v in m.variants]
        others = "".join(f"; {reason}" for reason in unloaded())
        raise UsageError(
            f"unknown metric {name!r}{did_you_mean(name, known)}; see `genmetrics list`{others}"
        )
    if not variant:
        return metric, metric.default_variant
    metric.variant_id(variant)
    return metric, variant


def options_of(metric: type[Metric]) -> dict[str, inspect.Parameter]:
    """Return the options of a metric: its constructor's parameters a user may set by name."""
    skip = (*_NOT_OPTIONS, _variant_argument(metric)) if metric.variants else _NOT_OPTIONS
    return {
        name: parameter
        for name, parameter in inspect.signature(metric.__init__).parameters.items()
        if name not in skip
    }


def _variant_argument(metric: type[Metric]) -> str:
    """Return what the constructor calls the variant: its first argument."""
    return list(inspect.signature(metric.__init__).parameters)[1]


def parse(texts: Iterable[str]) -> list[Request]:
    """Read ``-m`` arguments: ids by comma, each ``ID[:key=value,...]``; doubles are dropped.

    Raises:
        UsageError: Unknown metric, variant or option, or a value of the wrong kind.
    """
    pieces: list[list[str]] = []
    for text in texts:
        fresh = True
        for piece in filter(None, (part.strip() for part in text.split(","))):
            head, separator, _ = piece.partition("=")
            continues = separator and ":" not in head and not fresh
            if continues:
                pieces[-1].append(piece)
            else:
                name, _, option = piece.partition(":")
                pieces.append([name, option] if option else [name])
            fresh = False
    requests: dict[str, Request] = {}
    for name, *given in pieces:
        metric, variant = find(name)
        request = Request(metric, variant, dict(_option(metric, text) for text in given))
        requests.setdefault(request.name, request)
    return list(requests.values())


def create(request: Request, *, device: str = "auto", weights: Any = None) -> Metric:
    """Build a metric. ``weights`` (id to path) reaches those that take weights."""
    arguments = {n: v for n, v in request.options.items() if n not in NETWORK_OPTIONS}
    if request.variant is not None:
        arguments[_variant_argument(request.metric)] = request.variant
    parameters = inspect.signature(request.metric.__init__).parameters
    if weights and "weights" in parameters:
        arguments["weights"] = weights
    metric = request.metric(device=device, **arguments)
    for name in request.options.keys() & NETWORK_OPTIONS.keys():
        if not any(hasattr(spec, name) for spec in metric.extractors.values()):
            raise UsageError(f"{request.id} has no network, so {name} means nothing; drop it")
    return metric


def _option(metric: type[Metric], text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if separator and name in NETWORK_OPTIONS:
        return name, _convert(f"{metric.id}:{name}", NETWORK_OPTIONS[name], value)
    known = options_of(metric)
    if not separator or name not in known:
        listed = ", ".join(known) or "none"
        raise UsageError(
            f"metric {metric.id!r} has no option {name!r}{did_you_mean(name, known)};"
            f" options: {listed}, as key=value"
        )
    hints = typing.get_type_hints(metric.__init__)
    return name, _convert(f"{metric.id}:{name}", hints.get(name, str), value)


def _convert(where: str, kind: Any, text: str) -> Any:
    """Read an option's text as what the constructor's annotation says."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        choices = [str(choice) for choice in typing.get_args(kind)]
        if text not in choices:
            hint = did_you_mean(text, choices)
            raise UsageError(f"{where}={text} is not one of {', '.join(choices)}{hint}")
        return typing.get_args(kind)[choices.index(text)]
    if origin in (types.UnionType, typing.Union):
        if text.lower() == "none":
            return None
        return _convert(where, next(k for k in typing.get_args(kind) if k is not type(None)), text)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise UsageError(f"{where}={text} is not true or false")
        return text.lower() == "true"
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            raise UsageError(f"{where}={text} is not {kind.__name__}") from None
    return text
