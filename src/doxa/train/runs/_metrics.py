"""Metrics as JSON lines: one line an event, appended and never rewritten."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from doxa._files import sync_folder
from doxa.errors import RunError
from doxa.train.runs._files import cannot_write, json_number


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
    """Append one line. It is with the system when this returns, so that a kill does not lose it."""
    numbers = {name: json_number(value) for name, value in metrics.items()}
    line = json.dumps({"step": step, **numbers}).encode() + b"\n"
    try:
        with open(path, "ab", buffering=0) as file:
            start = file.tell()
            try:
                while line:  # a nearly full disk takes only a part, and says why on the next try
                    line = line[file.write(line) :]
            except OSError:
                file.truncate(start)
                raise
    except OSError as error:
        raise cannot_write(path, error) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All lines of a metrics file. A last line without its newline, torn by a kill, does not count."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            record = {key: float(value) if isinstance(value, str) else value for key, value in record.items()}
            records.append({"step": record.pop("step"), **record})
        except (ValueError, AttributeError, KeyError, RecursionError) as error:
            raise RunError(
                f"{path}, line {number}: not a line of metrics: {line[:60]!r}; remove the line to read the rest"
            ) from error
    return records


def sync(path: Path) -> int:
    """Make what was appended durable; returns the size of the file."""
    if not path.exists():
        return 0
    try:
        with open(path, "ab") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    return size


def cut(path: Path, size: int | None = None) -> int:
    """Forget all lines after the first `size` bytes, and a torn last line; returns how many bytes are missing."""
    if not path.exists():
        return size or 0
    content = path.read_bytes()
    whole = content[:size].rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    return max((size or 0) - whole, 0)
