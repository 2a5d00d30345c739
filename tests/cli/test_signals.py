"""A signal ends the command wherever it meets it.

Retold here: Ctrl-C met a destructor, Python wrote "Exception ignored", and the run ended with 0.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time

import pytest

from genmetrics.cli import main as command
from genmetrics.cli.signals import Ending


class Unlucky:
    """Meets a signal in its destructor."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
@pytest.mark.parametrize("meet", [signal.raise_signal, Unlucky])
def test_a_signal_unwinds_the_block_and_leaves_the_handlers_as_they_were(number, error, meet):
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    hook = sys.unraisablehook
    ending = Ending()
    with pytest.raises(error), ending:
        meet(number)
        time.sleep(10)
    assert ending.number == number
    after = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    assert after == before
    assert sys.unraisablehook is hook


def test_other_errors_of_destructors_are_reported_as_ever(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: told.append(lost.exc_type))

    class Broken:
        def __del__(self) -> None:
            raise ValueError

    with Ending() as ending:
        Broken()
    assert told == [ValueError]
    assert ending.number == 0


def test_an_interrupt_that_was_dropped_in_silence_is_the_exit_code(monkeypatch, capsys):
    def drop(**_: object) -> int:
        with contextlib.suppress(KeyboardInterrupt):  # as C code does that clears an error
            signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr(command.typer.main, "get_command", lambda _: Stub(drop))
    assert command.main([]) == 130
    assert capsys.readouterr().err == "genmetrics: interrupted\n"


class Stub:
    """A parser that does one thing."""

    def __init__(self, main) -> None:
        self.main = main


def test_who_was_told_to_ignore_interrupts_does():
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from genmetrics.cli.signals import Ending\n"
        "with Ending(): signal.raise_signal(signal.SIGINT)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
