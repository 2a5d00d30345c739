"""Frozen networks: what nobody may change, and what they must leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from genmetrics.core.errors import UsageError, WeightsError
from genmetrics.core.threads import threads
from genmetrics.extractors._frozen import Frozen, building, load_strictly, numerics
from genmetrics.extractors.precision import precision_on


class Tiny(nn.Module):
    """Everything that behaves otherwise in training."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.layers(x)}


@pytest.fixture
def frozen() -> Frozen:
    return Frozen(Tiny(), "cpu", "fp32")


X = torch.linspace(-1, 1, 12).view(4, 3)


def test_training_mode_of_a_parent_changes_nothing(frozen: Frozen) -> None:
    """Batch norm in training mode halved or multiplied FID and leaked between samples."""
    before = frozen(X)["out"]
    parent = nn.ModuleDict({"metric": frozen})
    parent.train()
    assert not any(module.training for module in frozen.modules())
    assert np.array_equal(frozen(X)["out"], before)
    parent.apply(lambda module: setattr(module, "training", True))
    assert np.array_equal(frozen(X)["out"], before)


def test_no_gradients(frozen: Frozen) -> None:
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    with torch.enable_grad():
        out = frozen(X.clone().requires_grad_())["out"]
    assert isinstance(out, np.ndarray)
    assert out.dtype == np.float32


def test_random_state_is_left_alone() -> None:
    state = torch.get_rng_state()
    with building():
        network = Tiny()
    Frozen(network, "cpu", "fp32")(X)
    assert torch.equal(torch.get_rng_state(), state)


def test_defaults_of_the_caller_do_not_reach_the_model() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), building():
            network = Tiny()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert {value.dtype for value in network.parameters()} == {torch.float32}
    assert {value.device.type for value in network.parameters()} == {"cpu"}


def test_autocast_of_the_caller_is_off_inside(frozen: Frozen) -> None:
    before = frozen(X)["out"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert np.array_equal(frozen(X)["out"], before)
        assert torch.is_autocast_enabled("cpu")


def settings_now() -> list[Any]:
    backends: Any = torch.backends
    holders = (backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul)
    return [holder.fp32_precision for holder in holders] + [backends.cudnn.benchmark]


@pytest.fixture
def fast_and_loose() -> Iterator[None]:
    """What training scripts set for speed; on some CPUs products are then in bfloat16."""
    backends: Any = torch.backends
    before = settings_now()
    torch.set_float32_matmul_precision("medium")
    backends.cudnn.benchmark = True
    yield
    torch.set_float32_matmul_precision("highest")
    backends.cuda.matmul.fp32_precision = before[0]
    backends.cudnn.conv.fp32_precision = before[1]
    backends.mkldnn.matmul.fp32_precision = before[2]
    backends.cudnn.benchmark = before[3]


needs_new_switches = pytest.mark.skipif(
    not hasattr(torch.backends.cudnn, "conv"), reason="torch below 2.9 has other switches"
)


@needs_new_switches
@pytest.mark.usefixtures("fast_and_loose")
def test_settings_are_exact_inside_and_restored_outside(frozen: Frozen) -> None:
    before = settings_now()
    assert "bf16" in before
    with numerics("cpu", "fp32"):
        assert settings_now() == ["ieee", "ieee", "ieee", False]
    with numerics("cuda", "tf32"):
        assert settings_now() == ["tf32", "tf32", "ieee", False]
    frozen(X)
    assert settings_now() == before
    with pytest.raises(RuntimeError), numerics("cpu", "fp32"):
        raise RuntimeError
    assert settings_now() == before


@needs_new_switches
def test_loose_settings_do_not_move_features(fast_and_loose: None) -> None:
    network = nn.Linear(512, 512)

    class Wrapped(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": network(x)}

    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(0))
    exact = (x.double() @ network.weight.double().T + network.bias.double()).detach().numpy()
    out = Frozen(Wrapped(), "cpu", "fp32")(x)["out"]
    assert np.abs(out - exact).max() < 1e-5


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_point_convolutions_are_onednns_and_give_the_same() -> None:
    class Points(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 5, 1))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.layers(x)}

    network, x = Points(), torch.rand(3, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    expected = network(x)["out"].detach()
    with threads(1), torch.profiler.profile() as profile:  # the profiler sees this thread only
        out = Frozen(network, "cpu", "fp32")(x)["out"]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    names = {event.name for event in profile.events()}
    assert "aten::mkldnn_convolution" in names
    assert not [name for name in names if "slow_conv" in name]


def test_tf32_on_a_cpu_falls_back_with_a_warning() -> None:
    """Checkpoints in half precision failed on CPUs, or changed dtype between machines."""
    with pytest.warns(UserWarning, match="tf32 is not available on cpu; computing in fp32"):
        assert precision_on("cpu", "tf32") == "fp32"
    assert precision_on("cuda:1", "tf32") == "tf32"
    assert precision_on("cpu", "fp32") == "fp32"
    with pytest.raises(UsageError, match="float16"):
        precision_on("cpu", "float16")


def test_bfloat16_comes_back_as_float32() -> None:
    network = Tiny()
    exact = Frozen(network, "cpu", "fp32")(X)["out"]
    out = Frozen(network, "cpu", "bf16")(X)["out"]
    assert out.dtype == np.float32
    assert 0 < np.abs(out - exact).max() < 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers.0.bias": None}, r"w\.pt: keys 1 missing \(layers\.0\.bias\); this is another"),
        ({"extra": torch.zeros(1)}, r"1 unexpected \(extra\)"),
        ({"layers.0.weight": torch.zeros(8, 4)}, r"layers\.0\.weight has shape \(8, 4\)"),
    ],
)
def test_files_of_another_network_are_refused(change: dict[str, Any], message: str) -> None:
    state = {**Tiny().state_dict(), **change}
    state = {name: value for name, value in state.items() if value is not None}
    with pytest.raises(WeightsError, match=message):
        load_strictly(Tiny(), state, "w.pt")
