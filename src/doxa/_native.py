"""C code that is compiled on first use where there is a C compiler, and kept. Never required."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from doxa.errors import ConfigError

__all__ = ["cache_directory", "native_library"]

# No -ffast-math: it would flush subnormal numbers in the whole process and break infinities. These two only say
# that nobody looks at errno or at floating-point traps.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-std=gnu11", "-fPIC", "-shared", "-pthread")
SECONDS = 300  # that a compiler may take; 9 where nothing else runs
PROBE = 10  # seconds in which a compiler must say who it is: one that hangs costs no more, and only once
DAY = 86_400


def cache_directory() -> Path:
    """The private directory where compiled things are kept: ``DOXA_CACHE``, else ``doxa`` in the user's cache folder.

    >>> cache_directory().is_dir()
    True
    """
    base = os.environ.get("DOXA_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) if base else Path(home) / "doxa"
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _own(folder):
        raise ConfigError(
            f"the cache directory {folder} belongs to or can be written by others, so its contents cannot be trusted; "
            "say DOXA_CACHE=<a directory of your own>"
        )
    if hasattr(os, "getuid"):
        folder.chmod(0o700)
    return folder


def _own(path: Path) -> bool:
    """Whether a file or folder, and a link to it, is the user's own, and nobody else can write to it."""
    if not hasattr(os, "getuid"):
        return True
    facts = path.stat()
    own = facts.st_uid == path.lstat().st_uid == os.getuid()
    return own and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def native_library(source: Path) -> ctypes.CDLL | None:
    """The library made from a C file, or None where there is no C compiler or it does not do its work.

    It is compiled once, then kept in a private directory. Set the environment variable ``DOXA_NATIVE=0`` to do without.

    >>> native_library(Path("no-such-file.c")) is None
    True
    """
    if os.environ.get("DOXA_NATIVE", "1") == "0":
        return None
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    try:
        folder = cache_directory()
        target = folder / f"{source.stem.lstrip('_')}-{_fingerprint(compiler, source)}.so"
        if not target.exists():
            program = folder / f"compiler-{_fingerprint(compiler)}.failed"
            if _attempt(program, lambda: _run([compiler, "--version"], min(PROBE, SECONDS))):
                _attempt(target.with_suffix(".failed"), lambda: _build(compiler, source, target))
        return ctypes.CDLL(str(target)) if target.exists() and _own(target) else None
    except (OSError, ConfigError):
        return None


def _attempt(failed: Path, work: Callable[[], None]) -> bool:
    """Whether work was done; what hangs or fails leaves a file, and is not tried again for a day."""
    if failed.exists() and time.time() - failed.stat().st_mtime < DAY:
        return False
    try:
        work()
    except subprocess.SubprocessError:
        failed.touch(0o600)
        return False
    return True


def _run(command: list[str], seconds: float) -> None:
    null = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True) as process:
        try:
            code = process.wait(seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # the compiler and whatever it started
            raise
    if code:
        raise subprocess.CalledProcessError(code, command)


def _build(compiler: str, source: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / "library.so"
        _run([compiler, *FLAGS, str(source), "-o", str(made)], SECONDS)
        made.chmod(0o700)
        os.replace(made, target)  # whole or not at all, also when two processes build it at once


def _texts(source: Path | None) -> list[bytes]:
    """A C file, and those beside it that it includes."""
    if source is None:
        return [b""]
    text = source.read_bytes()
    names = re.findall(rb'^#include "([^"]+)"', text, re.MULTILINE)
    return [text, *((source.parent / name.decode()).read_bytes() for name in names)]


def _fingerprint(compiler: str, source: Path | None = None) -> str:
    """Of everything that decides what the library is: source, flags, compiler, processor; nothing is run."""
    program = Path(compiler).resolve()
    facts = [
        *_texts(source),
        " ".join(FLAGS).encode(),
        platform.machine().encode(),
        str(program).encode(),
    ]
    facts.append(f"{program.stat().st_size} {program.stat().st_mtime_ns}".encode())
    processor = Path("/proc/cpuinfo")
    if processor.exists():
        lines = processor.read_text(encoding="utf-8", errors="replace").splitlines()
        facts.append("".join(sorted({line for line in lines if line.startswith(("flags", "Features"))})).encode())
    return hashlib.sha256(b"\0".join(facts)).hexdigest()[:24]
