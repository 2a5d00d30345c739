"""``genmetrics env``: what a bug report needs to say about the machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
from typing import Annotated, Any

import typer

_PACKAGES = (
    "torch",
    "torchvision",
    "transformers",
    "timm",
    "open-clip-torch",
    "lpips",
    "accelerate",
    "huggingface-hub",
    "safetensors",
    "numpy",
    "scipy",
    "scikit-image",
    "pillow",
)

_VARIABLES = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "TORCH_HOME",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)
"""Variables that change results, speed or where things are looked for. Never tokens."""


def env(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print versions, devices and settings for a bug report."""
    facts = environment()
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    for section, values in facts.items():
        if not isinstance(values, dict):
            typer.echo(f"{section}: {values}")
            continue
        typer.echo(f"{section}:" if values else f"{section}: none")
        for name, value in values.items():
            typer.echo(f"  {name}: {'not installed' if value is None else value}")


def environment() -> dict[str, Any]:
    """Gather the facts; only torch is imported, for its devices."""
    from genmetrics import __version__
    from genmetrics.weights import home, hub_cache, weights_dir

    return {
        "genmetrics": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "cores": _cores(),
        "memory_gib": _memory_gib(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "devices": _devices(),
        "directories": {
            "home": str(home()),
            "weights": str(weights_dir()),
            "model hub cache": str(hub_cache()),
        },
        "variables": {
            name: _without_password(value)
            for name, value in sorted(os.environ.items())
            if name in _VARIABLES or name.startswith("GENMETRICS_")
        },
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cores() -> int:
    """Count the cores this process may use, which batch systems make fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float | None:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None  # not a POSIX system
    return round(size / 2**30, 1)


def _devices() -> dict[str, str]:
    try:
        import torch
    except ImportError as error:
        return {"torch": f"cannot be imported: {error}"}
    found = {"cpu": f"{torch.get_num_threads()} threads"}
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        found[f"cuda:{index}"] = f"{facts.name}, {facts.total_memory / 2**30:.1f} GiB"
    if torch.version.cuda:
        found["cuda"] = f"built for {torch.version.cuda}"
    if torch.backends.mps.is_available():
        found["mps"] = "available"
    return found


def _without_password(value: str) -> str:
    return re.sub(r"//[^/@\s]+@", "//***@", value)
