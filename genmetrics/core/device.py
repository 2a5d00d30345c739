"""Devices by name, without guessing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from genmetrics.core.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

SENT_AHEAD = ("cuda",)
"""Kinds of device to which pictures travel while they are prepared; elsewhere they stay put."""


def cores() -> int:
    """Return the number of CPU cores this process may use."""
    return len(affinity())


def affinity() -> set[int]:
    """Return which CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux only; macOS and Windows use all cores
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


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


def send_ahead(tensor: Tensor, device: str) -> Tensor:
    """Copy to a CUDA device through pinned memory, without waiting; elsewhere return it as it is.

    The caller goes on at once. Whatever uses the copy later finds it there, because the decoding
    threads and the main thread all use the device's default stream, which works in order. The
    pinned memory is not reused before the copy is done: torch's allocator sees to that.
    """
    import torch

    target = torch.device(device)
    if target.type not in SENT_AHEAD:
        return tensor
    if tensor.device.type != "cpu":
        return tensor.to(target)
    return tensor.pin_memory().to(target, non_blocking=True)
