"""Downloads that resume, and show how far they are: a bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import IO, TextIO, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from doxa.errors import DataError

T = TypeVar("T")

_ATTEMPTS = 5  # of one address, each of which must have brought something
_CHUNK = 1 << 16

Report = Callable[[int, int | None], None]
"""Told the bytes there are so far, and the bytes there will be (None where the server does not say)."""


@contextmanager
def transfer(label: str, *, show: bool = True, stream: TextIO | None = None) -> Iterator[Report]:
    """Give a function that reports progress on ``stream`` (standard error by default)."""
    stream = sys.stderr if stream is None else stream
    if not show:
        yield lambda done, total: None
    elif stream.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(file=stream)) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _lines(label, stream)


def _lines(label: str, stream: TextIO) -> Report:
    quarter = -1

    def report(done: int, total: int | None) -> None:
        nonlocal quarter
        now = 4 * done // total if total else 0
        if now != quarter:
            quarter = now
            size = f"{done / 1e6:.1f} MB of {total / 1e6:.1f} MB ({25 * now} %)" if total else "fetching"
            print(f"{label}: {size}", file=stream, flush=True)

    return report


def download(url: str, part: Path, check: Callable[[bytes], T], *, progress: bool = True, timeout: float = 30.0) -> T:
    """Fetch ``url`` through the file ``part`` and return ``check(content)``.

    What an earlier, interrupted download left in ``part`` is not fetched again if the server knows HTTP ranges. Content
    that ``check`` refuses (with a `DataError`) is thrown away, and fetched once more from the start if part of it was
    old. ``part`` is gone when this returns; it stays when the connection breaks for good.
    """
    with _claim(part) as file, transfer(part.name.removesuffix(".part"), show=progress) as report:
        resumed = file.seek(0, os.SEEK_END) > 0
        while True:
            _fetch_all(url, file, report, timeout)
            file.seek(0)
            content = file.read()
            file.truncate(0)  # of no more use, whether it is whole or wrong
            try:
                return check(content)
            except DataError:
                if not resumed:
                    raise
                resumed = False


@contextmanager
def _claim(part: Path) -> Iterator[IO[bytes]]:
    """Open ``part`` for appending, for us alone; a nameless file instead while another process is at it.

    The lock dies with its process, so that a killed download can be resumed. All reading goes through the open file:
    whoever else removes or recreates ``part`` in the meantime does no harm. An empty ``part`` is removed at the end.
    """
    with part.open("a+b") as file:
        if _lock(file):
            try:
                yield file
            finally:
                if not file.seek(0, os.SEEK_END):
                    part.unlink(missing_ok=True)
            return
    with tempfile.TemporaryFile(dir=part.parent) as file:
        yield file


def _lock(file: IO[bytes]) -> bool:
    if sys.platform == "win32":
        return False  # no such lock: every download there starts from nothing
    import fcntl

    with suppress(OSError):  # held by another process, or a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


class _Broken(Exception):
    """The transfer stopped short, but another try may bring more."""


def _fetch_all(url: str, file: IO[bytes], report: Report, timeout: float) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _fetch(url, file, report, timeout)
            return
        except _Broken as error:
            if attempt == _ATTEMPTS:
                raise DataError(f"{url}: {error} ({attempt} attempts)") from error
        except HTTPError as error:
            raise DataError(f"{url}: HTTP {error.code} {error.reason}") from error
        except (OSError, HTTPException) as error:
            # an address that brings nothing will not do so a moment later; the next mirror may
            raise DataError(f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}") from error


def _fetch(url: str, file: IO[bytes], report: Report, timeout: float) -> None:
    """Append to ``file`` what it lacks."""
    have = file.seek(0, os.SEEK_END)
    headers = {"User-Agent": "doxa"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=timeout)
    except HTTPError as error:
        with error:
            if error.code != 416 or not have:
                raise
            size = error.headers.get("Content-Range", "").rpartition("/")[2]
        if size == str(have):
            return  # nothing is missing: an earlier download was interrupted at its last step
        file.truncate(0)
        raise _Broken(f"{have} bytes were there, the server has {size or 'fewer'}") from None
    with response:
        if response.status == 206:
            came = response.headers.get("Content-Range", "")
            if not re.match(rf"bytes\s+{have}-", came):
                raise OSError(f"asked for bytes from {have}, got {came!r}")
        else:  # the whole file: the server knows no ranges
            file.truncate(0)
            have = 0
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else None
        report(have, total)
        while True:
            try:
                chunk = response.read(_CHUNK)
            except (OSError, HTTPException) as error:
                raise _Broken(f"connection lost after {have} bytes ({error})") from error
            if not chunk:
                break
            file.write(chunk)
            have += len(chunk)
            report(have, total)
    if total is not None and have != total:
        raise _Broken(f"connection closed after {have} of {total} bytes")
