"""``--batch-size auto``: measured on a GPU, once an extractor and a card; a constant on a CPU.

Kernels, and with them the last digits of features, follow the batch. So a size that was measured is
kept beside the features, and every rank and every later run takes that one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from genmetrics.core.errors import UsageError
from genmetrics.core.extractor import Extractor
from genmetrics.core.files import write_atomic

SMALLEST = 32
"""Where the search begins, and the size on a CPU: no backbone gets faster there beyond it, and
networks run in slices of a few images anyway."""

LARGEST = 512
UNMEASURED = 128
"""Size for compiled networks on a GPU, which are compiled anew for every shape."""

GAIN = 1.05
"""Images a second over those of half the size, below which a larger batch only costs memory."""

_PASSES = 3  # timed ones; the fastest counts, since whatever disturbs only slows


def measure(
    extractor: Extractor,
    prepared: Any,
    *,
    clock: Callable[[], float] = time.perf_counter,
    wait: Callable[[], None] | None = None,
) -> int:
    """Find the batch size at which an extractor stops getting faster.

    From 32 on the size doubles, up to 512, while the memory holds it and images a second grow by
    5 % or more. If not even 32 fit, the largest of 16, 8, ... that fits is taken. Each size costs
    one forward to warm up and three that are timed. Nothing runs on a CPU.

    Args:
        extractor: On the device of the run.
        prepared: One item as the extractor's ``prepare`` gives it; batches are copies of it.
        clock: Seconds.
        wait: Returns when the device has done all its work; by default that of torch.

    Raises:
        UsageError: The memory does not hold a batch of one.
    """
    if not extractor.device.startswith("cuda"):
        return SMALLEST
    if getattr(extractor.spec, "compiled", False):
        return UNMEASURED
    speed = _Speed(extractor, prepared, clock, wait or _waiting(extractor.device))
    best, fastest = 0, 0.0
    size = SMALLEST
    while size <= LARGEST:
        found = speed(size)
        if found is None or found < GAIN * fastest:
            break
        best, fastest = size, found
        size *= 2
    return best or _below(speed)


def _below(speed: _Speed) -> int:
    size = SMALLEST // 2
    while size:
        if speed(size) is not None:
            return size
        size //= 2
    raise UsageError(
        f"one image does not fit the memory of {speed.extractor.device} with"
        f" {speed.extractor.spec.extractor}; free memory or use another device"
    )


class _Speed:
    """Images a second at a batch size, or None where the memory does not hold it."""

    def __init__(
        self,
        extractor: Extractor,
        prepared: Any,
        clock: Callable[[], float],
        wait: Callable[[], None],
    ) -> None:
        self.extractor = extractor
        self._prepared = prepared
        self._clock = clock
        self._wait = wait

    def __call__(self, size: int) -> float | None:
        import torch

        batch = [self._prepared] * size
        try:
            self._seconds(batch)  # chooses kernels, takes memory
            return size / min(self._seconds(batch) for _ in range(_PASSES))
        except torch.OutOfMemoryError:
            pass
        # outside the handler, whose traceback would keep the failed batch alive
        torch.cuda.empty_cache()
        return None

    def _seconds(self, batch: list[Any]) -> float:
        self._wait()
        start = self._clock()
        self.extractor.forward(batch)
        self._wait()
        return self._clock() - start


def _waiting(device: str) -> Callable[[], None]:
    import torch

    return lambda: torch.cuda.synchronize(device)


def remembered(folder: Path, device: str) -> int | None:
    """Return the size that was measured for an extractor on this card by this torch, if any was.

    Args:
        folder: The extractor's folder in the feature store.
        device: The device of the run.
    """
    try:
        found = json.loads(_file(folder, device).read_text())
    except (OSError, ValueError):
        return None  # nobody measured, or what they wrote is damaged: measure
    if not isinstance(found, dict) or any(found.get(k) != v for k, v in _made_on(device).items()):
        return None
    size = found.get("batch_size")
    sound = isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= LARGEST
    return size if sound else None


def remember(folder: Path, device: str, size: int) -> None:
    """Keep a size for every rank and every later run; see :func:`remembered`.

    Raises:
        InputError: The folder cannot be written.
    """
    note = {**_made_on(device), "batch_size": size}
    write_atomic(_file(folder, device), json.dumps(note, indent=1))


def _file(folder: Path, device: str) -> Path:
    return folder / f"batch-{re.sub(r'[^A-Za-z0-9]+', '-', _card(device))}.json"


def _made_on(device: str) -> dict[str, str]:
    import torch

    return {"device": _card(device), "torch": str(torch.__version__)}


def _card(device: str) -> str:
    """Name the card, so that another card of the same number is not taken for it."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device
