"""Fetching, against a web server on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from genmetrics import weights
from genmetrics.core.errors import WeightsError

from .local_weights import PAYLOAD, SHA256, Page, Server

FETCH = [sys.executable, "-c", "from genmetrics import weights; print(weights.fetch('net'))"]


def leftovers(store: Path) -> list[str]:
    return sorted(path.name for path in store.iterdir() if path.suffix != ".lock")


def test_a_dead_address_falls_through_to_the_next(
    manifest: Callable[..., None], server: Server, store: Path
) -> None:
    """A renamed repository answers 404; the second address works."""
    manifest(f"{server.url}/old/net.pth", f"{server.url}/new/net.pth")
    server.pages["/new/net.pth"] = Page(PAYLOAD)
    heard: list[tuple[int, int]] = []
    path = weights.fetch("net", progress=lambda done, total: heard.append((done, total)))
    assert path.read_bytes() == PAYLOAD
    assert heard[-1] == (len(PAYLOAD), len(PAYLOAD))
    assert server.hits == ["GET /old/net.pth", "GET /new/net.pth"]
    assert leftovers(store) == ["net.pth"]
    weights.fetch("net")
    assert len(server.hits) == 2, "what is whole is not fetched again"
    weights.fetch("net", force=True)
    assert len(server.hits) == 4


def test_when_all_addresses_fail_each_is_listed_with_its_fault(
    manifest: Callable[..., None], server: Server, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genmetrics.weights.download._TIMEOUT", 0.3)
    names = ("gone", "broken", "short", "cut", "long", "wrong", "silent")
    manifest(*(f"{server.url}/{name}.pth" for name in names), "http://127.0.0.1:9/closed.pth")
    server.pages["/broken.pth"] = Page(b"", 503)
    server.pages["/short.pth"] = Page(PAYLOAD[:100])
    server.pages["/cut.pth"] = Page(PAYLOAD, send=5000)
    server.pages["/long.pth"] = Page(PAYLOAD + b"x")
    server.pages["/wrong.pth"] = Page(PAYLOAD[::-1])
    server.pages["/silent.pth"] = Page(PAYLOAD, delay=1.0)
    with pytest.raises(WeightsError) as caught:
        weights.fetch("net")
    message = str(caught.value)
    for name, fault in {
        "gone": "404 Not Found",
        "broken": "503 Service Unavailable",
        "short": "sent 100 of 1,048,576 bytes",
        "cut": "broke off after 5,000 of 1,048,576 bytes",
        "long": "sends more than the expected 1,048,576 bytes",
        "wrong": f"sent another file: sha256 {hashlib.sha256(PAYLOAD[::-1]).hexdigest()}",
        "silent": "timed out after 0.3 s",
    }.items():
        assert f"{server.url}/{name}.pth: {fault}" in message
    assert "http://127.0.0.1:9/closed.pth: [Errno" in message
    assert f"place the file by hand at {store / 'gone.pth'} (1,048,576 bytes, sha256" in message
    assert SHA256 in message
    assert "\n" not in message
    assert leftovers(store) == []


def test_a_certificate_that_cannot_be_checked_is_said(
    manifest: Callable[..., None], server: Server, store: Path
) -> None:
    """A proxy that speaks no TLS where https is expected."""
    manifest(server.url.replace("http:", "https:") + "/net.pth")
    with pytest.raises(WeightsError, match="SSL"):
        weights.fetch("net")
    assert leftovers(store) == []


def test_a_truncated_file_in_the_cache_is_replaced(
    manifest: Callable[..., None], server: Server, store: Path
) -> None:
    manifest(f"{server.url}/net.pth")
    server.pages["/net.pth"] = Page(PAYLOAD)
    (store / "net.pth").write_bytes(PAYLOAD[:1000])
    (store / "net.pth.part").write_bytes(b"of a killed process")
    assert weights.fetch("net").read_bytes() == PAYLOAD
    assert leftovers(store) == ["net.pth"]


def test_a_broken_download_keeps_what_was_there(
    manifest: Callable[..., None], server: Server, store: Path
) -> None:
    manifest(f"{server.url}/net.pth")
    server.pages["/net.pth"] = Page(PAYLOAD, send=10)
    (store / "net.pth").write_bytes(PAYLOAD)
    with pytest.raises(WeightsError, match="broke off"):
        weights.fetch("net", force=True)
    assert (store / "net.pth").read_bytes() == PAYLOAD


def test_an_interrupt_leaves_nothing_under_the_final_name(
    manifest: Callable[..., None], server: Server, store: Path
) -> None:
    manifest(f"{server.url}/net.pth")
    server.pages["/net.pth"] = Page(PAYLOAD)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weights.fetch("net", progress=interrupt)
    assert leftovers(store) == []
    assert weights.fetch("net").read_bytes() == PAYLOAD, "the lock was given back"


def test_a_killed_process_leaves_nothing_under_the_final_name(
    manifest: Callable[..., None], server: Server, store: Path
) -> None:
    manifest(f"{server.url}/net.pth")
    server.pages["/net.pth"] = Page(PAYLOAD, delay=30)
    process = subprocess.Popen(FETCH, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (store / "net.pth.part").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert leftovers(store) == ["net.pth.part"]
    server.pages["/net.pth"] = Page(PAYLOAD)
    assert weights.fetch("net").read_bytes() == PAYLOAD
    assert leftovers(store) == ["net.pth"]


def test_two_processes_fetch_once(
    manifest: Callable[..., None], server: Server, store: Path
) -> None:
    manifest(f"{server.url}/net.pth")
    server.pages["/net.pth"] = Page(PAYLOAD, delay=0.5)
    ranks = [subprocess.Popen(FETCH, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [rank.communicate()[0].strip() for rank in ranks]
    assert answers == [str(store / "net.pth")] * 3
    assert server.hits == ["GET /net.pth"]
    assert (store / "net.pth").read_bytes() == PAYLOAD


@pytest.mark.parametrize("switch", ["GENMETRICS_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_refuses(
    switch: str,
    manifest: Callable[..., None],
    server: Server,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest(f"{server.url}/net.pth")
    server.pages["/net.pth"] = Page(PAYLOAD)
    monkeypatch.setenv(switch, "1")
    with pytest.raises(WeightsError) as caught:
        weights.fetch("net")
    assert str(caught.value).startswith(f"{switch}=1 forbids downloads, but weights 'net'")
    assert str(store / "net.pth") in str(caught.value)
    with pytest.raises(WeightsError, match=f"{switch}=1 forbids downloads"):
        weights.fetch("org/model")
    assert server.hits == []
    monkeypatch.setenv(switch, "0")
    assert weights.fetch("net").exists()


def test_an_unpinned_file_needs_consent_and_is_pinned_by_it(
    manifest: Callable[..., None], server: Server, store: Path
) -> None:
    manifest(f"{server.url}/net.pth", sha256="", size=0)
    server.pages["/net.pth"] = Page(PAYLOAD)
    with pytest.raises(WeightsError, match="no known sha256.*--accept-unpinned"):
        weights.fetch("net")
    assert server.hits == []
    path = weights.fetch("net", accept_unpinned=True)
    assert json.loads((store / "unpinned.json").read_text()) == {"net": SHA256}
    assert weights.verify("net") == ("net", "unpinned", path, SHA256, SHA256)
    path.write_bytes(b"changed later")
    assert weights.verify("net").status == "damaged"
    with pytest.raises(WeightsError, match=f"expected {SHA256}"):
        weights.require("net")


def test_a_directory_that_cannot_be_written(
    manifest: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest("http://127.0.0.1:9/net.pth")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GENMETRICS_WEIGHTS", str(tmp_path / "file" / "w"))
    with pytest.raises(WeightsError, match="cannot write .*Not a directory.*GENMETRICS_WEIGHTS"):
        weights.fetch("net")


COMMIT = "c" * 40


def serve_model(server: Server, name: str, files: dict[str, bytes]) -> None:
    """Answer as the model hub does, as far as its client asks."""
    tree = []
    for file, body in files.items():
        blob = hashlib.sha1(f"blob {len(body)}\0".encode() + body).hexdigest()
        tree.append({"type": "file", "path": file, "size": len(body), "oid": blob})
        headers = {"ETag": f'"{blob}"', "X-Repo-Commit": COMMIT}
        server.pages[f"/{name}/resolve/{COMMIT}/{file}"] = Page(body, headers=headers)
    as_json = {"Content-Type": "application/json"}
    info = json.dumps({"id": name, "sha": COMMIT, "siblings": []}).encode()
    server.pages[f"/api/models/{name}/revision/main"] = Page(info, headers=as_json)
    server.pages[f"/api/models/{name}/tree/{COMMIT}"] = Page(
        json.dumps(tree).encode(), 200, as_json
    )


@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin"])
def test_models_come_from_the_endpoint_of_the_environment(
    form: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No direct line to the model hub: the endpoint variable is honoured."""
    files = {"config.json": b"{}", form: b"tensors", "README.md": b"hello", "tf_model.h5": b"big"}
    serve_model(server, "org/net", files)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    folder = weights.fetch("org/net")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", form]
    assert weights.locate_model("org/net").revision == COMMIT
    asked = len(server.hits)
    assert asked > 0
    assert weights.require_model("org/net") == weights.fetch(f"org/net@{COMMIT}") == folder
    assert len(server.hits) == asked, "what is here needs no connection"
    (folder / form).resolve().write_bytes(b"tens")
    with pytest.raises(WeightsError, match=f"{form} is damaged"):
        weights.require_model("org/net")
    weights.fetch("org/net")
    assert (folder / form).read_bytes() == b"tensors"


def test_a_model_the_hub_does_not_have(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    with pytest.raises(WeightsError, match=f"cannot fetch org/none@main from {server.url}: ") as c:
        weights.fetch("org/none")
    assert "\n" not in str(c.value)
