"""Indexing by method calls: unlike square brackets, they also work on fake tensors of devices that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["cut", "entries", "take", "unravel"]


def cut(value: Tensor, run: slice, dim: int = 0) -> Tensor:
    """A run of consecutive places along one axis."""
    length = run.stop - run.start
    return value if length == value.shape[dim] else value.narrow(dim, run.start, length)


def take(value: Tensor, places: Sequence[Tensor]) -> Tensor:
    """The entries at places along the first axes, which broadcast; further axes stay behind."""
    if len(places) == 1 and places[0].ndim == 1:
        return value.index_select(0, places[0])  # whose derivative is quicker
    found: Tensor = torch.ops.aten.index.Tensor(value, list(places))
    return found


def unravel(flat: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The places along several axes that numbers of their product stand for."""
    places = []
    for size in reversed(sizes[1:]):
        outer = flat // max(1, size)
        places.append(flat - outer * size)
        flat = outer
    return (flat, *reversed(places))


def entries(values: Tensor, at: Any) -> Tensor:
    """The entries of the first axis at a run of places, at one place, or at a tensor of them."""
    if isinstance(at, slice):
        return cut(values, at)
    if isinstance(at, int):
        return values.select(0, at)
    if at.ndim == 1:
        return values.index_select(0, at)
    return take(values, [at])
