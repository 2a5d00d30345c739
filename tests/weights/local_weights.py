"""What the tests of weights share: a local web server, and the layout of the hub's cache."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAYLOAD = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(PAYLOAD).hexdigest()


@dataclass
class Page:
    """What the server answers: a body, how much of it is really sent, and how fast."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    send: int | None = None
    delay: float = 0.0


class Server:
    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.hits: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.hits.append(f"{self.command} {self.path}")
                page = outer.pages.get(self.path.partition("?")[0], Page(b"no", 404))
                self.send_response(page.status)
                for name, value in page.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(page.body)))
                self.end_headers()
                if self.command == "HEAD":
                    return
                body = page.body[: page.send]
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                time.sleep(page.delay)
                self.wfile.write(body[len(body) // 2 :])

            do_HEAD = do_GET

            def log_message(self, *args: object) -> None:
                del args

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *args: object) -> None:
                del args  # clients of these tests hang up on purpose

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def snapshot(cache: Path, name: str, commit: str, files: dict[str, bytes], ref: str = "") -> Path:
    """Lay out a model as the hub's client does: blobs under their hash, links to them."""
    repository = cache / f"models--{name.replace('/', '--')}"
    folder = repository / "snapshots" / commit
    folder.mkdir(parents=True)
    (repository / "blobs").mkdir(exist_ok=True)
    for file, content in files.items():
        if file.endswith((".safetensors", ".bin")):
            blob = hashlib.sha256(content).hexdigest()
        else:
            blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
        (repository / "blobs" / blob).write_bytes(content)
        (folder / file).symlink_to(Path("..", "..", "blobs", blob))
    if ref:
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / ref).write_text(commit)
    return folder
