"""Devices by name, without guessing."""

from __future__ import annotations

from genmetrics.core.errors import UsageError


def resolve_device(device: str) -> str:
    """Turn ``"auto"`` into the device there is; check any other name.

    Raises:
        UsageError: The name is not a device, or the device is not there.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"device {device!r} is unknown; use auto, cpu, cuda or cuda:N") from error
    if kind.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"device {device!r} is not supported; use auto, cpu, cuda or cuda:N")
    if kind.type == "cuda" and not (
        torch.cuda.is_available() and (kind.index or 0) < torch.cuda.device_count()
    ):
        count = torch.cuda.device_count()
        raise UsageError(f"device {device!r} is not there ({count} CUDA devices); use cpu or auto")
    if kind.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError("device 'mps' is not there; use cpu or auto")
    return device
