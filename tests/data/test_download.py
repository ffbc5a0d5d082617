from __future__ import annotations

import io
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from doxa._files import write_atomic
from doxa.data._sources import download, transfer
from doxa.errors import DataError

BODY = random.Random(3).randbytes(300_000)
Serve = Callable[..., Any]


def whole(data: bytes) -> str:
    if data != BODY:
        raise DataError(f"{len(data)} bytes, not those that were sent")
    return "whole"


def fetch(url: str, part: Path) -> str:
    return download(url, part, whole, progress=False)


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "file.gz.part"


def test_fetches_and_clears_up(serve: Serve, part: Path) -> None:
    web = serve({"file.gz": BODY})
    assert fetch(f"{web.url}/file.gz", part) == "whole"
    assert web.asked == [("/file.gz", None)]
    assert list(part.parent.iterdir()) == []


def test_resumes_where_it_stopped(serve: Serve, part: Path) -> None:
    web = serve({"file.gz": BODY})
    part.write_bytes(BODY[:200_001])
    assert fetch(f"{web.url}/file.gz", part) == "whole"
    assert web.asked == [("/file.gz", "bytes=200001-")]
    assert web.sent == len(BODY) - 200_001


def test_starts_again_where_the_server_knows_no_ranges(serve: Serve, part: Path) -> None:
    web = serve({"file.gz": BODY}, ranges=False)
    part.write_bytes(BODY[:200_001])
    assert fetch(f"{web.url}/file.gz", part) == "whole"
    assert web.sent == len(BODY)


def test_a_broken_connection_is_taken_up_again(serve: Serve, part: Path) -> None:
    web = serve({"file.gz": BODY}, breaks=[1000, 70_000])
    assert fetch(f"{web.url}/file.gz", part) == "whole"
    assert web.asked == [("/file.gz", None), ("/file.gz", "bytes=1000-"), ("/file.gz", "bytes=71000-")]
    assert web.sent == len(BODY)


def test_a_broken_connection_without_ranges_starts_again(serve: Serve, part: Path) -> None:
    web = serve({"file.gz": BODY}, ranges=False, breaks=[1000])
    assert fetch(f"{web.url}/file.gz", part) == "whole"
    assert [asked for _, asked in web.asked] == [None, "bytes=1000-"]
    assert web.sent == 1000 + len(BODY)


def test_a_server_that_always_breaks_leaves_the_part(serve: Serve, part: Path) -> None:
    web = serve({"file.gz": BODY}, breaks=[1000] * 99)
    with pytest.raises(DataError, match=r"connection closed after 5000 of 300000 bytes \(5 attempts\)"):
        fetch(f"{web.url}/file.gz", part)
    assert part.read_bytes() == BODY[:5000]
    web.breaks.clear()
    assert fetch(f"{web.url}/file.gz", part) == "whole"


def test_an_old_part_that_is_damaged_is_thrown_away(serve: Serve, part: Path) -> None:
    web = serve({"file.gz": BODY})
    part.write_bytes(b"x" * 1000)
    assert fetch(f"{web.url}/file.gz", part) == "whole"
    assert [asked for _, asked in web.asked] == ["bytes=1000-", None]


@pytest.mark.parametrize(("left", "times"), [(BODY, 1), (BODY + b"x", 2), (b"y" * len(BODY), 2)])
def test_nothing_left_to_fetch(serve: Serve, part: Path, left: bytes, times: int) -> None:
    web = serve({"file.gz": BODY})
    part.write_bytes(left)
    assert fetch(f"{web.url}/file.gz", part) == "whole"
    assert len(web.asked) == times


def test_altered_bytes_are_refused_and_not_kept(serve: Serve, part: Path) -> None:
    web = serve({"file.gz": b"!" + BODY[1:]})
    with pytest.raises(DataError, match=r"300000 bytes, not those that were sent"):
        fetch(f"{web.url}/file.gz", part)
    assert len(web.asked) == 1
    assert list(part.parent.iterdir()) == []


