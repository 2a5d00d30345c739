"""What tests of several parts share."""

from __future__ import annotations

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
