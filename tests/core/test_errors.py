"""The words of errors: whole sentences, sensible suggestions, nothing said twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import UsageError, did_you_mean, grouped, shown
from genmetrics.core.files import require_local

METRICS = [
    "authpct",
    "clipscore",
    "cmmd",
    "fid",
    "fd-clip",
    "fd-lite",
    "geneval",
    "is",
    "kid",
    "prdc",
    "psnr",
    "ssim",
    "vendi",
]


@pytest.mark.parametrize("name", ["lpips", "fvd", "hps", "dists", "gs", "pickscore", "fad", "x"])
def test_another_metric_is_no_slip_of_ours(name):
    assert did_you_mean(name, METRICS) == ""


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("fdi", "fid"), ("FID", "fid"), ("pnsr", "psnr"), ("snr", "psnr"), ("clip", "fd-clip")],
)
def test_a_slip_finds_its_name(wrong, right):
    assert did_you_mean(wrong, METRICS) == f" (did you mean {right!r}?)"


def test_a_long_value_is_cut_between_words_and_shows_that_it_was():
    assert shown("the file could not be read because of its header", 30).endswith(" ...")
    assert shown("a\nb") == "a b"
    assert shown({"a": 1}) == "{'a': 1}"


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200), st.integers(10, 80))
def test_no_text_is_longer_than_asked_and_short_ones_stay_whole(text, most):
    line = " ".join(text.split())
    cut = shown(text, most)
    assert len(cut) <= most
    assert cut == line if len(line) <= most else cut.endswith(" ...")


def test_a_reason_that_96_share_is_said_once():
    pairs = [(f"row{i}", "holds a path and no bytes; store the images") for i in range(96)]
    text = grouped(pairs)
    assert text.count("holds a path") == 1
    assert text.startswith("row0: holds a path and no bytes; store the images (the same for row1, ")
    assert text.endswith("row9 and 86 more)")


def test_reasons_that_differ_in_the_name_alone_are_one():
    pairs = [(f"{c}.png", f"gen/{c}.png is empty (0 bytes)") for c in "abc"]
    assert grouped(pairs) == "gen/a.png is empty (0 bytes) (the same for b.png, c.png)"
    assert grouped([("1", "is 1 wide"), ("2", "is 2 wide")]) == "1: is 1 wide; 2: is 2 wide"


def test_many_reasons_are_counted():
    assert grouped([(f"{i}", f"fault {i * 7}") for i in range(12)]).endswith("; and 2 more")
    assert grouped([]) == ""


@pytest.mark.parametrize("text", ["https://a.b/c", "https:/a.b/c", "s3://bucket/key", "hf://x"])
def test_an_address_is_shown_as_it_was_written(text):
    with pytest.raises(UsageError, match="--ref [a-z0-9]+://[a-z].* is an address.*download it"):
        require_local("--ref", text)


@pytest.mark.parametrize("text", ["a/b", "C:/images", "set.parquet:image=x", "/abs", ""])
def test_paths_are_no_addresses(text):
    require_local("--ref", text)
