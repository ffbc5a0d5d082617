"""The static side of grounding: axes, pools of objects, and what is known of a value before anything runs.

A value inside a plan has *axes*, one tensor dimension each, in the order in which they were introduced. Terms denote
positions: a value of a finite sort is its position in the sort, an object its position in a *pool*. The pool says where
features come from, so a network runs once on the pool and everything else is indexing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from doxa.logic.syntax._symbols import Sort

__all__ = [
    "NUMBER",
    "TRUTH",
    "Axis",
    "ColumnPool",
    "ElementType",
    "FinitePool",
    "FiniteType",
    "FunctionPool",
    "ListedPool",
    "NumberType",
    "ObjectType",
    "OwnPool",
    "Pool",
    "PropositionPool",
    "Ref",
    "RowPool",
    "RowType",
    "SamplePool",
    "SequencePool",
    "SortPool",
    "StackPool",
    "TruthType",
    "Type",
    "inserted",
    "union",
]


class Axis:
    """One dimension of a frame: a variable's, or that of a list of instances."""

    __slots__ = ("label", "order")

    def __init__(self, label: str, order: int) -> None:
        self.label = label
        self.order = order

    def __repr__(self) -> str:
        return f"{self.label}#{self.order}"


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


# --- pools of objects ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SortPool:
    """All objects of an open sort."""

    sort: str


@dataclass(frozen=True)
class OwnPool:
    """The constants of an open sort that bring features of their own."""

    sort: str


@dataclass(frozen=True)
class FinitePool:
    """The values of a finite sort."""

    sort: Sort

    def __hash__(self) -> int:
        return hash(self.sort.name)  # not of all its values


@dataclass(frozen=True)
class SamplePool:
    """One random batch of the objects of a sort."""

    sort: str
    size: int
    number: int


@dataclass(frozen=True)
class RowPool:
    """Rows of data; ``sample`` is (size, number) when they are one random batch of the rows."""

    name: str
    sample: tuple[int, int] | None = None


@dataclass(frozen=True)
class ColumnPool:
    """Objects in a field of rows, its first ``level`` axes taken together."""

    rows: RowPool
    field: str
    level: int


@dataclass(frozen=True)
class SequencePool:
    """The places of a sequence: axis ``level`` of a field."""

    rows: RowPool
    field: str
    level: int


@dataclass(frozen=True)
class FunctionPool:
    """What a function into an open sort makes of the objects of other pools."""

    name: str
    pools: tuple[Pool, ...]


@dataclass(frozen=True)
class PropositionPool:
    """Predicates of no arguments, whose truth values come in one kind."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class ListedPool:
    """The numbers that a table lists for one of its arguments, and one place more for all others."""

    name: str
    argument: int


@dataclass(frozen=True)
class StackPool:
    """Formulas that differ only in constants, stacked along an axis."""

    size: int


Pool = (
    SortPool
    | OwnPool
    | FinitePool
    | SamplePool
    | RowPool
    | ColumnPool
    | SequencePool
    | FunctionPool
    | PropositionPool
    | ListedPool
    | StackPool
)


# --- types of values ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TruthType:
    """A truth value of an algebra."""


@dataclass(frozen=True)
class NumberType:
    """An integer or a real number."""


@dataclass(frozen=True)
class FiniteType:
    """A position among the values of a finite sort."""

    sort: Sort

    def __hash__(self) -> int:
        return hash(self.sort.name)


@dataclass(frozen=True)
class ObjectType:
    """A position in a pool of objects of an open sort."""

    sort: str
    pool: Pool


@dataclass(frozen=True)
class RowType:
    """A position among rows."""

    pool: RowPool


@dataclass(frozen=True)
class ElementType:
    """A position in a field, its first ``level`` axes taken together; what it holds follows from its use."""

    pool: ColumnPool


TRUTH = TruthType()
NUMBER = NumberType()
Type = TruthType | NumberType | FiniteType | ObjectType | RowType | ElementType


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
