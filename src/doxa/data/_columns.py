"""Columns of data: tensors, `Ragged` structures and lists, alone or in dicts and tuples of any depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from doxa.errors import DataError
from doxa.logic import Ragged


def columns_of(data: Any, name: str = "") -> dict[str, Any]:
    """The columns by name; those of a dict in a dict have a dot in theirs.

    >>> columns_of({"pairs": {"left": torch.zeros(2), "names": ["a", "b"]}})
    {'pairs.left': tensor([0., 0.]), 'pairs.names': ['a', 'b']}
    """
    if not isinstance(data, Mapping | tuple):
        return {name: data}
    items = data.items() if isinstance(data, Mapping) else enumerate(data)
    return {k: v for key, part in items for k, v in columns_of(part, f"{name}.{key}".lstrip(".")).items()}


def count_rows(data: Any, what: str = "data") -> int:
    """How many rows there are; an error if the columns differ in that, or are not columns."""
    sizes = {}
    for name, column in columns_of(data).items():
        shown = f"{what}[{name!r}]" if name else what
        if not isinstance(column, Tensor | Ragged | list) or (isinstance(column, Tensor) and column.ndim == 0):
            kind = "a tensor without rows" if isinstance(column, Tensor) else type(column).__name__
            raise DataError(f"{shown} is {kind}, expected a tensor, a Ragged or a list with one entry for each row")
        sizes[name] = len(column)
    if not sizes:
        raise DataError(f"{what} is empty, expected one column or more")
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise DataError(f"{what} have different numbers of rows ({listed}), expected one number for all")
    return next(iter(sizes.values()))


def device_of(data: Any) -> torch.device:
    """Where the tensors are; the CPU if there are none. An error if they are in different places."""
    devices = {name: c.device for name, c in columns_of(data).items() if isinstance(c, Tensor | Ragged)}
    if len(set(devices.values())) > 1:
        listed = ", ".join(f"{name}: {device}" for name, device in devices.items())
        raise DataError(f"the columns are on different devices ({listed}): move them to one device")
    return next(iter(devices.values()), torch.device("cpu"))


def take_rows(data: Any, rows: Tensor | slice) -> Any:
    """Some rows of every column, in the same form.

    >>> take_rows({"x": torch.arange(3), "objects": Ragged(torch.arange(3), [2, 0, 1])}, slice(1, 3))
    {'x': tensor([1, 2]), 'objects': Ragged(2 rows, 1 objects of shape ())}
    """

    def some(column: Any) -> Any:
        if isinstance(column, list):
            return column[rows] if isinstance(rows, slice) else [column[i] for i in rows.tolist()]
        if isinstance(column, Tensor) and isinstance(rows, Tensor):
            return column.index_select(0, rows.to(column.device))  # copies whole rows, faster than column[rows]
        return column[rows.to(column.device) if isinstance(rows, Tensor) else rows]

    return map_columns(some, data)


def move_columns(data: Any, device: torch.device) -> Any:
    """The same data on a device; what is no tensor stays as it is."""
    return map_columns(lambda c: c.to(device) if isinstance(c, Tensor | Ragged) else c, data)


def map_columns(function: Callable[[Any], Any], data: Any) -> Any:
    """A function of every column, in the same form."""
    if isinstance(data, Mapping):
        return {name: map_columns(function, part) for name, part in data.items()}
    if isinstance(data, tuple):
        return tuple([map_columns(function, part) for part in data])
    return function(data)
