"""What a result depends on beside the code: the machine, the versions, the threads."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from genmetrics.core.device import cores

PACKAGES = (
    "genmetrics", "torch", "torchvision", "numpy", "scipy", "pillow", "timm", "scikit-image",
    "clean-fid", "pytorch-fid", "torch-fidelity", "torchmetrics", "transformers",
)  # fmt: skip


CODE = ("genmetrics", "benchmarks/*.py")
"""What of the repository moves a measurement."""


def describe() -> dict[str, Any]:
    """Return plain facts; imports nothing heavy."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "memory_gib": round(pages / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def commit() -> str | None:
    """Return the commit that is checked out, ``"... with changes"`` if the code differs from it."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--", *CODE)
    except (OSError, subprocess.CalledProcessError):
        return None  # no git, or an unpacked archive
    return f"{head} with changes" if changed else head


def _git(*words: str) -> str:
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
