"""Locating, requiring and verifying single files, all without a connection."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from genmetrics import weights
from genmetrics.core.errors import UsageError, WeightsError

from .local_weights import PAYLOAD, SHA256

pytestmark = pytest.mark.usefixtures("no_sockets")

URL = "https://mirror.example/a/net.pth"
OTHER = "https://second.example/net-copy.pth"


def test_a_missing_file_says_what_from_where_and_where_to_put_it(
    manifest: Callable[..., None], store: Path
) -> None:
    manifest(URL, OTHER)
    assert weights.locate("net") == ("net", SHA256, None)
    assert weights.verify("net").status == "missing"
    with pytest.raises(WeightsError) as caught:
        weights.require("net")
    message = str(caught.value)
    expected = (
        URL, OTHER, SHA256, "1,048,576 bytes", "`genmetrics weights fetch net`", store / "net.pth"
    )  # fmt: skip
    assert all(str(part) in message for part in expected)
    assert "\n" not in message


@pytest.mark.parametrize("place", ["net.pth", "net-copy.pth"])
def test_a_file_placed_by_hand_is_used(
    manifest: Callable[..., None], store: Path, place: str
) -> None:
    """Behind a firewall: a complete local directory needs no network call."""
    manifest(URL, OTHER)
    (store / place).write_bytes(PAYLOAD)
    assert weights.require("net") == store / place
    assert weights.fetch("net") == store / place
    assert weights.verify("net") == ("net", "ok", store / place, SHA256, SHA256)


def test_a_file_another_tool_left_with_torch_hub_is_used(
    manifest: Callable[..., None], tmp_path: Path
) -> None:
    manifest(URL)
    path = tmp_path / "torch" / "hub" / "checkpoints" / "net.pth"
    path.parent.mkdir(parents=True)
    path.write_bytes(PAYLOAD)
    assert weights.require("net") == path


def test_a_truncated_file_is_named_with_both_sums(
    manifest: Callable[..., None], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken download stays in the cache: named, never handed to the archive reader."""
    manifest(URL)
    path = store / "net.pth"
    path.write_bytes(PAYLOAD[:1000])
    found = hashlib.sha256(PAYLOAD[:1000]).hexdigest()
    for action in (weights.require, weights.fetch):
        with pytest.raises(WeightsError) as caught:
            monkeypatch.setenv("GENMETRICS_OFFLINE", "1")
            action("net")
        for part in (path, found, "1,000 bytes", SHA256, URL):
            assert str(part) in str(caught.value)
    assert weights.verify("net") == ("net", "damaged", path, found, SHA256)
    assert path.stat().st_size == 1000


def test_a_repaired_file_is_read_again(manifest: Callable[..., None], store: Path) -> None:
    manifest(URL)
    (store / "net.pth").write_bytes(PAYLOAD[:1000])
    assert weights.verify("net").status == "damaged"
    (store / "net.pth").write_bytes(PAYLOAD)
    assert weights.verify("net").status == "ok"


def test_eight_published_digits_are_enough_to_check(
    manifest: Callable[..., None], store: Path
) -> None:
    manifest(URL, sha256=SHA256[:8])
    (store / "net.pth").write_bytes(PAYLOAD)
    assert weights.require("net") == store / "net.pth"
    (store / "net.pth").write_bytes(b"other")
    with pytest.raises(WeightsError, match=SHA256[:8]):
        weights.require("net")


def test_an_unpinned_file_is_called_so(manifest: Callable[..., None], store: Path) -> None:
    manifest(URL, sha256="")
    (store / "net.pth").write_bytes(PAYLOAD)
    assert weights.locate("net") == ("net", SHA256, store / "net.pth")
    assert weights.verify("net") == ("net", "unpinned", store / "net.pth", SHA256, "")
    assert weights.require("net") == store / "net.pth"


def test_the_users_own_file_replaces_the_manifests(
    manifest: Callable[..., None], tmp_path: Path
) -> None:
    manifest(URL)
    mine = tmp_path / "mine.pth"
    mine.write_bytes(b"mine")
    sum_of_mine = hashlib.sha256(b"mine").hexdigest()
    for override in (mine, str(mine), {"net": mine}):
        assert weights.locate("net", override) == ("net", sum_of_mine, mine)
        assert weights.require("net", override) == mine
    assert weights.locate("net", {}).path is None
    mine.write_bytes(PAYLOAD)
    assert weights.locate("net", mine) == ("net", SHA256, mine)


def test_an_override_must_exist_and_have_a_known_id(
    manifest: Callable[..., None], tmp_path: Path
) -> None:
    manifest(URL)
    with pytest.raises(WeightsError, match=r"'net': .*gone\.pth does not exist"):
        weights.locate("net", tmp_path / "gone.pth")
    with pytest.raises(UsageError, match="'nte' are unknown.*did you mean 'net'"):
        weights.require("net", {"nte": tmp_path})


def test_a_package_that_is_not_installed(manifest: Callable[..., None]) -> None:
    manifest(
        URL,
        more='[[weights]]\nid = "boxed"\nkind = "package"\nused_for = "x"\nlicence = "MIT"\n'
        'package = "no-such-package"\nmember = "a/b.pth"\n',
    )
    for action in (weights.require, weights.fetch):
        with pytest.raises(WeightsError, match="`pip install .*no-such-package`"):
            action("boxed")


def test_directories_follow_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert weights.home() == tmp_path / "home"
    assert weights.weights_dir() == tmp_path / "home" / "weights"
    assert weights.hub_cache() == tmp_path / "hf" / "hub"
    monkeypatch.setenv("GENMETRICS_WEIGHTS", str(tmp_path / "w"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "c"))
    assert weights.weights_dir() == tmp_path / "w"
    assert weights.hub_cache() == tmp_path / "c"
    monkeypatch.delenv("GENMETRICS_HOME")
    assert weights.home() == Path.home() / ".cache" / "genmetrics"