def test_another_range_than_asked_for(serve: Serve, part: Path) -> None:
    web = serve({"file.gz": BODY}, wrong_range=True)
    part.write_bytes(BODY[:10])
    with pytest.raises(DataError, match=r"asked for bytes from 10, got 'bytes 11-299999/300000'"):
        fetch(f"{web.url}/file.gz", part)


def test_no_such_file_no_such_server(serve: Serve, part: Path) -> None:
    web = serve({})
    with pytest.raises(DataError, match=r"/file.gz: HTTP 404 Not Found"):
        fetch(f"{web.url}/file.gz", part)
    assert len(web.asked) == 1
    with pytest.raises(DataError, match=r"127\.0\.0\.1:1/file.gz: .*refused"):
        fetch("http://127.0.0.1:1/file.gz", part)


CHILD = """
import sys
from pathlib import Path
from doxa.data._sources import download
download(sys.argv[1], Path(sys.argv[2]), len, progress=False, timeout=300)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no file locks: every process has its own file there")
def test_two_processes_at_once_and_one_is_killed(serve: Serve, part: Path) -> None:
    half = len(BODY) // 2
    listener = socket.create_server(("127.0.0.1", 0))
    released = threading.Event()

    def stall() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY[:half])
            released.wait()

    thread = threading.Thread(target=stall)
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/file.gz"
    slow = subprocess.Popen([sys.executable, "-c", CHILD, address, str(part)])
    try:
        while not (part.exists() and part.stat().st_size):
            assert slow.poll() is None
            time.sleep(0.01)
        web = serve({"file.gz": BODY})
        # while the other is at it: a nameless file of our own, and the other's part is left to it
        assert fetch(f"{web.url}/file.gz", part) == "whole"
        assert web.asked == [("/file.gz", None)]
        assert part.stat().st_size > 0
    finally:
        slow.kill()
        slow.wait()
        released.set()
        thread.join()
        listener.close()
    # after its death: we go on with what it had
    left = part.stat().st_size
    assert fetch(f"{web.url}/file.gz", part) == "whole"
    assert web.asked[1:] == [("/file.gz", f"bytes={left}-")]
    assert list(part.parent.iterdir()) == []


def test_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_atomic(tmp_path / "folder", b"a folder cannot be replaced by a file")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(stream: io.StringIO, *, show: bool = True, total: int | None = 1_000_000) -> str:
    with transfer("digits.gz", show=show, stream=stream) as report:
        for done in range(0, 1_000_001, 50_000):
            report(done, total)
    return stream.getvalue()


def test_plain_lines_when_piped() -> None:
    assert run(io.StringIO()).splitlines() == [
        "digits.gz: 0.0 MB of 1.0 MB (0 %)",
        "digits.gz: 0.2 MB of 1.0 MB (25 %)",
        "digits.gz: 0.5 MB of 1.0 MB (50 %)",
        "digits.gz: 0.8 MB of 1.0 MB (75 %)",
        "digits.gz: 1.0 MB of 1.0 MB (100 %)",
    ]
    assert run(io.StringIO(), total=None) == "digits.gz: fetching\n"
    assert run(io.StringIO(), show=False) == ""


def test_a_bar_on_a_terminal() -> None:
    shown = run(Terminal())
    assert "digits.gz" in shown
    assert "1.0/1.0 MB" in shown
    assert "\x1b[" in shown  # drawn in place
    assert run(Terminal(), show=False) == ""


def test_empty_transfer() -> None:
    stream = io.StringIO()
    with transfer("digits.gz", stream=stream) as report:
        report(0, 0)
    assert stream.getvalue() == "digits.gz: fetching\n"


def test_progress_goes_to_standard_error(serve: Serve, part: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web = serve({"file.gz": BODY})
    download(f"{web.url}/file.gz", part, whole)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "file.gz: 0.3 MB of 0.3 MB (100 %)"
