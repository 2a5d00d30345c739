"""What every framework needs of a metric."""

from __future__ import annotations

import copy
from typing import TypeVar

from genmetrics.core.metric import Metric

M = TypeVar("M", bound=Metric)


def fresh(metric: M) -> M:
    """Return a metric without samples that shares the models and the loaded reference."""
    other = copy.copy(metric)
    other.reset()
    return other
