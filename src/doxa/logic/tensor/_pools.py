"""Pools of objects, which positions point into: the type of a value that is neither a truth value nor a number.

A value of a finite sort is its position in the sort, an object its position in a pool of objects. The pool says where
features come from, so a network runs once on the pool and everything else is indexing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from doxa.logic.syntax import _symbols

__all__ = ["NUMBER", "TRUTH", "Pool", "Type"]


@dataclass(frozen=True)
class Sort:
    """All objects of an open sort."""

    sort: str


@dataclass(frozen=True)
class Own:
    """The constants of an open sort that bring features of their own."""

    sort: str


@dataclass(frozen=True)
class Finite:
    """The values of a finite sort."""

    sort: _symbols.Sort

    def __hash__(self) -> int:
        return hash(self.sort.name)  # not of all its values


@dataclass(frozen=True)
class Sample:
    """One random batch of the objects of a sort."""

    sort: str
    size: int
    number: int


@dataclass(frozen=True)
class Rows:
    """Rows of data; ``sample`` is (size, number) when they are one random batch of the rows."""

    name: str
    sample: tuple[int, int] | None = None


@dataclass(frozen=True)
class Column:
    """The entries of a field of rows, its first ``level`` axes taken together; what they are follows from their use."""

    rows: Rows
    field: str
    level: int

    def __str__(self) -> str:
        return f"{self.rows.name}.{self.field}"


@dataclass(frozen=True)
class Sequence:
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


Pool = Sort | Own | Finite | Sample | Rows | Column | Sequence | Function | Propositions | Listed | Stack


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


def text(pool: Pool) -> str:
    """A pool in a word or two."""
    match pool:
        case Finite(sort=sort):
            return sort.name
        case Sort(sort=name) | Rows(name=name):
            return name
        case Sample(sort=name, size=size):
            return f"{size} of {name}"
        case Column():
            return str(pool)
        case Function(name=name, pools=pools):
            return f"{name}({', '.join([text(p) for p in pools])})"
    return type(pool).__name__
