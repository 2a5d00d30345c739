"""Data to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from genmetrics.core.errors import InputError
from genmetrics.report.text import printable

if TYPE_CHECKING:
    from genmetrics.report.record import RunRecord
    from genmetrics.run.ranks import Ranks


ARGUMENTS: list[str] = []
"""What the command line of this process was given."""


def emit(text: str) -> None:
    """Write data to stdout. A reader that went away (``| head``) is no error.

    Raises:
        InputError: There is no stdout, or what it leads to is full.
    """
    if sys.stdout is None:
        raise InputError("stdout is closed, so the results cannot be printed; leave it open")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # the interpreter flushes stdout once more at its end, which must not fail either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise InputError(
                f"stdout cannot be written: {error.strerror}; free the disk"
            ) from error


def tell(text: str, *, quiet: bool = False) -> None:
    """Write one line for a human to stderr; a run outlives whoever was listening."""
    if quiet:
        return
    with contextlib.suppress(OSError):
        print(f"genmetrics: {printable(text)}", file=sys.stderr, flush=True)


def release_stderr() -> None:
    """Flush stderr at the end; what cannot be written is forgotten, not an exit code."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def tell_lines(text: str) -> None:
    """Write lines for a human to stderr as they are."""
    with contextlib.suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def only_data_on_stdout() -> Iterator[None]:
    """Send what libraries print to stderr, so that stdout holds our data and nothing else."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def world(processes: int | None, device: str) -> Iterator[Ranks]:
    """Enter the world of this process; the other ranks run the same command line."""
    from genmetrics.run import launch

    # a module in the working folder must not take the place of one that this process uses
    safe = [] if {"", str(Path.cwd())} & set(sys.path) else ["-P"]
    command = [sys.executable, *safe, "-m", "genmetrics", *ARGUMENTS]
    with launch.world(processes, device, command) as ranks, warnings.catch_warnings():
        if not ranks.main:
            warnings.simplefilter("ignore")  # rank 0 gives them
        yield ranks


def prepare_streams() -> None:
    """Make stdout and stderr fit for any text, and stderr for being closed.

    File names may hold what the streams' encoding lacks. A closed stderr becomes one that forgets.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def table(record: RunRecord, file: TextIO | None) -> str:
    """Render a run's table as it suits a stream."""
    from genmetrics.report.table import ASCII, UNICODE, WIDTH, render

    terminal = file is not None and file.isatty()
    width = shutil.get_terminal_size().columns if terminal else WIDTH
    unicode = "utf" in (getattr(file, "encoding", None) or "utf-8").lower()
    return render(
        record,
        width=max(width, 60),
        color=terminal and "NO_COLOR" not in os.environ,
        symbols=UNICODE if unicode else ASCII,
    )
