"""Files that are either wholly there or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from doxa.errors import RunError


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a kill or a power cut at any moment leaves the old content or the new, never a mixture.

    A temporary file in the same folder is written, synced to the disk and renamed over the target, and the folder
    is synced.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder, with its parents, where there is none yet."""
    try:
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


def sync_folder(folder: Path) -> None:
    """Make renames within a folder durable, where the system lets folders be opened."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> RunError:
    """The one message for a write that failed."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    reason = "the disk is full" if full else str(error.strerror or error)
    remedy = "make room" if full else "mend that"
    return RunError(
        f"cannot write {path}: {reason}; everything written before is intact, so {remedy} and start again to continue"
    )


def to_json(document: object) -> bytes:
    """JSON in one canonical form, so that equal documents have equal hashes. Non-finite floats are refused."""
    return json.dumps(document, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()


def json_number(value: float) -> float | str:
    """A number as JSON can hold it: nan and the infinities, which it lacks, as "nan", "inf" and "-inf"."""
    return value if math.isfinite(value) else repr(float(value))


def sha256(data: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object; ValueError says what is wrong with it."""
    try:
        document = json.loads(path.read_bytes(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path} holds a {type(document).__name__}, wanted an object")
    return document


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
