"""Reading tensors; nothing that a file brings along is ever run."""

from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from genmetrics.core.errors import WeightsError
from genmetrics.weights import load_state_dict, require

TENSORS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.n": torch.tensor(3)}


class Evil:
    """Creates a file when unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return list(found) == list(expected) and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


def test_every_plain_form_gives_the_same_tensors(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "a.safetensors")
    save_file(TENSORS, tmp_path / "misnamed.pth")
    torch.save(TENSORS, tmp_path / "zip.pth")
    torch.save(TENSORS, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": TENSORS, "epoch": 3}, tmp_path / "wrapped.pth")
    for path in sorted(tmp_path.iterdir()):
        assert equal(dict(sorted(load_state_dict(path).items())), dict(sorted(TENSORS.items())))


@pytest.mark.parametrize("id", ["lpips-alex", "lpips-squeeze", "efficientnet-lite0"])
def test_packaged_weights_load(id: str) -> None:
    tensors = load_state_dict(require(id))
    assert len(tensors) > 4
    assert all(isinstance(value, torch.Tensor) for value in tensors.values())


@pytest.mark.parametrize("form", ["zip", "old", "pickle", "torchscript"])
def test_a_file_that_would_run_code_is_refused_and_not_run(form: str, tmp_path: Path) -> None:
    marker, path = tmp_path / "was-run", tmp_path / "evil.pth"
    content = {"state_dict": TENSORS, "extra": Evil(marker)}
    if form == "pickle":
        path.write_bytes(pickle.dumps(content))
    elif form == "torchscript":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("evil/data.pkl", pickle.dumps(Evil(marker), protocol=2))
            archive.writestr("evil/constants.pkl", pickle.dumps(Evil(marker), protocol=2))
            archive.writestr("evil/version", "3\n")
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(WeightsError) as caught:
        load_state_dict(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    if form in ("zip", "old"):
        assert "system when loaded, which genmetrics never allows" in str(caught.value)
    assert not marker.exists()
    if form == "pickle":
        pickle.loads(path.read_bytes())
        assert marker.exists(), "the file is as evil as it claims"


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sizes = [1, 2]
        self.scale = torch.nn.Parameter(torch.tensor(2.5))
        self.body = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) * self.scale


@pytest.mark.parametrize("made_by", ["script", "trace"])
def test_torchscript_archives_give_their_tensors_without_their_code(
    made_by: str, tmp_path: Path
) -> None:
    """OpenAI publishes CLIP as such archives, in half precision."""
    net = Net().eval().half()
    path = tmp_path / "jit.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its own format deprecated
        if made_by == "script":
            torch.jit.save(torch.jit.script(net), path)
        else:
            torch.jit.save(torch.jit.trace(net.float(), torch.zeros(1, 1, 4, 4)), path)
    found = load_state_dict(path)
    assert {name: found[name].dtype for name in found} == {
        name: value.dtype for name, value in net.state_dict().items()
    }
    assert all(torch.equal(found[name], value) for name, value in net.state_dict().items())


def test_a_damaged_file_is_named_with_its_size(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "whole.pth")
    whole = (tmp_path / "whole.pth").read_bytes()
    save_file(TENSORS, tmp_path / "whole.safetensors")
    tensors = (tmp_path / "whole.safetensors").read_bytes()
    for content in (
        b"",
        b"<html>404</html>",
        whole[:1000],
        whole[:-200],
        tensors[:-4],
        tensors[:40],
    ):
        path = tmp_path / "cut.pth"
        path.write_bytes(content)
        with pytest.raises(WeightsError, match=f"{len(content):,} bytes.*cannot be read") as caught:
            load_state_dict(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([torch.zeros(1)], "holds no state dict .a list"),
        ({}, "holds no state dict"),
        ({"state_dict": {"epoch": 3}}, "'epoch' is a int, not a tensor"),
    ],
)
def test_something_else_than_a_state_dict(content: object, complaint: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "x.pth")
    with pytest.raises(WeightsError, match=complaint):
        load_state_dict(tmp_path / "x.pth")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"gone\.pth does not exist"):
        load_state_dict(tmp_path / "gone.pth")


def quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch means to move its quantization elsewhere
        return torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: torch.eye(3).to_sparse(), r"is sparse \(torch.sparse_coo\)"),
        (lambda: torch.eye(3).to_sparse_csr(), r"is sparse \(torch.sparse_csr\)"),
        (lambda: torch.ones(2, 2, device="meta"), r"no values \(device meta\)"),
        (lambda: torch.ones(2, 2, dtype=torch.complex64), "has dtype torch.complex64"),
        (lambda: torch.ones(2, 2, dtype=torch.int8), "has dtype torch.int8"),
        (lambda: torch.ones(2, dtype=torch.bool), "has dtype torch.bool"),
        (quantized, "has dtype torch.qint8"),
    ],
)
def test_a_tensor_that_no_network_takes_is_refused_by_name(
    make: Callable[[], torch.Tensor], complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.pth"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls some of them a prototype
        torch.save({**TENSORS, "b.weight": make()}, path)
        with pytest.raises(WeightsError, match=complaint) as caught:
            load_state_dict(path)
    assert str(caught.value).startswith(f"{path}: 'b.weight' ")
    assert "\n" not in str(caught.value)


def test_integers_that_are_no_weights_are_taken(tmp_path: Path) -> None:
    beside = {
        "bn.num_batches_tracked": torch.tensor(3),
        "text.embeddings.position_ids": torch.arange(4)[None],
        "block.relative_position_index": torch.arange(4),
        "attn_mask": torch.ones(2, 2, dtype=torch.bool),
    }
    torch.save({**TENSORS, **beside}, tmp_path / "x.pth")
    assert equal(load_state_dict(tmp_path / "x.pth"), {**TENSORS, **beside})
