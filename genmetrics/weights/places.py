"""Where weights lie on this machine, and whether the network may be used."""

from __future__ import annotations

import os
from pathlib import Path

from genmetrics.core.errors import WeightsError

OFFLINE_SWITCHES = ("GENMETRICS_OFFLINE", "HF_HUB_OFFLINE")


def home() -> Path:
    """Return our directory: ``$GENMETRICS_HOME``, or ``~/.cache/genmetrics``."""
    return _from_environment("GENMETRICS_HOME") or Path.home() / ".cache" / "genmetrics"


def weights_dir() -> Path:
    """Return where weights are kept: ``$GENMETRICS_WEIGHTS``, or ``home()/weights``.

    Files lie here under the name they are published under, models of the hub that were copied by
    hand under ``ORGANISATION/NAME``.
    """
    return _from_environment("GENMETRICS_WEIGHTS") or home() / "weights"


def torch_checkpoints() -> Path:
    """Return where torch.hub keeps files: other tools have left some of the same ones there."""
    cache = _from_environment("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (_from_environment("TORCH_HOME") or cache / "torch") / "hub" / "checkpoints"


def hub_cache() -> Path:
    """Return the model hub's cache, by the hub client's own environment variables."""
    cache = _from_environment("XDG_CACHE_HOME") or Path.home() / ".cache"
    hf_home = _from_environment("HF_HOME") or cache / "huggingface"
    chosen = _from_environment("HF_HUB_CACHE") or _from_environment("HUGGINGFACE_HUB_CACHE")
    return chosen or hf_home / "hub"


def refuse_if_offline(fault: str) -> None:
    """Raise :class:`WeightsError` when a switch forbids the network; ``fault``: what is wrong."""
    for name in OFFLINE_SWITCHES:
        # Any value but a clear "no" forbids: whoever set the switch did not want traffic.
        if os.environ.get(name, "").lower() not in ("", "0", "false", "no", "off"):
            raise WeightsError(f"{name}={os.environ[name]} forbids downloads, but {fault}")


def _from_environment(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(os.path.expandvars(value)).expanduser() if value else None
