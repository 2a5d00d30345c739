"""Ranks agree before they work: on the arguments, on the models, on the files.

Each rank reads its own arguments, weights and pictures. What differs between machines, such as a
stale copy of a folder, would otherwise end in a number that belongs to neither.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genmetrics.core.errors import InputError, UsageError
from genmetrics.core.metric import Metric
from genmetrics.core.sample import Sample
from genmetrics.run.ranks import Ranks
from genmetrics.samples.check import file_sizes


def same_arguments(ranks: Ranks, **given: object) -> None:
    """Refuse ranks that were asked for something else.

    Raises:
        UsageError: Names the rank, the argument and both values.
    """
    mine = {name: str(value) for name, value in given.items()}
    for rank, name, other in _unlike(mine, ranks):
        raise UsageError(
            f"rank {rank} was given {name} {other}, rank {ranks.rank} {mine[name]}; give all ranks"
            " the same arguments"
        )


def same_models(metrics: Mapping[str, Metric], ranks: Ranks) -> None:
    """Refuse ranks that would compute other features: other weights on another machine.

    Raises:
        UsageError: Names the rank, the metric and the field that differs.
    """
    same_arguments(ranks, metrics=", ".join(metrics))
    for name, metric in metrics.items():
        for role, spec in metric.extractors.items():
            fields = spec.to_dict()
            for rank, key, other in _unlike(fields, ranks):
                raise UsageError(
                    f"rank {rank} would compute {name} ({role}) with {key} {other!r}, rank"
                    f" {ranks.rank} with {fields[key]!r}; give all ranks the same files"
                )


def _unlike(mine: Mapping[str, Any], ranks: Ranks) -> list[tuple[int, str, Any]]:
    """Return which rank has something else under which name, and what."""
    return [
        (rank, name, other.get(name))
        for rank, other in enumerate(ranks.gather(mine))
        for name in mine
        if other.get(name) != mine[name]
    ]


def same_files(samples: Sequence[Sample], ranks: Ranks) -> None:
    """Refuse ranks that find other files under the names that the main rank listed.

    Only ranks on another machine, or in another folder, look; they compare sizes, because hashing
    everything everywhere would read everything everywhere.

    Raises:
        InputError: Names the machine and the first file that is missing or has another size there.
    """
    places = ranks.gather((socket.gethostname(), str(Path.cwd())))
    if len(set(places)) == 1:
        return
    first = places.index(places[ranks.rank]) == ranks.rank  # one rank of each place looks
    found = ranks.gather_to_main(file_sizes(samples) if first else {})
    wrong = ranks.share(lambda: _unlike_files(found, places))
    if wrong is not None:
        raise InputError(wrong)


def _unlike_files(
    found: Sequence[Mapping[str, int | None]], places: Sequence[tuple[str, str]]
) -> str | None:
    """Say which file differs on which machine; the main rank compares for all."""
    for file, size in found[0].items():
        for rank, sizes in enumerate(found):
            if sizes and sizes[file] != size:
                what = "is missing" if sizes[file] is None else f"has {sizes[file]} bytes"
                return (
                    f"{file} {what} on rank {rank} ({places[rank][0]}) and has {size} bytes on rank"
                    f" 0 ({places[0][0]}); all machines must see the same files under one path"
                )
    return None
