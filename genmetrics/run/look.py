"""A look at every file before a model loads: headers and digests, each rank at its part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from genmetrics.core.errors import UsageError
from genmetrics.run.inputs import SampleSet
from genmetrics.run.ranks import Ranks
from genmetrics.run.work import Failure, OnError, Side, Who, describe_failures


def look_at_all(
    sets: Mapping[Side, SampleSet], on_error: OnError, workers: int, ranks: Ranks
) -> tuple[dict[Side, SampleSet], list[Failure]]:
    """Open every header and hash every file; what fails is an error, or told.

    Raises:
        UsageError: With ``on_error="fail"``, a file that cannot be read; names them all.
    """
    from genmetrics.samples.check import check_media, decode_media

    seen, reasons = _look(sets, check_media, workers, ranks)
    strict = on_error == "fail"
    if strict and any(reasons.values()):
        # the run ends here, so decode the rest too and name every bad file at once
        seen, more = _look(seen, decode_media, workers, ranks)
        reasons = {side: reasons[side] | more[side] for side in seen}
    failures = [
        Failure(Who(side, sample), reasons[side][sample.id])
        for side, found in seen.items()
        for sample in found.samples
        if sample.id in reasons[side]
    ]
    if strict and failures:
        raise UsageError(describe_failures(failures))
    return seen, failures


def compare_sizes(found: SampleSet, fields: Sequence[str], workers: int, ranks: Ranks) -> None:
    """Compare pictures' sizes with those of the images, from headers, each rank at its part.

    Raises:
        PairingError: Some differ.
    """
    from genmetrics.samples.attach import check_sizes

    part = ranks.part(len(found.samples))
    check_sizes(found.samples[part.start : part.stop], fields, workers=workers)


def _look(
    sets: Mapping[Side, SampleSet],
    look: Callable[..., dict[str, str]],
    workers: int,
    ranks: Ranks,
) -> tuple[dict[Side, SampleSet], dict[Side, dict[str, str]]]:
    """Look at every sample, each rank at its part of each set.

    Samples come back as the rank that looked at them has them, with the digests it computed.
    """
    seen: dict[Side, SampleSet] = {}
    reasons: dict[Side, dict[str, str]] = {}
    for side, found in sets.items():
        part = ranks.part(len(found.samples))
        mine = found.samples[part.start : part.stop]
        shares = ranks.gather((mine, look(mine, workers=workers)))
        seen[side] = replace(found, samples=tuple(s for samples, _ in shares for s in samples))
        reasons[side] = {id_: reason for _, some in shares for id_, reason in some.items()}
    return seen, reasons
