"""Values in the experiment tracker that a training loop has open already."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from genmetrics.core.errors import ProtocolMismatchError, UsageError
from genmetrics.core.protocol import differences
from genmetrics.core.result import Result
from genmetrics.report.text import printable


def log_to(
    target: Any,
    results: Result | Mapping[str, Result],
    *,
    step: int | None = None,
    prefix: str = "",
) -> dict[str, float]:
    """Log results to a tracker; nothing is opened, started or finished here.

    ``NAME`` is ``prefix`` and the id. ``NAME`` holds the value, ``NAME/low`` and ``NAME/high`` the
    interval, ``NAME/n`` the generated samples, ``NAME/PART`` each further number. What is not a
    finite number is left out and named in a warning; it is never logged as 0.

    The protocol goes where the tracker has a place for it, so that only like is compared later:

    - TensorBoard: the text ``NAME/protocol``, fingerprint and all, at each step.
    - Weights & Biases and trackio: ``NAME/fingerprint`` and ``NAME/protocol`` in the run's config,
      and the fingerprint beside each value. (Trackio stores the config with the first thing that
      is logged; the fingerprint beside the value is stored always.)

    Ranks are the caller's: call it on one of them, or pass None on the others. An Accelerator has
    its trackers on the main process only and may be passed on all.

    Args:
        target: A TensorBoard ``SummaryWriter``; a run of wandb or trackio, or the module itself
            while a run is active; an ``accelerate.Accelerator``, for all of its trackers; anything
            else with ``log(mapping, step=...)``, which gets the numbers. None logs nothing.
        results: A Report, several results by name, or one Result.
        step: Step of the training loop. None is step 0 in TensorBoard, the next step elsewhere.
        prefix: Put before each name, such as ``"eval/"``.

    Returns:
        The numbers that were logged, by name.

    Raises:
        UsageError: ``target`` cannot be logged to, or ``results`` are no results.
        ProtocolMismatchError: The run holds values of another protocol under a name; nothing was
            logged then.

    Examples:
        >>> class Tracker:
        ...     def log(self, values, step=None):
        ...         print(step, values)
        >>> made = {"protocol": {}, "fingerprint": "sha256:...", "higher_is_better": True}
        >>> log_to(Tracker(), Result(id="psnr", value=26.5, n=8, **made), step=3, prefix="eval/")
        3 {'eval/psnr': 26.5, 'eval/psnr/n': 8}
        {'eval/psnr': 26.5, 'eval/psnr/n': 8}
    """
    named = {f"{prefix}{name}": result for name, result in _by_name(results).items()}
    found = _places(target)
    if not found:
        return {}
    values: dict[str, float] = {}
    notes = [note for name, result in named.items() for note in _collect(name, result, values)]
    logged = {name: result for name, result in named.items() if f"{name}/n" in values}
    places = []
    for place in found:
        if (past := _past(place, step)) is not None:
            notes.append(f"anything at step {step}: the wandb run is at step {past} already")
        else:
            places.append(place)
    if values:
        for place in places:  # all of them, before any gets a value
            _check(place, logged)
        for place in places:
            _send(place, values, logged, step)
    if notes:
        warnings.warn(printable(f"not logged: {'; '.join(notes)}"), stacklevel=2)
    return values if places else {}


def _by_name(results: Result | Mapping[str, Result]) -> Mapping[str, Result]:
    if isinstance(results, Result):
        return {results.id: results}
    items = results.values() if isinstance(results, Mapping) else [results]
    kinds = {type(item).__name__ for item in items if not isinstance(item, Result)}
    if kinds:
        raise UsageError(f"log_to got {', '.join(sorted(kinds))}; pass the Result of compute()")
    return results


def _collect(name: str, result: Result, values: dict[str, float]) -> Iterator[str]:
    """Add the numbers of a result to ``values``, and yield what has to stay out and why."""
    if result.value is None:
        yield f"{name} ({result.status}: {result.reason})"
        return
    for key, value in _numbers(name, result.value, result):
        if key in values:
            yield f"a second {key}"
        elif math.isfinite(value):
            values[key] = value
        else:
            yield f"{key} ({value})"


def _numbers(name: str, value: float, result: Result) -> Iterator[tuple[str, float]]:
    yield name, float(value)
    if result.interval is not None:
        yield f"{name}/low", float(result.interval.lo)
        yield f"{name}/high", float(result.interval.hi)
    yield f"{name}/n", result.n
    for part, number in result.parts.items():
        yield f"{name}/{part}", float(number)


# -- where it goes ---------------------------------------------------------------------------------


def _places(target: Any) -> list[Any]:
    """The writers and runs behind a target."""
    if target is None:
        return []
    if _package(target) != "accelerate":
        found = [target]
    else:
        found = [_inside(tracker) for tracker in getattr(target, "trackers", [target])]
    for place in found:
        if not callable(getattr(place, "log", getattr(place, "add_scalar", None))):
            raise UsageError(
                f"log_to cannot log to a {type(place).__name__}; pass an open SummaryWriter, a"
                " wandb or trackio run, an Accelerator, or an object with log(mapping, step=...)"
            )
    return found


def _inside(tracker: Any) -> Any:
    """The writer or run in a tracker of accelerate, where it takes more than numbers."""
    known = getattr(tracker, "name", None) in ("tensorboard", "wandb", "trackio")
    return tracker.tracker if known else tracker


def _package(place: Any) -> str:
    """The package an object comes from; nothing has to be imported to know it."""
    module = place.__name__ if isinstance(place, ModuleType) else type(place).__module__
    return str(module).split(".")[0]


def _has_config(place: Any) -> bool:
    return _package(place) in ("wandb", "trackio")


def _past(place: Any, step: int | None) -> int | None:
    """The step a wandb run is at, where that is later than ``step``: it would drop the values."""
    if step is None or _package(place) != "wandb":
        return None
    at = getattr(place.run if isinstance(place, ModuleType) else place, "step", None)
    return at if isinstance(at, int) and step < at else None


def _check(place: Any, results: Mapping[str, Result]) -> None:
    """Refuse a second protocol under a name whose values are meant to be compared."""
    if not _has_config(place):
        return
    for name, result in results.items():
        before = place.config.get(f"{name}/fingerprint")
        if before is not None and before != result.fingerprint:
            fields = differences(result.protocol, place.config.get(f"{name}/protocol") or {})
            raise ProtocolMismatchError(
                f"this run holds {name} of another protocol ({'; '.join(fields)});"
                " pass another prefix or start another run"
            )


def _send(
    place: Any, values: Mapping[str, float], results: Mapping[str, Result], step: int | None
) -> None:
    if hasattr(place, "add_scalar"):
        for key, value in values.items():
            place.add_scalar(key, value, step)
        # A writer cannot say what it has been told, so each step gets its text: a change shows.
        for name, result in results.items():
            place.add_text(f"{name}/protocol", _markdown(result), step)
        place.flush()  # an evaluation is too dear to wait in a queue
    elif _has_config(place):
        for name, result in results.items():
            if f"{name}/fingerprint" not in place.config:
                place.config[f"{name}/fingerprint"] = result.fingerprint
                place.config[f"{name}/protocol"] = dict(result.protocol)
        marks = {f"{name}/fingerprint": result.fingerprint for name, result in results.items()}
        place.log({**marks, **values}, step=step)
    else:
        place.log(dict(values), step=step)


def _markdown(result: Result) -> str:
    """The fingerprint, and the protocol as a block of code."""
    lines = json.dumps(dict(result.protocol), indent=2, allow_nan=False).splitlines()
    return "\n".join([f"`{result.fingerprint}`", "", *(f"    {line}" for line in lines)])
