"""Axes, pools of objects, and what is known of a value before anything runs.

A value has axes, one dimension each, and is a truth value, a number, or a position in a pool of objects or of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeGuard

import torch
from torch import Tensor

from doxa.logic.syntax import _symbols


@dataclass(frozen=True)
class Sort:
    """The objects of an open sort; ``sample`` is (size, number) when they are one random batch of them."""

    sort: str
    sample: tuple[int, int] | None = None


@dataclass(frozen=True)
class Own:
    """The constants of an open sort that bring features of their own."""

    sort: str


@dataclass(frozen=True)
class Finite:
    sort: _symbols.Sort

    def __hash__(self) -> int:
        return hash(self.sort.name)  # not of all its values


@dataclass(frozen=True)
class Rows:
    """Rows of data; ``sample`` is (size, number) when they are one random batch of the rows."""

    name: str
    sample: tuple[int, int] | None = None

    def __hash__(self) -> int:
        return hash(self.name)  # asked for at every look into a table, and quicker than that of all fields


@dataclass(frozen=True)
class Column:
    """The entries of a field of rows, its first ``level`` axes taken together; what they are follows from their use."""

    rows: Rows
    field: str
    level: int

    def __hash__(self) -> int:
        return hash(self.field)

    def __str__(self) -> str:
        return f"{self.rows.name}.{self.field}"


@dataclass(frozen=True)
class Places:
    """The places of a sequence: axis ``level`` of a field."""

    rows: Rows
    field: str
    level: int


@dataclass(frozen=True)
class Function:
    """What a function into an open sort makes of the objects of other pools."""

    name: str
    pools: tuple[Pool, ...]


@dataclass(frozen=True)
class Propositions:
    """Predicates of no arguments, whose truth values come in one kind."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Listed:
    """The numbers that a table lists for one of its arguments, and one place more for all others."""

    name: str
    argument: int


@dataclass(frozen=True)
class Stack:
    """Formulas that differ only in constants, stacked along an axis."""

    size: int


Pool = Sort | Own | Finite | Rows | Column | Places | Function | Propositions | Listed | Stack


@dataclass(frozen=True)
class Object:
    """A position in a pool of objects of an open sort."""

    sort: str
    pool: Pool


class Plain(Enum):
    """What is no position."""

    TRUTH = "a formula"
    NUMBER = "a number"


TRUTH, NUMBER = Plain.TRUTH, Plain.NUMBER
Type = Plain | Finite | Object | Rows | Column


def is_sample(pool: Pool) -> TypeGuard[Sort]:
    return isinstance(pool, Sort) and pool.sample is not None


def text(pool: Pool) -> str:
    match pool:
        case Finite(sort=sort):
            return sort.name
        case Sort(sort=name, sample=(size, _)):
            return f"{size} of {name}"
        case Sort(sort=name) | Rows(name=name):
            return name
        case Column():
            return str(pool)
        case Function(name=name, pools=pools):
            return f"{name}({', '.join([text(p) for p in pools])})"
    return type(pool).__name__


@dataclass(eq=False, slots=True)
class Axis:
    """One dimension of a frame: a variable's, or that of a list of instances."""

    label: str
    order: int


def union(axes: Iterable[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """All axes that occur, in their order."""
    found = {a: None for some in axes for a in some}
    return tuple(sorted(found, key=lambda a: a.order))


def inserted(of: tuple[Axis, ...], into: tuple[Axis, ...]) -> tuple[int, ...]:
    """The dimensions to insert so that a tensor over ``of`` broadcasts against one over ``into``."""
    if not of:
        return ()
    first = into.index(of[0])  # further to the left, broadcasting inserts by itself
    return tuple([d - first for d in range(first, len(into)) if into[d] not in of])


@dataclass(frozen=True, eq=False, slots=True)
class Ref:
    """A value of a plan: where it will be, its axes and its type."""

    slot: int
    axes: tuple[Axis, ...]
    type: Type
    dense: bool = False
    """At run time it is a slice: consecutive positions along its one axis."""
    const: int | float | None = None
    """Its value, when that is known before anything runs."""
    epoch: int = 0
    """How many lists its block had when it was made; later lists may absorb its axes."""

    def read_as(self, kind: Type) -> Ref:
        """The same value, understood as another kind of thing."""
        return self if kind == self.type else replace(self, type=kind)


# --- indexing by method calls: unlike square brackets, they also work on fake tensors of absent devices ---


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
    if of == onto and value.shape[: len(of)] == tuple([sizes[a] for a in onto]):
        return value
    behind = value.shape[len(of) :]
    return _expand_dims(value, inserted(of, onto)).expand([*[sizes[a] for a in onto], *behind])


def _expand_dims(value: Tensor, dims: tuple[int, ...]) -> Tensor:
    for dim in dims:
        value = value.unsqueeze(dim)
    return value
