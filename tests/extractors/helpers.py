"""What the tests of extractors share."""

from __future__ import annotations

from typing import Any

import numpy as np

from genmetrics.core.extractor import Extractor
from genmetrics.core.sample import Item


def run(extractor: Extractor, items: list[Item]) -> dict[str, Any]:
    """Features of items in one batch."""
    return dict(extractor.forward([extractor.prepare(item) for item in items]))


def relative(mine: Any, theirs: Any) -> float:
    """Largest distance of two rows over the norm of the second."""
    expected = np.asarray(theirs, dtype=np.float64)
    distances = np.linalg.norm(np.asarray(mine) - expected, axis=1)
    return float((distances / np.linalg.norm(expected, axis=1)).max())
