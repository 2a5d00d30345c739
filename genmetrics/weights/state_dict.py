"""Reading tensors out of weight files without ever running code that a file brings along."""

from __future__ import annotations

import io
import pickletools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genmetrics.core.errors import WeightsError

if TYPE_CHECKING:
    from torch import Tensor

_NO_WEIGHTS = ("_ids", "_index", "_mask")
"""Ends of the names under which published files hold integers beside their weights."""


def load_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict onto the CPU.

    Takes safetensors, torch checkpoints that hold nothing but tensors and plain values (a
    ``"state_dict"`` key is unwrapped), and TorchScript archives such as OpenAI's CLIP files. Of
    the last only the tensors are read, with torch's restricted reader and every class of the
    archive replaced by an inert one: its code is not compiled, let alone run. They come in the
    archive's precision.

    Raises:
        WeightsError: The file is damaged, would need code execution to load, or holds something
            else than named tensors of numbers that a network computes with: sparse, complex,
            quantized or integer ones, or none at all (device meta).
    """
    import torch

    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a weight file" if path.is_dir() else "does not exist"
        raise WeightsError(f"{path} {what}; pass the file itself")
    try:
        content = _read(path)
    except Exception as error:  # a damaged file fails anywhere in the readers, in any way
        raise WeightsError(_unreadable(path, error)) from error
    while isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not content:
        raise WeightsError(f"{path} holds no state dict (a {type(content).__name__})")
    for name, value in content.items():
        if not isinstance(value, torch.Tensor):
            raise WeightsError(
                f"{path} is no state dict: {name!r} is a {type(value).__name__}, not a tensor"
            )
        fault = _fault_of(str(name), value)
        if fault:
            raise WeightsError(f"{path}: {name!r} {fault}; use a file of dense floats")
    return {str(name): tensor for name, tensor in content.items()}


def _fault_of(name: str, tensor: Tensor) -> str:
    """Say why a network cannot take a tensor, or nothing."""
    import torch

    if tensor.is_meta:
        return "has a shape and no values (device meta)"
    if tensor.layout != torch.strided:
        return f"is sparse ({tensor.layout})"
    if tensor.is_quantized or tensor.is_complex():
        return f"has dtype {tensor.dtype}"
    # counters are single numbers; what is looked up by, or masked with, is no weight
    if tensor.is_floating_point() or not tensor.ndim or name.endswith(_NO_WEIGHTS):
        return ""
    return f"has dtype {tensor.dtype}"


def _read(path: Path) -> Any:
    import torch

    with path.open("rb") as file:
        head = file.read(9)
    if head[8:] == b"{":  # safetensors: eight bytes of length, then JSON
        from safetensors.torch import load_file

        return load_file(path)
    if head.startswith(b"PK"):
        with zipfile.ZipFile(path) as archive:
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                return _read_torchscript(archive)
    return torch.load(path, map_location="cpu", weights_only=True)


def _unreadable(path: Path, error: Exception) -> str:
    named = re.search(r"GLOBAL ([\w.]+)", str(error))
    if named:
        return (
            f"{path} would call {named[1]} when loaded, which genmetrics never allows; use a file"
            " that holds tensors only, such as safetensors"
        )
    reason = str(error).strip().partition("\n")[0][:120]
    return (
        f"{path} ({path.stat().st_size:,} bytes) cannot be read as weights"
        f" ({type(error).__name__}: {reason}); fetch or copy it again"
    )


class _Module:
    """Stands in for every class of a TorchScript archive: it has attributes and no behaviour."""


def _int_list(values: list[int]) -> list[int]:
    return values


def _read_torchscript(archive: zipfile.ZipFile) -> dict[str, Tensor]:
    """Read the tensors of the archive's root module, named by their attribute paths."""
    import torch

    pickle = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
    folder = pickle.removesuffix("data.pkl")
    # torch's restricted reader refuses archives that hold code, so it gets one without.
    tensors_only = io.BytesIO()
    with zipfile.ZipFile(tensors_only, "w") as copy:
        for name in archive.namelist():
            inner = name.removeprefix(folder)
            if inner in ("data.pkl", "version", "byteorder") or inner.startswith("data/"):
                copy.writestr(name, archive.read(name))
    tensors_only.seek(0)
    allowed: list[Any] = [(_int_list, "torch.jit._pickle.build_intlist")]
    for operation, argument, _ in pickletools.genops(archive.read(pickle)):
        if operation.name == "GLOBAL" and str(argument).startswith("__torch__."):
            allowed.append((_Module, str(argument).replace(" ", ".")))
    with torch.serialization.safe_globals(allowed):
        root = torch.load(tensors_only, map_location="cpu", weights_only=True)
    return dict(_tensors(root, "", set()))


def _tensors(module: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    import torch

    if not isinstance(module, _Module) or id(module) in seen:
        return
    seen.add(id(module))
    for name, value in vars(module).items():
        if isinstance(value, torch.Tensor):
            yield prefix + name, value
        else:
            yield from _tensors(value, f"{prefix}{name}.", seen)
