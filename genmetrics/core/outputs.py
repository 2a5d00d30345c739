"""What an extractor gave, against what its spec says it gives; nothing else goes any further."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from genmetrics.core.errors import FeatureError, shown
from genmetrics.core.extractor import ExtractorSpec
from genmetrics.core.rows import UNANSWERED, Features, Ragged, Rows


def checked(spec: ExtractorSpec, found: Any, count: int) -> Features:
    """Return the features of ``count`` inputs; rows are moved to nobody else's sample.

    Raises:
        FeatureError: Not the outputs that the spec declares, not one row an input, or rows of
            another kind.
    """
    if not isinstance(found, Mapping):
        raise FeatureError(f"{spec.extractor} gave {shown(found)}; expected a mapping of outputs")
    names = [name for name in found if name != UNANSWERED]
    if set(names) != set(spec.outputs):
        raise FeatureError(
            f"{spec.extractor} gave the outputs {', '.join(map(str, names)) or 'none'}; its spec"
            f" declares {', '.join(spec.outputs)}"
        )
    for name, kind in spec.outputs.items():
        _require_kind(f"{spec.extractor}: output {name!r}", kind, found[name])
    reasons = found.get(UNANSWERED)
    if reasons is not None and not isinstance(reasons, list | tuple):
        raise FeatureError(f"{spec.extractor}: {UNANSWERED!r} is no list of a reason or None a row")
    for name, rows in found.items():
        if len(rows) != count:
            raise FeatureError(f"{spec.extractor} gave {len(rows)} rows of {name!r} for {count}")
    return found


def _require_kind(what: str, kind: str, rows: Any) -> None:
    if kind == "record":
        fits, expected = isinstance(rows, list), "a list"
    elif isinstance(rows, Ragged):
        fits, expected = True, ""
    else:
        least = 2 if kind == "vector" else 1
        fits = isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub"
        fits = fits and (rows.ndim >= least if kind == "vector" else rows.ndim == 1)
        expected = "an array of numbers " + ("(n, d)" if kind == "vector" else "(n,)")
    if not fits:
        shape = f" of shape {rows.shape}" if hasattr(rows, "shape") else ""
        raise FeatureError(f"{what} is a {type(rows).__name__}{shape}; expected {expected}")


def plain_records(spec: ExtractorSpec, features: Features) -> tuple[Features, dict[int, str]]:
    """Turn records into plain JSON values, NumPy's numbers and arrays among them.

    Returns:
        The features, and by position why a record cannot be kept: JSON has no such value.
    """
    clean: dict[str, Rows] = dict(features)
    wrong: dict[int, str] = {}
    for name in (name for name, kind in spec.outputs.items() if kind == "record"):
        rows: list[Any] = []
        for i, row in enumerate(features[name]):
            try:
                rows.append(plain_json(row))
            except ValueError as error:
                wrong.setdefault(i, f"{spec.extractor} gave {error} in {name!r}, no JSON value")
                rows.append(None)
        clean[name] = rows
    return clean, wrong


def plain_json(value: Any, depth: int = 0) -> Any:
    """Copy as dicts, lists, texts, finite numbers, true, false and None.

    Raises:
        ValueError: Something else; says what.
    """
    if value is None or type(value) in (str, bool):
        return value
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} levels")
    if isinstance(value, np.ndarray | np.generic):
        return plain_json(value.tolist(), depth)
    if isinstance(value, Mapping):
        return {str(key): plain_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item, depth + 1) for item in value]
    if isinstance(value, int) and abs(value) < _LARGEST:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise ValueError(shown(value))


_DEEPEST = 64
_LARGEST = 10**300


def split(features: Features) -> tuple[Features, Sequence[str | None]]:
    """Part the outputs from the reasons of rows that have no answer."""
    reasons = features.get(UNANSWERED, ())
    return {n: rows for n, rows in features.items() if n != UNANSWERED}, list(reasons)
