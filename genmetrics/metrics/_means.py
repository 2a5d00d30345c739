"""Means over samples, and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from genmetrics.core.result import Interval


class Table(NamedTuple):
    """Samples with what groups them, and means over them."""

    ids: list[str]
    groups: list[str] | None
    clusters: list[str]

    def mean(
        self, scores: np.ndarray, *, level: float, grouped: bool = False
    ) -> tuple[float, Interval | None]:
        """Mean of the finite scores, or of their group means, and its interval.

        There is none where a group has one cluster: that tells nothing about the next.
        """
        from genmetrics.stats import mean_interval, mean_of_groups

        kept = np.flatnonzero(np.isfinite(scores))
        groups = [self.groups[i] for i in kept] if grouped and self.groups is not None else None
        interval = mean_interval(
            scores[kept],
            clusters=[self.clusters[i] for i in kept],
            groups=groups,
            level=level,
        )
        sound = bool(np.isfinite(interval[0]))
        if not len(kept):
            return float("nan"), None
        finite = scores[kept]
        value = float(np.mean(finite)) if groups is None else mean_of_groups(finite, groups)
        return value, Interval(*interval) if sound else None

    def labels(self, labels: Sequence[str] | None) -> dict[str, str] | None:
        """Label by id; None where every sample is its own."""
        if labels is None or labels == self.ids:
            return None
        return dict(zip(self.ids, labels, strict=True))
