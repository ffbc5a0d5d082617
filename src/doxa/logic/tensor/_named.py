"""Tables that were given by name, as tensors: dense when that is affordable, else as a sorted list of tuples."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from doxa.errors import BindingError
from doxa.logic.bind._meanings import Named, positions
from doxa.logic.syntax._symbols import INT, REAL, Function, Sort
from doxa.logic.tensor._pools import Pools

__all__ = ["NO_INT", "Sparse", "named_table"]

LARGEST = 2**24
"""Relations over more tuples than this are kept as lists."""
NO_INT = torch.iinfo(torch.int64).min
"""Stands where a function into Int has no value; NaN does for Real, -1 for positions."""


class Sparse:
    """A relation over very many tuples: the sorted numbers of those that are true."""

    def __init__(self, keys: Tensor, shape: tuple[int, ...]) -> None:
        self.keys = keys
        self.shape = shape

    def at(self, flat: Tensor) -> Tensor:
        """Is each of these tuples true?"""
        if not len(self.keys):
            return torch.zeros_like(flat, dtype=torch.bool)
        place = torch.searchsorted(self.keys, flat).clamp(max=len(self.keys) - 1)
        return self.keys[place] == flat


def named_table(run: Pools, meaning: Named, sizes: Sequence[int]) -> Tensor | Sparse:
    """The table of named tuples over the objects of this run; made once per choice of sizes and device."""
    given = tuple([sort.name in run.batch.given for sort in meaning.symbol.sorts])  # names then mean other objects
    key = (tuple(sizes), given, str(run.device))
    if key not in meaning.cache:
        meaning.cache.clear()  # the objects changed, so the old one will not come back
        meaning.cache[key] = _build(run, meaning, sizes)
    found: Tensor | Sparse = meaning.cache[key]
    return found


def _build(run: Pools, meaning: Named, sizes: Sequence[int]) -> Tensor | Sparse:
    symbol = meaning.symbol
    places = [
        {v: i for i, v in enumerate(meaning.listed[argument])}.__getitem__
        if argument in meaning.listed
        else _lookup(run, sort, size, symbol.name)
        for argument, (sort, size) in enumerate(zip(symbol.sorts, sizes, strict=True))
    ]
    flat = []
    for args, _ in meaning.entries:
        number = 0
        for arg, size, place in zip(args, sizes, places, strict=True):
            number = number * size + place(arg)
        flat.append(number)
    total = prod(sizes)
    keys = torch.tensor(flat, dtype=torch.int64, device=run.device)
    if isinstance(symbol, Function):
        if total > LARGEST:
            raise BindingError(f"{symbol.name}: a table over {total} tuples is too large; bind a Python function")
        return _values(run, meaning, symbol, keys, total).view(sizes)
    true = torch.tensor([bool(v) for _, v in meaning.entries], dtype=torch.bool, device=run.device)
    keys = keys[true]
    if total > LARGEST:
        return Sparse(torch.unique(keys), tuple(sizes))
    dense = torch.zeros(total, dtype=torch.bool, device=run.device)
    dense[keys] = True
    return dense.view(sizes)


def _values(run: Pools, meaning: Named, symbol: Function, keys: Tensor, total: int) -> Tensor:
    result = symbol.result
    if result == REAL:
        filled = torch.full((total,), float("nan"), dtype=torch.float64, device=run.device)
        found: list[Any] = [float(v) for _, v in meaning.entries]
    elif result == INT:
        filled = torch.full((total,), NO_INT, device=run.device)
        found = [int(v) for _, v in meaning.entries]
    else:
        size = len(result.values) if result.values is not None else run.batch.objects(result.name).size
        place = _lookup(run, result, size, symbol.name)
        filled = torch.full((total,), -1, device=run.device)
        found = [place(v) for _, v in meaning.entries]
    filled[keys] = torch.tensor(found, dtype=filled.dtype, device=run.device)
    return filled


def _lookup(run: Pools, sort: Sort, size: int, name: str) -> Any:
    """From a name or number to a position."""
    if sort.values is not None:
        return positions(sort).__getitem__

    def place(value: Any) -> int:
        at = run.batch.index_of(value) if isinstance(value, str) else int(value)
        if at >= size:
            raise BindingError(f"{name}: the table names object {value!r}, but {sort.name} has {size} objects")
        return at

    return place
