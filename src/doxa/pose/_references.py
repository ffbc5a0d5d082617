"""How a formula refers to what the data hold: rows, fields, objects, and what is computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from doxa.logic import Function, Predicate, Sort


@dataclass(frozen=True)
class Row:
    """A data row of an instance: its number among the instance's own rows, or among all of them."""

    rows: str
    number: int
    fixed: bool = False
    """Whether the number is that of the data, the same in every instance."""


@dataclass(frozen=True)
class Cell:
    """A field of a row, or an element of the sequence in it; its use decides whether it is an object or a number.

    The path to an element has numbers, or names of variables, whose numbers differ between instances.
    """

    row: Row
    field: str
    path: tuple[int | str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.row.rows}[{self.row.number}]" if self.row.number else self.row.rows
        return f"{place}.{self.field}" + "".join([f"[{i}]" for i in self.path])


@dataclass(frozen=True)
class Own:
    """The value of a variable over a finite sort, one for each instance."""

    name: str
    sort: Sort

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Object:
    """An object of an instance, or a value of a finite sort: the same label says that it is the same one."""

    sort: str
    label: int


@dataclass(frozen=True)
class Known:
    """A number, a value or a truth that the data alone decide, the same way in every instance."""

    op: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        if self.op in ("cell", "own"):
            return str(self.args[0])
        if self.op == "call":
            return f"{self.args[0].name}({', '.join(map(str, self.args[1]))})"
        return f"({f' {self.op} '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Indexed:
    """An object or value by its index, the same in every instance; or, with a name, each instance's own.

    A constant that comes with features beside the objects of the data has no index until these are counted.
    """

    index: int
    name: str = ""
    constant: str = ""


Reference = tuple[str, Cell | Indexed]
"""How a formula refers to an object or to a value of a finite sort: the sort, and where it is found."""


@dataclass(eq=False)
class Instances:
    """Many instances: which row each of their rows is, and what each of their variables stands for."""

    count: int
    rows: dict[str, Tensor]  # (instances, rows of an instance) by name of the rows
    own: dict[str, Tensor]  # (instances,) by variable: the index of an object or of an element, the position of a value

    def select(self, where: Tensor) -> Instances:
        """Some of them."""
        return Instances(
            len(where), {k: v[where] for k, v in self.rows.items()}, {k: v[where] for k, v in self.own.items()}
        )


Symbol = Predicate | Function
Block = tuple[str, Any]
"""Objects without an index: their sort, and the constant or the field (rows, name, axes of a sequence) they are in."""
Question = tuple[tuple[Any, ...], Instances, Sequence[Reference]]
"""Arguments of a symbol, the instances in which they are asked about, and what the labels of objects refer to."""
