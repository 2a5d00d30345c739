"""Loading transformers models strictly and without the network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers.utils import logging

from genmetrics.core.errors import WeightsError, shown
from genmetrics.extractors._frozen import building


def load_folder(kind: Any, folder: Path, model_type: str) -> nn.Module:
    """Load a model of class ``kind`` whose every tensor comes from the folder.

    Raises:
        WeightsError: Another type of model, missing or misshapen tensors, an unreadable file.
    """
    found = json.loads((folder / "config.json").read_text()).get("model_type")
    if found != model_type:
        raise WeightsError(f"{folder} holds a model of type {found!r}, expected {model_type!r}")
    model, _ = _load(kind, str(folder), str(folder), local_files_only=True)
    return model


def load_state(kind: Any, config: Any, state: Mapping[str, Tensor], where: str) -> nn.Module:
    """Load a model of class ``kind`` from tensors named as in published checkpoints.

    Raises:
        WeightsError: Missing, unexpected or misshapen tensors.
    """
    model, info = _load(kind, None, where, config=config, state_dict=dict(state))
    if info["unexpected_keys"]:
        names = sorted(info["unexpected_keys"])
        raise WeightsError(
            f"{where}: {kind.__name__} has no place for {', '.join(names[:3])}"
            f"{', ...' if len(names) > 3 else ''}; this is another network's file"
        )
    return model


def _load(
    kind: Any, source: str | None, where: str, **options: Any
) -> tuple[nn.Module, Mapping[str, Any]]:
    with building(), _quiet():
        try:
            model, info = kind.from_pretrained(source, output_loading_info=True, **options)
        except (OSError, RuntimeError, ValueError) as error:
            reason = shown(str(error).strip().partition("\n")[0], 200)
            raise WeightsError(f"{where} cannot be loaded: {reason}") from error
    # Transformers only logs what it could not find, and draws it at random.
    lost = sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])})
    if lost:
        raise WeightsError(
            f"{where} lacks {len(lost)} tensors of a {kind.__name__} ({', '.join(lost[:3])}"
            f"{', ...' if len(lost) > 3 else ''}); copy it again"
        )
    return model, info


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars and loading reports off the terminal."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
