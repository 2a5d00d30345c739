"""The errors genmetrics raises. Each message is one line: what, where, the value found, the fix."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from numbers import Integral, Real


class GenmetricsError(Exception):
    """Base of everything genmetrics raises on purpose."""


class InputError(GenmetricsError, ValueError):
    """Something the user passed cannot be used: a file, a tensor, an option."""


class UsageError(InputError):
    """An option, metric id or combination of options that does not exist or does not fit."""


class PairingError(InputError):
    """Images that should belong together do not: a missing partner, another size."""


class TooFewSamplesError(InputError):
    """A metric needs more samples than there are."""


class ProtocolMismatchError(InputError):
    """Two numbers or statistics made by different protocols were about to be mixed."""


class FeatureError(GenmetricsError):
    """A model gave features that cannot be right: not finite, or all zero."""


class WeightsError(GenmetricsError):
    """Weights are missing, damaged or unreachable."""


class RankError(GenmetricsError):
    """Another rank of the run ended without a reason of its own: killed, or by a fault."""


class MissingExtraError(GenmetricsError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, what: str, package: str, extra: str | None = None) -> None:
        target = f'"genmetrics[{extra}]"' if extra else package
        super().__init__(f"{what} needs the package {package}: run `pip install {target}`")


def require_choice(what: str, option: str, value: object, choices: Iterable[str]) -> None:
    """Raise :class:`UsageError` unless an option of ``what`` has one of its values."""
    known = list(choices)
    if value not in known:
        raise UsageError(f"{what}: {option}={value!r} is not one of {', '.join(known)}")


def require_number(what: str, option: str, value: object, least: int, most: int = 2**32) -> None:
    """Raise :class:`UsageError` unless an option of ``what`` is a whole number in its range."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not least <= int(value) < most:  # type: ignore[call-overload]
        upper = f" and below {most}" if most == 2**32 else ""
        raise UsageError(
            f"{what}: {option}={value!r}; pass a whole number of at least {least}{upper}"
        )


def require_real(
    what: str,
    option: str,
    value: object,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> None:
    """Raise :class:`UsageError` unless an option of ``what`` is a finite number in its range."""
    bounds = {"above": above, "of at least": least, "below": below, "of at most": most}
    said = [f"{word} {edge:g}" for word, edge in bounds.items() if math.isfinite(edge)]
    # NaN is in no range
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not (math.isfinite(number) and above < number < below and least <= number <= most):
        fix = " ".join(["a finite number", " and ".join(said)]).strip()
        raise UsageError(f"{what}: {option}={value!r}; pass {fix}")


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(wrong.lower(), list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
