"""The objects and rows that knowledge is tried on: how many there are, and which objects stand in which fields."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from doxa.doctor._observed import Place
from doxa.errors import KnowledgeError
from doxa.logic import INT, REAL, Expr, Function, KnowledgeBase, Name, Predicate, Quantifier, Ragged, Sort, postorder
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._symbols import Signature
from doxa.logic.syntax._tree import fold


def ranges(*formulas: Expr) -> Iterator[Group]:
    """What the variables of formulas range over."""
    for node in postorder(*formulas):
        if isinstance(node, Quantifier):
            yield from node.groups


def ranged_rows(*formulas: Expr) -> set[str]:
    """The rows that variables of formulas range over."""
    return {group.domain.name for group in ranges(*formulas) if isinstance(group.domain, Name)}


def has_objects(sort: Sort) -> bool:
    """Is a sort open, and no numbers?"""
    return sort.is_open and sort not in (INT, REAL)


def symbols(kb: KnowledgeBase) -> list[Predicate | Function]:
    """Predicates and functions."""
    return [*kb.signature.predicates.values(), *kb.signature.functions.values()]


class Layout:
    """Objects and rows: how many of each, objects beside those in rows; and which objects stand in which fields."""

    def __init__(
        self,
        signature: Signature,
        rows: Mapping[str, int],
        objects: Mapping[str, int],
        lengths: int | Mapping[Place, int],
    ) -> None:
        self.signature, self.rows, self.objects = signature, dict(rows), dict(objects)
        self.lengths: dict[Place, int] = {}
        self.sorts: dict[Place, Sort] = {}
        self.cells: dict[Place, range] = {}  # objects
        self.observed: dict[Place, Sort] = {}  # numbers and values
        for name in rows:
            for field, sort, many in fields_of(signature, name):
                self.sorts[name, field] = sort
                if many:
                    self.lengths[name, field] = lengths if isinstance(lengths, int) else lengths[name, field]
                if has_objects(sort):
                    start = self.objects.get(sort.name, 0)
                    self.objects[sort.name] = start + self.total(name, field)
                    self.cells[name, field] = range(start, self.objects[sort.name])
                else:
                    self.observed[name, field] = sort

    def total(self, rows: str, field: str) -> int:
        """How many objects or values stand in a field of all rows."""
        return self.rows[rows] * self.lengths.get((rows, field), 1)

    def data(self, columns: Mapping[Place, Sequence[Any] | torch.Tensor], times: int = 1) -> dict[str, Any]:
        """Objects and rows as data: so many copies of the rows, with these columns of what is observed."""
        found: dict[str, Any] = {**self.objects, **{name: {} for name in self.rows}}
        for rows, field in self.sorts:
            place = (rows, field)
            if place in self.cells:
                column = torch.tensor(list(self.cells[place]), dtype=torch.int64).repeat(times)
            elif isinstance(given := columns[place], torch.Tensor):
                column = given
            else:
                column = torch.tensor(given, dtype=torch.float64 if self.sorts[place] == REAL else None)
            if place in self.lengths:
                lengths = torch.full((self.rows[rows] * times,), self.lengths[place])
                found[rows][field] = Ragged(column if len(column) else column.long(), lengths)
            else:
                found[rows][field] = column
        return found

    def size(self, group: Group) -> int:
        """How many objects, values or rows a variable ranges over."""
        if group.sort is not None:
            values = self.signature.sorts[group.sort].values
            size = self.objects.get(group.sort, 1) if values is None else len(values)
        elif isinstance(group.domain, Name):
            size = self.rows.get(group.domain.name, 1)
        else:
            size = max(self.lengths.values(), default=1)
        return size if group.sample is None else min(group.sample, size)

    def instances(self, formula: Expr) -> int:
        """How many choices of variables a formula has where it has the most."""

        def inside(node: Expr, children: tuple[int, ...]) -> int:
            groups = node.groups if isinstance(node, Quantifier) else ()
            own = math.prod([self.size(group) ** len(group.names) for group in groups])
            return int(own) * max(children, default=1)

        return fold(inside, formula)

    def shape(self, symbol: Predicate | Function) -> list[int]:
        """How many objects or values each argument of a symbol has, and for a function also its result."""
        about = [self.objects.get(s.name, 0) if s.values is None else len(s.values) for s in symbol.sorts]
        return [*about, len(symbol.result.values or ())] if isinstance(symbol, Function) else about


def fields_of(signature: Signature, rows: str) -> Sequence[tuple[str, Sort, bool]]:
    """Name and sort of each field of rows, and whether it is a sequence."""
    if rows not in signature.rows:
        raise KnowledgeError(f"the fields of {rows} are not declared; declare them: data {rows}(field: Sort, …)")
    return signature.rows[rows].fields
