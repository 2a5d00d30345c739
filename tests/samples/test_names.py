"""Names that passed through another system still meet, and never by guess."""

from __future__ import annotations

import json
import unicodedata
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, PairingError
from genmetrics.samples.names import nfc, partners
from genmetrics.samples.sources import read_samples
from tests.samples.make import attach_masks, attach_pairs, attach_prompts, sound

C, D = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
PNG = sound()["png-RGB"]


def fill(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PNG)
    return folder


@pytest.fixture(autouse=True)
def _forms_stay_apart(tmp_path):
    """Some file systems bring names to one form themselves."""
    fill(tmp_path / "probe", f"{C}.png", f"{D}.png")
    if len(list((tmp_path / "probe").iterdir())) == 1:
        pytest.skip("this file system knows one Unicode form only")


def test_pairs_and_masks_meet_whatever_the_unicode_form(tmp_path):
    generated = read_samples(fill(tmp_path / "gen", f"{C}.png", "a.png"))
    other = fill(tmp_path / "other", f"{D}.png", "a.png")
    for attach, field in ((attach_pairs, "reference"), (attach_masks, "mask")):
        found, missing = attach(generated, other)
        assert missing == []
        names = [getattr(sample, field).name for sample in found]
        assert [sample.id for sample in found] == ["a", C]
        assert names == [str(other / "a.png"), str(other / f"{D}.png")]


def test_equal_names_come_first_and_a_second_form_is_named(tmp_path):
    both = fill(tmp_path / "both", f"{C}.png", f"{D}.png")
    generated = read_samples(both)
    found, _ = attach_pairs(generated, both)
    assert all(s.reference.name == s.image.name for s in found)
    one = fill(tmp_path / "one", f"{C}.png")
    for path, samples in ((one, generated), (both, read_samples(one))):
        with pytest.raises(PairingError, match="differ only in Unicode form") as caught:
            attach_pairs(samples, path)
        assert r"caf\xe9" in str(caught.value)  # repr alone shows the same word twice
        assert r"cafe\u0301" in str(caught.value)


def test_prompts_meet_under_ids_files_and_folders(tmp_path):
    samples = read_samples(fill(tmp_path / "gen", f"x/{D}.png", "b.png"), recursive=True)
    table = tmp_path / "p.jsonl"
    for key in (C, f"{C}.png", f"x/{C}", f"C:\\x\\{C}.png"):
        rows = [{"id": key, "prompt": "p"}, {"id": "b", "prompt": "q"}]
        table.write_text("".join(json.dumps(row) + "\n" for row in rows))
        found, _ = attach_prompts(samples, table)
        assert [s.prompt for s in found] == ["q", "p"]
    table.write_text("".join(json.dumps({"id": k, "prompt": "p"}) + "\n" for k in (C, D, "b")))
    with pytest.raises(InputError, match="a second time"):
        attach_prompts(samples, table)
    letter = ["\u1e69", "s\u0323\u0307", "s\u0307\u0323"]  # three ways to write it
    twins = read_samples(fill(tmp_path / "twins", f"{letter[0]}.png", f"{letter[1]}.png"))
    table.write_text(json.dumps({"id": letter[2], "prompt": "p"}))
    with pytest.raises(PairingError, match="1 prompt has no image.*differ only in Unicode form"):
        attach_prompts(twins, table)


def test_a_manifest_finds_files_under_the_form_and_slashes_of_another_system(tmp_path):
    fill(tmp_path, f"{D}/{D}.png", "r/a.png", f"{D}.png")
    rows = [{"file": f"{C}/{C}.png", "reference": "r\\a.png"}, {"id": C}]
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    samples = {s.id: s for s in read_samples(path)}
    assert samples[f"{C}/{C}"].path == str(tmp_path / D / f"{D}.png")
    assert samples[f"{C}/{C}"].reference.name == str(tmp_path / "r" / "a.png")
    assert samples[C].path == str(tmp_path / f"{D}.png")
    path.write_text(json.dumps({"id": f"{C}/{C}", "mask": str(tmp_path / C / f"{C}.png")}))
    (sample,) = read_samples(path)
    assert sample.path == sample.mask.name == str(tmp_path / D / f"{D}.png")
    path.write_text(json.dumps({"file": "nowhere/é.png"}))
    (sample,) = read_samples(path)
    with pytest.raises(InputError, match=r"nowhere/é\.png does not exist"):
        sample.image.load()


def test_a_manifest_s_name_of_two_files_is_refused(tmp_path):
    forms = ["\u1e69", "s\u0323\u0307", "s\u0307\u0323"]  # one letter, three ways to write it
    fill(tmp_path, f"{forms[1]}.png", f"{forms[2]}.png")
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({"file": f"{forms[0]}.png"}))
    with pytest.raises(InputError, match=r"line 1: .*differ only in Unicode form; rename one"):
        read_samples(path)
    path.write_text(json.dumps({"id": forms[0]}))
    with pytest.raises(InputError, match="all fit"):
        read_samples(path)


def test_names_in_a_zip_are_what_their_author_wrote(tmp_path):
    folder = fill(tmp_path / "gen", f"x/{C}.png", "y/b.png")
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, system in ((f"x/{C}.png", 3), ("y\\b.png", 0)):
            info = zipfile.ZipInfo(name)
            info.create_system, info.filename = system, name
            archive.writestr(info, PNG)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\0\x08\0\0", b"\0\0\0\0"))  # the flag that says UTF-8
    assert zipfile.ZipFile(path).namelist()[0] != f"x/{C}.png"
    names = [s.id for s in read_samples(folder, recursive=True)]
    assert [s.id for s in read_samples(path)] == names


NAMES = st.sets(
    st.sampled_from([C, D, "a", "\u212b", "\u00c5", "A\u030a", "K", "\u212a", "x\u0323\u0307"])
)


@settings(max_examples=200, deadline=None)
@given(NAMES, NAMES)
def test_meeting_is_one_to_one_symmetric_and_by_form_only(left, right):
    found = partners(left, right)
    assert len(set(found.values())) == len(found)
    assert {other: name for name, other in found.items()} == partners(right, left)
    assert all(nfc(name) == nfc(other) for name, other in found.items())
    assert left & right <= found.keys()
