"""Plain archives are listed from their headers as the standard library lists them."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.samples.tar_headers import plain_members

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def archive(files, form=tarfile.PAX_FORMAT, **header) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in header.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def listed(data: bytes):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(i.name, i.offset_data, i.size) for i in tar if not i.isdir()]


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(
    files=st.lists(st.tuples(NAMES, st.binary(max_size=1200)), max_size=5),
    form=st.sampled_from(sorted(FORMATS)),
)
def test_what_is_listed_is_what_the_library_lists(files, form):
    data = archive(files, FORMATS[form])
    found = plain_members(io.BytesIO(data))
    if found is None:  # a name that needs an extended header
        assert not all(name.isascii() and len(name) < 100 for name, _ in files)
    else:
        assert [tuple(member) for member in found] == listed(data)


@settings(max_examples=150, deadline=None)
@given(at=st.integers(0, 3 * 512 - 1), value=st.integers(0, 255))
def test_a_flipped_byte_is_never_read_as_something_else(at, value):
    data = bytearray(archive([("a.png", b"x" * 300), ("b.png", b"y")]))
    before = [tuple(member) for member in plain_members(io.BytesIO(data))]
    data[at] = value
    found = plain_members(io.BytesIO(data))
    assert found is None or [tuple(member) for member in found] == before


@pytest.mark.parametrize("length", [0, 100, 512, 700, 1024, 1536])
def test_a_cut_archive_is_left_to_the_library(length):
    data = archive([("a.png", b"x" * 300)])
    whole = plain_members(io.BytesIO(data[:length]))
    assert (whole is None) == (length < 1536)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_special_files_are_left_to_the_library(kind):
    data = archive([("a.png", b"")], type=kind, linkname="b.png")
    assert plain_members(io.BytesIO(data)) is None
    assert plain_members(io.BytesIO(archive([("f", b"")], type=tarfile.DIRTYPE))) == []
