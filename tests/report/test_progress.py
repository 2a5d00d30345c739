import io
import sys

import pytest

from genmetrics.report.progress import Bar, Lines, clock_time, on_stderr
from genmetrics.run.progress import Silent


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_lines_at_the_start_every_ten_seconds_and_at_the_end():
    file, clock = io.StringIO(), Clock()
    progress = Lines(file, clock)
    progress.begin("images", 1000, 234)
    for _ in range(10):
        clock.now += 4
        progress.advance(100)
    progress.end()
    assert file.getvalue().splitlines() == [
        "genmetrics: images: 1,000 to do, 234 from cache",
        "genmetrics: images: 300 of 1,000, 25.0/s, 0:28 left",
        "genmetrics: images: 600 of 1,000, 25.0/s, 0:16 left",
        "genmetrics: images: 900 of 1,000, 25.0/s, 0:04 left",
        "genmetrics: images: 1,000 done in 40.0 s, 25.0/s",
    ]


def test_stage_that_needs_no_work_takes_one_line():
    file = io.StringIO()
    progress = Lines(file, Clock())
    progress.begin("texts", 0, 50)
    progress.end()
    assert file.getvalue() == "genmetrics: texts: 0 to do, 50 from cache\n"


def test_stages_are_counted_apart():
    file, clock = io.StringIO(), Clock()
    progress = Lines(file, clock)
    for _ in range(2):
        progress.begin("images", 10, 0)
        clock.now += 2
        progress.advance(10)
        progress.end()
    assert file.getvalue().count("images: 10 done in 2.0 s, 5.0/s") == 2


def test_lines_go_to_the_stderr_of_the_moment(capsys):
    Lines().begin("images", 3, 0)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "genmetrics: images: 3 to do\n"


def test_bar_writes_to_stderr_only(capsys):
    bar = Bar()
    bar.begin("images", 64, 7)
    bar.advance(32)
    bar.advance(32)
    bar.end()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "64/64" in captured.err
    assert "7 from cache" in captured.err


def test_bar_that_never_began_can_end(capsys):
    bar = Bar()
    bar.advance(1)
    bar.end()
    assert capsys.readouterr().err == ""


def test_choice_follows_stderr(monkeypatch):
    assert isinstance(on_stderr(quiet=True), Silent)
    assert isinstance(on_stderr(), Lines)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(on_stderr(), Bar)


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (83, "1:23"), (3723, "1:02:03")])
def test_clock_time(seconds, text):
    assert clock_time(seconds) == text
