"""What tests of several parts share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def inception_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights in the public key names, with activations of order one at every depth."""
    import torch
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    path = tmp_path_factory.mktemp("inception") / "inception.pth"

    class Blank(FeatureExtractorInceptionV3):
        def load_state_dict(self, *_: Any, **__: Any) -> None:
            pass

    # The constructor reads a file; the blank network ignores what is in it.
    torch.save({}, path)
    network = Blank("blank", ["2048"], feature_extractor_weights_path=str(path))
    generator = torch.Generator().manual_seed(0)
    state = {name: _draw(name, tensor, generator) for name, tensor in network.state_dict().items()}
    torch.save(state, path)
    return path


def _draw(name: str, tensor: Any, generator: Any) -> Any:
    import torch

    def normal(scale: float) -> Any:
        return torch.randn(tensor.shape, generator=generator) * scale

    if name.endswith("num_batches_tracked"):
        return tensor
    if tensor.ndim > 1:
        return normal((2 / tensor[0].numel()) ** 0.5)
    if name.endswith(("running_var", "bn.weight")):
        return 0.75 + torch.rand(tensor.shape, generator=generator) * 0.5
    return normal(0.1)


@pytest.fixture(scope="session", autouse=True)
def every_run_reads_back() -> Iterator[None]:
    """Whatever a test writes validates against the schemas, and is read back as it was.

    The table, the page and the CSV of the record that was read are those of the one just made.
    """
    from genmetrics.report import files

    plain = files.write_report

    def write_report(record: Any, out: Path) -> list[Path]:
        paths = plain(record, out)
        _require_read_back(record, paths[0].parent)
        return paths

    files.write_report = write_report
    yield
    files.write_report = plain


def _require_read_back(record: Any, folder: Path) -> None:
    from importlib.resources import files

    from jsonschema import Draft202012Validator

    from genmetrics.report.csv import to_csv
    from genmetrics.report.html import page
    from genmetrics.report.record import RunRecord
    from genmetrics.report.table import render

    found = json.loads((folder / "results.json").read_text())
    lines = (folder / "samples.jsonl").read_text().splitlines()
    for name, values in (("results", [found]), ("samples", map(json.loads, lines[:200]))):
        schema = files("genmetrics.report") / f"{name}.schema.json"
        validator = Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
        for value in values:
            validator.validate(value)
    read = RunRecord.load(folder)
    assert render(read) == render(record)
    assert to_csv(read) == to_csv(record)
    assert page(read) == page(record)
