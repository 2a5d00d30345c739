"""Progress of a run on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from genmetrics.run.progress import Progress, Silent

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

EVERY = 10.0
"""Seconds between two plain lines."""


def on_stderr(*, quiet: bool = False) -> Progress:
    """Return what suits stderr: nothing, a bar, or lines."""
    if quiet:
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines()


class Lines:
    """A line at the start, about every ten seconds, and at the end: for logs."""

    def __init__(
        self, file: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._clock = clock
        self._what, self._total, self._done, self._reused = "", 0, 0, 0
        self._started = self._told = 0.0

    def begin(self, what: str, total: int, reused: int) -> None:
        """Say how much there is to do."""
        self._what, self._total, self._done, self._reused = what, total, 0, reused
        self._started = self._told = self._clock()
        self._say(f"{what}: {total:,} to do{from_cache(reused)}")

    def advance(self, count: int) -> None:
        """Say how far the stage is, if it is time."""
        self._done += count
        now = self._clock()
        if now - self._told >= EVERY and self._done < self._total:
            self._told = now
            rate = self._done / (now - self._started)
            left = (self._total - self._done) / rate
            self._say(
                f"{self._what}: {self._done:,} of {self._total:,}, {rate:.1f}/s,"
                f" {clock_time(left)} left"
            )

    def end(self) -> None:
        """Say how long the stage took."""
        seconds = self._clock() - self._started
        if self._done:
            rate = self._done / seconds if seconds > 0 else float("inf")
            self._say(f"{self._what}: {self._done:,} done in {seconds:.1f} s, {rate:.1f}/s")

    def _say(self, text: str) -> None:
        # looked up late: whoever captures stderr does so after this object was made
        with contextlib.suppress(OSError):  # a run outlives whoever was listening
            print(f"genmetrics: {text}", file=self._file or sys.stderr, flush=True)


class Bar:
    """A live bar with rate and remaining time, which stays behind when the stage is over."""

    def __init__(self) -> None:
        self._progress: RichProgress | None = None
        self._task: TaskID | None = None

    def begin(self, what: str, total: int, reused: int) -> None:
        """Show the bar."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self._progress = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[cache]}", style="dim"),
            console=Console(stderr=True),
            # what libraries print belongs where they print it, --json needs a clean stdout
            redirect_stdout=False,
        )
        self._task = self._progress.add_task(
            what, total=total, rate="", cache=from_cache(reused).removeprefix(", ")
        )
        self._progress.start()

    def advance(self, count: int) -> None:
        """Move the bar."""
        if self._progress is None or self._task is None:
            return
        self._progress.update(self._task, advance=count)
        speed = self._progress.tasks[0].finished_speed or self._progress.tasks[0].speed
        if speed:
            self._progress.update(self._task, rate=f"{speed:.1f}/s")

    def end(self) -> None:
        """Leave the bar as it is and give the terminal back."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def from_cache(reused: int) -> str:
    """Say how many need no work."""
    return f", {reused:,} from cache" if reused else ""


def clock_time(seconds: float) -> str:
    """Format a duration as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
