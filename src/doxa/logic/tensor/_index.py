"""Indexing by method calls: unlike square brackets, they also work on fake tensors of devices that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from doxa.logic.tensor._pools import Axis, inserted


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


def cut(value: Tensor, run: slice, dim: int = 0) -> Tensor:
    length = run.stop - run.start
    return value if length == value.shape[dim] else value.narrow(dim, run.start, length)


def take(value: Tensor, places: Sequence[Tensor]) -> Tensor:
    """The entries at places along the first axes, which broadcast; further axes stay behind."""
    if len(places) == 1 and places[0].ndim == 1:
        return value.index_select(0, places[0])  # whose derivative is quicker
    found: Tensor = torch.ops.aten.index.Tensor(value, list(places))
    return found


def entries(values: Tensor, at: Any) -> Tensor:
    """The entries of the first axis at a run of places, at one place, or at a tensor of them."""
    if isinstance(at, slice):
        return cut(values, at)
    return values.select(0, at) if isinstance(at, int) else take(values, [at])


def ravel(places: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Places along several axes as numbers of their product."""
    flat = places[0] if places else 0
    for at, size in zip(places[1:], sizes[1:], strict=True):
        flat = flat * size + at
    return flat


def unravel(flat: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The places along several axes that numbers of their product stand for."""
    places = []
    for size in reversed(sizes[1:]):
        outer = flat // max(1, size)
        places.append(flat - outer * size)
        flat = outer
    return (flat, *reversed(places))


def align(values: Sequence[Any], dims: Sequence[tuple[int, ...]]) -> list[Any]:
    """Values with axes of length one inserted, so that they broadcast; plain numbers do so already."""
    return [_expand_dims(v, d) if d else v for v, d in zip(values, dims, strict=True)]


def spread(value: Tensor, of: tuple[Axis, ...], onto: tuple[Axis, ...], sizes: dict[Axis, int]) -> Tensor:
    """A tensor over some axes, repeated along all axes of ``onto``; further dimensions stay behind."""
    behind = value.shape[len(of) :]
    return _expand_dims(value, inserted(of, onto)).expand([*[sizes[a] for a in onto], *behind])


def _expand_dims(value: Tensor, dims: tuple[int, ...]) -> Tensor:
    for dim in dims:
        value = value.unsqueeze(dim)
    return value
