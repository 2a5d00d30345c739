"""Data to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from genmetrics.report.text import printable

if TYPE_CHECKING:
    from genmetrics.run.evaluate import Report


def emit(text: str) -> None:
    """Write data to stdout. A reader that went away (``| head``) is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # the interpreter flushes stdout once more at its end, which must not fail either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(text: str, *, quiet: bool = False) -> None:
    """Write one line for a human to stderr."""
    if not quiet:
        print(f"genmetrics: {printable(text)}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def only_data_on_stdout() -> Iterator[None]:
    """Send what libraries print to stderr, so that stdout holds our data and nothing else."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def tolerate_any_text() -> None:
    """Let stdout and stderr escape what their encoding lacks: file names may hold anything."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def table(report: Report, file: TextIO) -> str:
    """Render a report's table as it suits a stream."""
    from genmetrics.report.table import ASCII, UNICODE, WIDTH, render

    terminal = file.isatty()
    width = shutil.get_terminal_size().columns if terminal else WIDTH
    unicode = "utf" in (getattr(file, "encoding", None) or "utf-8").lower()
    return render(
        report,
        width=max(width, 60),
        color=terminal and "NO_COLOR" not in os.environ,
        symbols=UNICODE if unicode else ASCII,
    )
