"""Ctrl-C and SIGTERM end the command, wherever they meet it."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn, Self

_SOON = 0.01  # seconds after which an ending that was lost is tried again


class Ending:
    """Lets a signal unwind the block as an exit does, so that temporary folders are removed.

    Python raises an exception in whatever runs just then. In a destructor or a weak reference's
    callback, of which imports have many, it is reported, dropped, and the program goes on. So it
    is raised again a moment later; and where C code drops it in silence, :attr:`number` still says
    that the block should have ended.
    """

    def __init__(self) -> None:
        self.number = 0
        """The signal that came, or 0."""
        self._before: dict[int, Any] = {}
        self._report = sys.unraisablehook

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._replace(signal.SIGTERM, self._begin)
            # whoever starts a command in the background may have it ignore Ctrl-C
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._replace(signal.SIGINT, self._begin)
            if hasattr(signal, "SIGALRM"):  # not on Windows
                self._replace(signal.SIGALRM, self._end)
                self._report, sys.unraisablehook = sys.unraisablehook, self._try_again
        return self

    def __exit__(self, *error: object) -> None:
        if sys.unraisablehook == self._try_again:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = self._report
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _replace(self, number: int, handler: Any) -> None:
        self._before[number] = signal.signal(number, handler)

    def _begin(self, number: int, frame: FrameType | None) -> NoReturn:
        self.number = number
        self._end(number, frame)

    def _end(self, number: int, frame: FrameType | None) -> NoReturn:
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self.number)

    def _try_again(self, lost: sys.UnraisableHookArgs) -> None:
        if self.number and isinstance(lost.exc_value, KeyboardInterrupt | SystemExit):
            signal.setitimer(signal.ITIMER_REAL, _SOON)
        else:
            self._report(lost)
