"""A reference that every rank reads."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Statistics of eight small images for the offline backbone."""
    import genmetrics as gm
    from genmetrics.samples.statistics import StatisticsEntry, write_statistics
    from tests.integrations.ranks import image

    metric = gm.FDLite(device="cpu")
    for i in range(100, 108):
        metric.update(image(i), real=True)
    n, arrays = metric.reference_arrays()
    path = tmp_path_factory.mktemp("reference") / "real.safetensors"
    write_statistics(path, [StatisticsEntry(metric.spec.to_dict(), n, arrays, "")])
    return path
