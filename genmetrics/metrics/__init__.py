"""One file a metric. Importing this package registers them all, without importing torch."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points

from genmetrics.core.errors import UsageError
from genmetrics.core.metric import Metric
from genmetrics.core.registry import registered

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
for _entry in entry_points(group="genmetrics.metrics"):
    try:
        _entry.load()
    except Exception as error:  # whatever another package's module raises
        raise UsageError(
            f"metrics of {_entry.dist.name if _entry.dist else _entry.name} cannot be loaded"
            f" ({_entry.value}: {type(error).__name__}: {error}); mend or uninstall that package"
        ) from error


def by_class_name() -> dict[str, type[Metric]]:
    """Return class name to class of every registered metric."""
    return {metric.__name__: metric for metric in registered().values()}
