"""A machine of its own for every test: empty caches, a local web server, a manifest to write."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .local_weights import PAYLOAD, SHA256, Server

FOREIGN = (
    "GENMETRICS_WEIGHTS",
    "GENMETRICS_MANIFEST",
    "GENMETRICS_OFFLINE",
    "HF_HUB_OFFLINE",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_ENDPOINT",
    "HF_TOKEN",
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
)
"""Variables of the machine that runs the tests."""


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("GENMETRICS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    # The client reads its switch once, when it is first imported, which may be before this test.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where weights lie in these tests."""
    folder = tmp_path / "home" / "weights"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write a manifest with one file, ``net``, at the given addresses."""

    def write(*urls: str, sha256: str = SHA256, size: int = len(PAYLOAD), more: str = "") -> None:
        path = tmp_path / "manifest.toml"
        path.write_text(
            '[[weights]]\nid = "net"\nkind = "file"\nused_for = "tests"\nlicence = "CC0-1.0"\n'
            f'urls = {list(urls)!r}\nsha256 = "{sha256}"\nbytes = {size}\n{more}'
        )
        monkeypatch.setenv("GENMETRICS_MANIFEST", str(path))

    return write


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a connection was opened: {args} {kwargs}")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
