"""The files of a run: written whole or not at all, JSON in one form, and metrics as lines of it."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from doxa._files import sync_folder, write_atomic
from doxa.errors import RunError, RunWarning


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Writing a file: the one message if that fails."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason, remedy = ("the disk is full", "make room") if full else (error.strerror or error, "mend that")
        raise RunError(
            f"cannot write {path}: {reason}; everything written before is intact, so {remedy} and start again to "
            "continue"
        ) from error


def write_file(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all."""
    with writing(path):
        write_atomic(path, data)


def write_json(path: Path, document: object, *, sort_keys: bool = False) -> None:
    """Write a JSON file that people can read."""
    write_file(path, json.dumps(document, indent=2, allow_nan=False, sort_keys=sort_keys).encode() + b"\n")


def make_folder(path: Path) -> None:
    """Make a folder, with its parents, where there is none yet."""
    with writing(path):
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)


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


def set_aside(path: Path, reason: str) -> None:
    """Rename a damaged file that can be done without, and say so."""
    aside = path.with_name(f"{path.name}.damaged")
    with writing(aside):
        if aside.is_dir():
            shutil.rmtree(aside)
        os.replace(path, aside)
    warnings.warn(f"{reason}; {path} was renamed to {aside.name}", RunWarning, stacklevel=3)


def plain_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as Python numbers: 0-dimensional tensors and NumPy scalars are read out."""
    numbers = {}
    for name, value in metrics.items():
        if isinstance(value, Tensor | np.ndarray | np.generic) and value.ndim == 0:
            value = value.item()
        if not isinstance(value, int | float):
            shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
            raise RunError(f"metric {name!r} is a {type(value).__name__}{shape}, wanted one number")
        numbers[name] = value
    if "step" in numbers:
        raise RunError("a metric is called 'step', which is the name of the step itself; call it something else")
    return numbers


def append_line(path: Path, step: int, metrics: Mapping[str, float]) -> None:
    """Append a line of metrics. It is with the system when this returns, so that a kill does not lose it."""
    numbers = {name: json_number(value) for name, value in metrics.items()}
    line = json.dumps({"step": step, **numbers}).encode() + b"\n"
    with writing(path), open(path, "ab", buffering=0) as file:
        start = file.tell()
        try:
            while line:  # a nearly full disk takes only a part, and says why on the next try
                line = line[file.write(line) :]
        except OSError:
            file.truncate(start)
            raise


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All lines of metrics. A last line without its newline, torn by a kill, does not count."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    records = []
    for number, line in enumerate(lines, 1):
        if (record := _metrics(line)) is None:
            fault = f"{path}, line {number}: not a line of metrics: {line[:60]!r}"
            raise RunError(f"{fault}; remove the line to read the rest")
        records.append(record)
    return records


def mend_lines(path: Path) -> None:
    """Set a file of metrics aside that has damaged lines, and go on with the others."""
    try:
        read_lines(path)
    except (RunError, OSError) as error:
        whole = [] if path.is_dir() else [line for line in path.read_bytes().split(b"\n")[:-1] if _metrics(line)]
        set_aside(path, str(error))
        write_file(path, b"".join(line + b"\n" for line in whole))


def _metrics(line: bytes) -> dict[str, Any] | None:
    """A line of metrics: numbers by name, and a step among them; None if it is something else."""
    try:
        record = json.loads(line)
        numbers = {key: float(value) if isinstance(value, str) else value for key, value in record.items()}
        step = numbers.pop("step")
    except (AttributeError, KeyError, RecursionError, ValueError):
        return None
    whole = type(step) is int and all(isinstance(value, int | float) for value in numbers.values())
    return {"step": step, **numbers} if whole else None


def sync(path: Path) -> int:
    """Make what was appended durable; returns the size of the file."""
    if not path.exists():
        return 0
    with writing(path):
        with open(path, "ab") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        sync_folder(path.parent)
    return size


def cut(path: Path, size: int | None = None) -> int:
    """Forget all lines after the first `size` bytes, and a torn last line; returns how many bytes are missing."""
    if not path.is_file():
        return size or 0
    content = path.read_bytes()
    whole = content[:size].rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    return max((size or 0) - whole, 0)
