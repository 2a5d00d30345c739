"""genmetrics inside other people's training loops: one file a framework.

A framework is imported by its own file only, so nothing here asks for one that is not used.
"""

from __future__ import annotations

import importlib
from typing import Any

FRAMEWORKS = ("torchmetrics", "transformers")


def __getattr__(name: str) -> Any:
    if name in FRAMEWORKS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(FRAMEWORKS)
