"""Reference statistics that other tools publish, under the protocol that made them."""

from __future__ import annotations

import os

from genmetrics.core.errors import InputError
from genmetrics.extractors.inception import InceptionSpec
from genmetrics.samples.statistics import (
    Statistics,
    StatisticsEntry,
    digest_of,
    read_features,
    read_moments,
)

_OUTPUT, _WIDTH = "2048", 2048
_REMEDY = (
    "use it with the published weights and metrics of its protocol (`genmetrics weights list"
    " --references`)"
)


def find_reference(text: str | os.PathLike[str]) -> Statistics | None:
    """Read the reference that a name such as ``clean-fid:ffhq-256-trainval70k@tf1`` stands for.

    It serves metrics on the published Inception weights under that preprocessing; a run on other
    weights is refused like one with any other statistics file.

    Args:
        text: What the user gave as the reference.

    Returns:
        None for anything that is no such name: a path.

    Raises:
        UsageError: A name that clean-fid does not publish.
        WeightsError: The file is not here; the line says how to fetch it.
        InputError: The file is damaged, or holds other arrays.
    """
    from genmetrics.weights import require
    from genmetrics.weights.references import PREFIX, parse_reference

    if not os.fspath(text).startswith(PREFIX):
        return None
    reference = parse_reference(os.fspath(text))
    path = require(reference.id)
    arrays = (read_features if reference.holds_features else read_moments)(path, _OUTPUT)
    wide = {array.shape[-1] for array in arrays.values()}
    if wide != {_WIDTH}:
        raise InputError(f"{path} has {wide.pop()} features, Inception {_WIDTH}; fetch it again")
    spec = InceptionSpec.create(reference.protocol)
    entry = StatisticsEntry(spec.to_dict(), reference.n, arrays, reference.id)
    return Statistics((entry,), reference.id, digest_of(path), _REMEDY)
