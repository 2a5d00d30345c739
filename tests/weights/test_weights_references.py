"""clean-fid's published statistics: named, found and fetched, against a server on this machine."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from genmetrics import weights
from genmetrics.core.errors import WeightsError
from genmetrics.weights import references

from .local_weights import Page, Server

NAME = "clean-fid:ffhq-256-trainval70k"
FILE = "ffhq_clean_trainval70k_256.npz"


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, mu=np.zeros(3), sigma=np.eye(3))
    return buffer.getvalue()


@pytest.fixture
def mirror(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Let the server of these tests stand for the address that clean-fid knows."""
    place = references._place

    def local(reference: references.Reference) -> tuple[str, str]:
        folder, url = place(reference)
        return folder, f"{server.url}/{url.rpartition('/')[2]}"

    monkeypatch.setattr(references, "_place", local)
    return server


def test_names_folder_and_address_are_those_of_the_package() -> None:
    """Each name of the table, under clean-fid's own rule for file names."""
    import cleanfid

    for name in references.PUBLISHED:
        for protocol in references.protocols_of(name):
            entry = references.reference_entry(references.Reference(name, protocol, 1).id)
            assert entry.folders == (str(Path(cleanfid.__file__).parent / "stats"),)
            assert entry.urls[0].startswith("https://www.cs.cmu.edu/~clean-fid/stats/")
            assert references.MODES[protocol] in entry.file_names[0]
    tf1 = references.reference_entry("clean-fid:LSUN_church-256-train@tf1")
    assert tf1.file_names == ("lsun_church_legacy_tensorflow_train_256.npz",)
    kid = references.reference_entry("clean-fid:brecahad-512-train-kid")
    assert kid.file_names == ("brecahad_clean_train_512_kid.npz",)


def test_fetched_once_and_whole_into_the_weights_directory(mirror: Server, store: Path) -> None:
    mirror.pages[f"/{FILE}"] = Page(npz())
    path = weights.fetch(NAME)
    assert path == store / FILE
    assert path.read_bytes() == npz()
    assert weights.fetch(NAME) == weights.require(NAME) == path
    assert mirror.hits == [f"GET /{FILE}"]
    assert weights.verify(NAME).status == "unpinned"


def test_what_changed_since_it_was_fetched_is_damaged(mirror: Server, store: Path) -> None:
    mirror.pages[f"/{FILE}"] = Page(npz())
    path = weights.fetch(NAME)
    path.write_bytes(npz()[:-1])
    with pytest.raises(WeightsError, match=f"is damaged.*weights fetch {NAME}`"):
        weights.require(NAME)


@pytest.mark.parametrize(
    "page", [Page(b"<html>moved</html>"), Page(npz(), send=100), Page(b"", 404)]
)
def test_a_page_or_half_a_file_never_takes_the_name(
    page: Page, mirror: Server, store: Path
) -> None:
    mirror.pages[f"/{FILE}"] = page
    with pytest.raises(WeightsError, match="cannot fetch 'clean-fid:ffhq") as caught:
        weights.fetch(NAME)
    assert str(store / FILE) in str(caught.value)
    assert not (store / FILE).exists()


def test_the_offline_switch_forbids_it(mirror: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENMETRICS_OFFLINE", "1")
    with pytest.raises(WeightsError, match="GENMETRICS_OFFLINE=1 forbids downloads"):
        weights.fetch(NAME)
    assert mirror.hits == []


def test_another_clean_fid_that_looks_elsewhere_is_refused(
    monkeypatch: pytest.MonkeyPatch, no_sockets: None
) -> None:
    """A later version may download by other means; here it can reach none."""
    from cleanfid import features

    def changed(name: str, res: str, mode: str = "clean", split: str = "", metric: str = "") -> str:
        return requests.get(f"https://elsewhere.example/{name}")  # noqa: F821

    monkeypatch.setattr(features, "get_reference_statistics", changed)
    with pytest.raises(WeightsError, match="is not the clean-fid that genmetrics knows"):
        weights.require(NAME)
