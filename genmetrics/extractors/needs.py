"""Which weights extractors need, all that are missing at once, and which were replaced."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from genmetrics.core.errors import WeightsError
from genmetrics.core.extractor import ExtractorSpec


def weights_of(spec: ExtractorSpec) -> str | None:
    """Return what ``genmetrics weights fetch`` takes for an extractor.

    None for one without weights, and for files of the user's own.
    """
    own = getattr(spec, "path", None)
    name: str | None = getattr(spec, "source", None) or getattr(spec, "weights", None)
    if name is None or own is not None or Path(name).expanduser().exists():
        return None
    return name


def check_all(specs: Iterable[ExtractorSpec]) -> None:
    """Check every extractor, so that one error names all weights that are missing or damaged.

    Raises:
        WeightsError: One line, with one command that fetches them all.
        GenmetricsError: Whatever else :meth:`ExtractorSpec.check` finds, the first of it.
    """
    faults: dict[str, WeightsError] = {}
    names: dict[str, None] = {}
    for spec in specs:
        try:
            spec.check()
        except WeightsError as fault:
            faults.setdefault(str(fault), fault)
            name = weights_of(spec)
            names |= {} if name is None else {name: None}
    if len(faults) == 1:
        raise next(iter(faults.values()))
    if faults:
        fetch = f": run `genmetrics weights fetch {' '.join(names)}`" if names else ""
        raise WeightsError(
            f"{len(faults)} models lack weights{fetch}; one by one: {'; '.join(faults)}"
        )


def replacement(spec: ExtractorSpec) -> str | None:
    """Say that an extractor runs on other weights than the manifest's, and on which.

    None where it runs on the manifest's, wherever they lie, or the manifest has none of that name.
    """
    from genmetrics.weights import entries, locate

    name = getattr(spec, "weights", None)
    given = getattr(spec, "path", None) or getattr(spec, "source", None)
    if name not in entries() or given in (None, name):
        return None
    sha256: str = getattr(spec, "sha256", "")
    published = locate(name).sha256
    if published and sha256.startswith(published):
        return None
    return f"weights {name} are not the published ones: {given} (sha256 {sha256[:16] or 'unknown'})"
