"""What becomes of memory that was freed."""

from __future__ import annotations

import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, as malloc.h numbers them
_OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Let this process keep what it frees for the next time, at most 32 MiB a thread.

    A network frees the activations of a slice together. glibc then gives them back to the system
    and asks for them again, zeroed page by page, for the next slice: for EfficientNet-Lite0 1900
    pages an image and a fifth of the time. Only for a process of our own; it does nothing without
    glibc, or where the environment says how much to keep.
    """
    if sys.platform != "linux" or any(name in os.environ for name in _OWN_SETTINGS):
        return
    import ctypes

    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_TRIM_THRESHOLD, 32 << 20)
        libc.mallopt(_MMAP_THRESHOLD, 32 << 20)
