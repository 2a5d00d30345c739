"""What the command line says of bad usage: ours in words and form, whatever the parser's are."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar

from genmetrics.core.errors import did_you_mean

P = TypeVar("P")


def bare_flags(parameters: P) -> P:
    """Take the name of their type, ``<bool>``, from flags in the help: they take no value."""
    for parameter in typing.cast("Iterable[Any]", parameters):
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


def explain(error: Any, argv: Sequence[str]) -> str:
    """Put the parser's complaint into one line that names the option and the value found."""
    path = error.ctx.command_path if getattr(error, "ctx", None) else "genmetrics"
    where = f"see `{path} --help`"
    if hasattr(error, "possibilities"):
        known = [name for parameter in error.ctx.command.params for name in parameter.opts]
        hint = _closest(error.option_name, known)
        return f"{path} has no option {error.option_name}{hint}; {where}"
    parameter = getattr(error, "param", None)
    given, expected = _given(parameter, argv), _expected(parameter, error)
    if given and expected:
        return f"{given}: expected {expected}; {where}"
    message = f"{given}: {error.message}" if given and error.message else error.format_message()
    return f"{message.rstrip('.')}; {where}"


def _expected(parameter: Any, error: Any) -> str | None:
    """Say what values an option takes, by the annotation of the command's function."""
    function = getattr(error.ctx.command, "callback", None) if error.ctx else None
    if parameter is None or function is None:
        return None
    hint = typing.get_type_hints(function, include_extras=True).get(parameter.name)
    kind, *extras = typing.get_args(hint) or (None,)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = next(each for each in typing.get_args(kind) if each is not type(None))
    if typing.get_origin(kind) is Literal:
        return " or ".join(str(choice) for choice in typing.get_args(kind))
    nouns: dict[Any, str] = {int: "a whole number", float: "a number"}
    if kind not in nouns:
        return None
    least = next((e.min for e in extras if getattr(e, "min", None) is not None), None)
    most = next((e.max for e in extras if getattr(e, "max", None) is not None), None)
    return nouns[kind] + _range(least, most)


def _range(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f" from {least} to {most}"
    return f" of at least {least}" if least is not None else ""


def _given(parameter: Any, argv: Sequence[str]) -> str | None:
    """Return an option as it stands on the command line, such as ``--limit 'many'``."""
    names = () if parameter is None else parameter.opts
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, separator, value = word.partition("=")
        if name in names:
            return f"{name} {(value if separator else following)!r}"
    return None


def _closest(wrong: str, known: Iterable[str]) -> str:
    """Suggest an option; one that is a beginning of the other comes first (--output, --out)."""
    names = [name for name in known if name.startswith("--")]
    begins = [n for n in names if wrong.startswith(n) or (len(wrong) > 3 and n.startswith(wrong))]
    return did_you_mean(begins[0], begins) if begins else did_you_mean(wrong, names)
