import os
import tracemalloc

import pytest

from genmetrics.core.errors import InputError
from genmetrics.core.files import write_atomic, write_together


def pieces(*some, error=None):
    yield from some
    if error is not None:
        raise error


def test_texts_bytes_and_pieces_are_written(tmp_path):
    files = {"a": "é", "b": b"\xff", "c": pieces(b"one ", b"two"), "d": pieces()}
    write_together({tmp_path / name: content for name, content in files.items()})
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {"a": "é".encode(), "b": b"\xff", "c": b"one two", "d": b""}


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(5, "gone")])
def test_pieces_that_end_in_an_error_leave_nothing_and_change_nothing(tmp_path, error):
    write_atomic(tmp_path / "a", "old")
    files = {tmp_path / "a": "new", tmp_path / "b": pieces(b"half", error=error)}
    wanted = InputError if isinstance(error, OSError) else type(error)
    with pytest.raises(wanted):
        write_together(files)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_disk_that_is_full_midway_names_the_file(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="b cannot be written: No space left on device"):
        write_together({tmp_path / "b": pieces(b"x")})
    assert list(tmp_path.iterdir()) == []


def test_pieces_are_never_all_in_memory(tmp_path):
    tracemalloc.start()
    write_together({tmp_path / "a": (bytes(1 << 20) for _ in range(20))})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "a").stat().st_size == 20 << 20
    assert most < 4 << 20
