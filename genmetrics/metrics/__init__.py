"""One file a metric. Importing this package registers them all, without importing torch."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points

from genmetrics.core.metric import Metric
from genmetrics.core.registry import load_plugins, registered

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
load_plugins(entry_points(group="genmetrics.metrics"))


def by_class_name() -> dict[str, type[Metric]]:
    """Return class name to class of every registered metric."""
    return {metric.__name__: metric for metric in registered().values()}
