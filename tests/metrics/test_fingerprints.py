"""Fingerprints that were printed beside numbers stay what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genmetrics.core.registry import create, full_id, parse
from genmetrics.metrics import by_class_name

GOLDEN: dict[str, str] = json.loads(
    (Path(__file__).parents[1] / "golden" / "fingerprints.json").read_text()
)
"""Metrics as ``-m`` takes them to their fingerprints, as recorded on a machine without models."""


@pytest.fixture
def no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no model of this machine to be found: its hash would enter the fingerprint."""
    monkeypatch.delenv("GENMETRICS_MANIFEST", raising=False)
    for name in ("GENMETRICS_HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize("name", GOLDEN)
def test_the_fingerprint_of_a_metric_is_the_one_it_always_had(name: str) -> None:
    (request,) = parse([name])
    assert create(request, device="cpu").protocol.fingerprint == GOLDEN[name]


def test_every_metric_and_variant_that_needs_no_data_has_its_fingerprint_recorded() -> None:
    known = {full_id(m, v) for m in by_class_name().values() for v in (m.variants or (None,))}
    assert known - GOLDEN.keys() <= {"geneval"}  # reads a recording of detections
