"""One set of several files: patterns, wildcards, folders of shards, addresses."""

from __future__ import annotations

import pytest
from braceexpand import braceexpand
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, UsageError
from genmetrics.samples.bundles import _expand_braces, bundle_files, find_bundle
from genmetrics.samples.sources import read_samples
from tests.samples.test_media import FILES, write_tar

PATTERNS = [
    "shard-{000000..000012}.tar",
    "{0..11}.tar",
    "{08..11}.tar",
    "{3..1}.tar",
    "{train,val}/{0..2}.tar",
    "{a}.tar",
    "plain.tar",
    "{7..7}.tar",
    "{0..05}.tar",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_braces_expand_as_in_the_webdataset_package(pattern):
    assert _expand_braces(pattern) == list(braceexpand(pattern))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 5), st.integers(1, 5))
def test_ranges_expand_as_in_the_webdataset_package(first, last, width, other):
    pattern = f"s-{{{first:0{width}d}..{last:0{other}d}}}.tar"
    assert _expand_braces(pattern) == list(braceexpand(pattern))


@pytest.mark.parametrize("pattern", ["{0..999999999999}.tar", "{0..999}{0..999}.tar"])
def test_absurd_patterns_are_refused_before_they_fill_the_memory(pattern, tmp_path):
    with pytest.raises(InputError, match=r"stands for \d+ files, at most 100000"):
        read_samples(tmp_path / pattern)


def shards(folder):
    folder.mkdir()
    names = list(FILES)
    return [write_tar(folder / f"s-{i:02d}.tar", "w", {n: FILES[n]}) for i, n in enumerate(names)]


def test_a_pattern_a_wildcard_and_a_folder_are_the_same_set(tmp_path):
    paths = shards(tmp_path / "set")
    expected = read_samples(tmp_path / "set")
    assert [s.id for s in expected] == ["0", "1", "2", "3"]
    assert expected[2].path == f"{paths[2]}!2.png"
    for pattern in ("s-{00..03}.tar", "s-*.tar", "*-0?.tar", "s-{00,01,02,03}.tar"):
        assert read_samples(tmp_path / "set" / pattern) == expected
    assert read_samples(tmp_path / "set", limit=2) == expected[:2]
    assert [s.id for s in read_samples(tmp_path / "set" / "s-{02..03}.tar")] == ["2", "3"]


def test_a_missing_shard_does_not_shrink_the_set(tmp_path):
    shards(tmp_path / "set")[1].unlink()
    with pytest.raises(InputError, match=r"1 files are missing: .*s-01\.tar"):
        read_samples(tmp_path / "set" / "s-{00..03}.tar")
    for pattern in ("x-{00..03}.tar", "x-*.tar", "s-{7..7}.tar"):
        with pytest.raises(InputError, match=r"are missing|no file fits it"):
            read_samples(tmp_path / "set" / pattern)


def test_names_with_the_signs_of_patterns_are_taken_as_they_are(tmp_path):
    write_tar(tmp_path / "a{0..1}[x]*.tar", "w")
    assert len(read_samples(tmp_path / "a{0..1}[x]*.tar")) == 4
    assert find_bundle(str(tmp_path)) is None


def test_images_beside_tars_win_and_other_files_do_not_matter(tmp_path):
    paths = shards(tmp_path / "set")
    (tmp_path / "set" / "README.md").write_text("four shards")
    (tmp_path / "set" / ".s-09.tar").write_bytes(b"")
    assert bundle_files(tmp_path / "set") == [str(path) for path in paths]
    (tmp_path / "set" / "x.png").write_bytes(FILES["0.png"])
    assert [s.id for s in read_samples(tmp_path / "set")] == ["x"]  # as before shards were read


def test_folders_of_several_kinds_or_splits_are_not_guessed(tmp_path):
    folder = tmp_path / "set"
    shards(folder)
    (folder / "s-00.parquet").touch()
    with pytest.raises(InputError, match=r"holds 4 tar, 1 parquet files; pass one kind as '.*tar'"):
        read_samples(folder)
    with pytest.raises(InputError, match=r"s-00\.parquet', '.*s-00\.tar'; shards are files of one"):
        read_samples(folder / "s-00.*")
    hub = tmp_path / "hub"
    hub.mkdir()
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        (hub / f"{name}.parquet").touch()
    with pytest.raises(InputError, match=r"several splits; pass one of '.*/test-\*', '.*/train-\*"):
        read_samples(hub)
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match=r"shards are files of one kind of \.tar"):
        read_samples(tmp_path / "*.txt")


@pytest.mark.parametrize(
    "address", ["https://h/x.tar", "s3://b/{0..9}.tar", "hf://datasets/a/b", "hf:/datasets/a/b"]
)
def test_addresses_are_not_fetched(address):
    with pytest.raises(InputError, match="nothing is fetched: download it and pass the path"):
        read_samples(address)


def test_fields_are_chosen_by_name_or_refused(tmp_path):
    path = write_tar(tmp_path / "a.tar", "w")
    with pytest.raises(UsageError, match=r"unknown field 'imag' \(did you mean 'image'\?\)"):
        read_samples(f"{path}:imag=png")
    with pytest.raises(UsageError, match="its key; drop id="):
        read_samples(f"{path}:id=x")
    with pytest.raises(InputError, match="does not exist"):
        read_samples(f"{tmp_path}/none.tar:image=png")
    (tmp_path / "sub").mkdir()
    with pytest.raises(UsageError, match="no fields to choose from"):
        read_samples(f"{tmp_path / 'sub'}:image=png")
    with pytest.raises(UsageError, match="names shards, not layout 'geneval'"):
        read_samples(tmp_path / "a*.tar", layout="geneval")
    with pytest.raises(UsageError, match="unknown layout"):
        read_samples(tmp_path / "a*.tar", layout="gen")
