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


class OutOfMemoryError(UsageError):
    """A device's memory does not hold what has to be computed at once."""


class ModelError(GenmetricsError):
    """A model, or the code around it, raised for a sample; names the sample and the cause."""


class WeightsError(GenmetricsError):
    """Weights are missing, damaged or unreachable."""


class RankError(GenmetricsError):
    """Another rank of the run ended without a reason of its own: killed, or by a fault."""


class PluginWarning(UserWarning):
    """Another package's metrics cannot be loaded; everything else works."""


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
    """Return ``" (did you mean 'x'?)"`` for the closest known name, or an empty string.

    Examples:
        >>> did_you_mean("fdi", ["fid", "is"]), did_you_mean("lpips", ["fid", "is"])
        (" (did you mean 'fid'?)", '')
    """
    close = difflib.get_close_matches(wrong.lower(), list(known), n=5, cutoff=0.5)
    likely = [name for name in close if _slip(wrong.lower().strip("-"), name.lower().strip("-"))]
    return f" (did you mean {likely[0]!r}?)" if likely else ""


def _slip(wrong: str, name: str) -> bool:
    """Tell whether somebody who wrote one may have meant the other.

    Other letters in an abbreviation make another one (``fvd`` is no ``fid``), and few common
    letters mean little where words do not even begin alike.
    """
    shorter, longer = sorted((wrong, name), key=len)
    if len(shorter) >= 4 and shorter in longer:
        return True
    if len(shorter) == len(longer) <= 3:
        return sorted(wrong) == sorted(name)
    ratio = difflib.SequenceMatcher(None, wrong, name).ratio()
    return ratio >= (0.65 if wrong[:1] == name[:1] else 0.75)


def shown(value: object, most: int = 60) -> str:
    """Write a value, or what another program said, into one line; dots where it was cut.

    Args:
        value: Text as it is, anything else by its ``repr``.
        most: Most characters, the dots included.

    Examples:
        >>> shown("a sentence that goes on", 18), shown("short"), shown(["a"])
        ('a sentence ...', 'short', "['a']")
    """
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    if len(text) <= most:
        return text
    kept = text[: most - 4].rstrip(" ,;:")
    if text[len(kept)] != " " and " " in kept[most // 2 :]:  # not within a word
        kept = kept.rpartition(" ")[0].rstrip(" ,;:")
    return f"{kept} ..."


def one_line(error: BaseException) -> str:
    """Return what an exception says, in one line; its name where it says nothing.

    Examples:
        >>> one_line(FileNotFoundError(2, "No such file")), one_line(KeyError())
        ('No such file', 'KeyError')
    """
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return shown(said, 200) or type(error).__name__


def grouped(pairs: Iterable[tuple[str, str]], most: int = 10) -> str:
    """Join what is wrong with whom; a reason that many share is said once.

    Args:
        pairs: Who (a path or an id) and the reason, which may hold the name.
        most: Most reasons, and most names of each, that are written out.

    Examples:
        >>> grouped([("a.png", "a.png is empty"), ("b.png", "b.png is empty"), ("c", "no prompt")])
        'a.png is empty (the same for b.png); c: no prompt'
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, reason in pairs:
        key = reason.replace(name, "\0") if _says(reason, name) else reason
        groups.setdefault(key, []).append((name, reason))
    texts = [_group(members, most) for members in groups.values()]
    left = sum(map(len, list(groups.values())[most:]))
    return "; ".join([*texts[:most], *([f"and {left} more"] if left else [])])


def _says(reason: str, name: str) -> bool:
    """Tell whether a reason holds the name; a number may stand there without being it."""
    return name in reason and not name.isdecimal()


def _group(members: list[tuple[str, str]], most: int) -> str:
    (first, reason), *others = members
    text = reason if _says(reason, first) else f"{first}: {reason}"
    if not others:
        return text
    named = [name for name, _ in others[: most - 1]]
    left = len(others) - len(named)
    listed = ", ".join(named) + (f" and {left} more" if left else "")
    return f"{text} (the same for {listed})"
