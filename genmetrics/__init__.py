"""How good is this image or video generator? One Metric API, one pass, intervals, fingerprints.

Public names load on first use, so ``import genmetrics`` stays fast and imports no model library.
Every registered metric is reachable by its class name, such as ``gm.FID``.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "evaluate": "genmetrics.api",
    "Report": "genmetrics.run.evaluate",
    "RunRecord": "genmetrics.report.record",
    "load_image": "genmetrics.samples.image",
    "log_to": "genmetrics.report.log",
    "Metric": "genmetrics.core.metric",
    "Result": "genmetrics.core.result",
    "Interval": "genmetrics.core.result",
    "Sample": "genmetrics.core.sample",
    "register": "genmetrics.core.registry",
    "GenmetricsError": "genmetrics.core.errors",
    "InputError": "genmetrics.core.errors",
    "UsageError": "genmetrics.core.errors",
    "PairingError": "genmetrics.core.errors",
    "TooFewSamplesError": "genmetrics.core.errors",
    "ProtocolMismatchError": "genmetrics.core.errors",
    "FeatureError": "genmetrics.core.errors",
    "WeightsError": "genmetrics.core.errors",
    "MissingExtraError": "genmetrics.core.errors",
}
_MODULES = ("distributed", "integrations", "metrics", "stats")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"genmetrics.{name}")
    if name[:1].isupper():
        from genmetrics.metrics import by_class_name

        metric = by_class_name().get(name)
        if metric is not None:
            return metric
    raise AttributeError(f"module 'genmetrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    from genmetrics.metrics import by_class_name

    return sorted([*_LAZY, *_MODULES, *by_class_name(), "__version__"])
