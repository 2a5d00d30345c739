"""Options that several sub-commands share, and how their texts are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from genmetrics.core.errors import UsageError
from genmetrics.core.files import require_local
from genmetrics.run.inputs import NAME

OnError = Literal["fail", "skip"]

_NAMED = re.compile(f"{NAME.pattern}=", re.ASCII)

INPUTS, METRICS, RUN, OUTPUT = "Inputs", "Metrics", "How to run", "Output"
"""Panels of the help."""

MetricIds = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--metrics",
        metavar="ID[:key=value,...]",
        help="Metric ids, by comma or repeated. See `genmetrics list`.",
        rich_help_panel=METRICS,
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weights",
        metavar="ID=PATH",
        help="Local file that replaces a weight file. Repeatable.",
        rich_help_panel=METRICS,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device", metavar="NAME", help="auto, cpu, cuda or cuda:N.", rich_help_panel=RUN
    ),
]
Precision = Annotated[
    Literal["fp32", "tf32", "bf16"],
    typer.Option(
        "--precision",
        help="How networks compute; other than fp32 is faster and enters the protocol.",
        rich_help_panel=RUN,
    ),
]
Compile = Annotated[
    bool,
    typer.Option(
        "--compile",
        help="Compile networks (half a minute each); enters the protocol.",
        rich_help_panel=RUN,
    ),
]
Decode = Annotated[
    Literal["pil", "nvjpeg"],
    typer.Option(
        "--decode",
        help="Who decodes plain JPEGs; nvjpeg needs a CUDA device and enters the protocol.",
        rich_help_panel=RUN,
    ),
]
BatchSize = Annotated[
    str,
    typer.Option(
        "--batch-size", metavar="N|auto", help="Samples a forward pass.", rich_help_panel=RUN
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        metavar="N",
        help="Decoding threads; one a core by default.",
        rich_help_panel=RUN,
    ),
]
QueueMb = Annotated[
    int,
    typer.Option(
        "--queue-mb",
        min=1,
        metavar="N",
        help="Most MiB of prepared images that wait for the models.",
        rich_help_panel=RUN,
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        metavar="N",
        help="Share the work among N processes of this machine; see the guide for several.",
        rich_help_panel=RUN,
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option("--cache", metavar="DIR", help="Feature cache.", rich_help_panel=RUN),
]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", help="Keep no features after the run.", rich_help_panel=RUN),
]
Recursive = Annotated[
    bool, typer.Option("--recursive", help="Read sub-folders too.", rich_help_panel=INPUTS)
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=1,
        metavar="N",
        help="Use the first N images of each set.",
        rich_help_panel=INPUTS,
    ),
]
OnErrorOption = Annotated[
    OnError,
    typer.Option(
        "--on-error",
        help="Stop at unusable files, or leave them out and exit 1.",
        rich_help_panel=INPUTS,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "-q", "--quiet", help="No progress and no notes on stderr.", rich_help_panel=OUTPUT
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def batch_size(text: str) -> int | Literal["auto"]:
    """Read ``--batch-size``.

    Raises:
        UsageError: Neither a number of 1 or more nor ``auto``.
    """
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--batch-size {text!r} is not a number of 1 or more; pass N or auto")
    return int(text)


def weights(texts: Sequence[str] | None) -> dict[str, Path]:
    """Read ``--weights ID=PATH`` options.

    Raises:
        UsageError: One is not of that form or an address, or an id is given twice.
    """
    found: dict[str, Path] = {}
    for text in texts or ():
        name, separator, path = text.partition("=")
        if not (name and separator and path):
            raise UsageError(f"--weights {text!r} is not ID=PATH; see `genmetrics weights list`")
        if name in found:
            raise UsageError(f"--weights {name} is given twice: {found[name]} and {path}")
        require_local(f"--weights {name}", path)
        found[name] = Path(path).expanduser()
    return found


def named_sets(texts: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=DIR NAME=DIR ...``; empty for a single set without a name.

    Raises:
        UsageError: Several sets of which one has no name, a name given twice, or one that cannot be
            the name of a folder.
    """
    if len(texts) == 1 and (not _NAMED.match(texts[0]) or Path(texts[0]).exists()):
        return {}  # also `rows.parquet:image=edited`, which chooses a field of one set
    named = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not (path and _NAMED.match(text)):
            raise UsageError(
                f"{' '.join(texts)}: {text!r} has no name; of several sets give each NAME=DIR, with"
                " a name of letters, digits, dots and dashes; see `genmetrics eval --help`"
            )
        if name in named:
            raise UsageError(f"the name {name!r} is taken; give each set its own")
        named[name] = path
    return named


def pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Read ``KEY=PATH`` options.

    Raises:
        UsageError: One is not of that form, or a key is given twice.
    """
    found: dict[str, str] = {}
    for text in texts or ():
        name, separator, path = text.partition("=")
        if not (name and separator and path):
            raise UsageError(f"{option} {text!r} is not FIELD=PATH")
        if name in found:
            raise UsageError(f"{option} {name} is given twice: {found[name]} and {path}")
        found[name] = path
    return found


def cache(folder: Path | None, none: bool) -> Path | Literal[False] | None:
    """Join ``--cache`` and ``--no-cache``.

    Raises:
        UsageError: Both are given, or the folder is a file or an address.
    """
    if none and folder is not None:
        raise UsageError(f"--cache {folder} and --no-cache exclude each other; drop one")
    if folder is not None:
        require_local("--cache", folder, "pass a folder of this machine")
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UsageError(f"--cache {folder} is a file; pass a folder")
    return False if none else folder
