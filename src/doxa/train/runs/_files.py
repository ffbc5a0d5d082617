"""The files of a run: written whole or not at all, and JSON in one form."""

from __future__ import annotations

import errno
import hashlib
import json
import math
from pathlib import Path
from typing import Any

from doxa._files import sync_folder, write_atomic
from doxa.errors import RunError


def write_file(path: Path, data: bytes) -> None:
    """`write_atomic`, with the one message for a write that failed."""
    try:
        write_atomic(path, data)
    except OSError as error:
        raise cannot_write(path, error) from error


def make_folder(path: Path) -> None:
    """Make a folder, with its parents, where there is none yet."""
    try:
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


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
