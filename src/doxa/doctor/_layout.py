"""The objects and rows that knowledge is tried on: how many there are, and which objects stand in which fields."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from doxa.doctor._observed import Place
from doxa.errors import KnowledgeError
from doxa.logic import INT, REAL, Expr, Function, KnowledgeBase, Name, Predicate, Quantifier, Ragged, Sort, postorder
from doxa.logic.syntax._binders import Binder, Group, Let
from doxa.logic.syntax._symbols import Signature
from doxa.logic.syntax._tree import And, Arith, Call, Compare, Index, Not, Number, fold


def ranges(*formulas: Expr) -> Iterator[Group]:
    """What the variables of formulas range over."""
    for node in postorder(*formulas):
        if isinstance(node, Binder):
            yield from node.groups


def ranged_rows(*formulas: Expr) -> set[str]:
    """The rows that variables of formulas range over."""
    return {group.domain.name for group in ranges(*formulas) if isinstance(group.domain, Name)}


def has_objects(sort: Sort) -> bool:
    """Is a sort open, and no numbers?"""
    return sort.is_open and sort not in (INT, REAL)


def symbols(kb: KnowledgeBase) -> list[Predicate | Function]:
    """Predicates and functions that are bound to something; what is defined follows from them."""
    every: list[Predicate | Function] = [*kb.signature.predicates.values(), *kb.signature.functions.values()]
    return [symbol for symbol in every if symbol.name not in kb.signature.definitions]


def mentions(formula: Expr, symbols: Sequence[Predicate | Function]) -> list[Expr]:
    """Formulas that need all that a formula reads of these symbols, also what does not matter for its truth.

    Each is what is read, below the variables that it speaks of: ``forall x. a(x)`` for ``forall x. a(x) | !a(x)``.
    """
    by_name = {symbol.name: symbol for symbol in symbols}
    found: dict[tuple[Any, ...], list[Expr]] = {}
    stack: list[tuple[Expr, tuple[Binder | Let, ...]]] = [(formula, ())]
    seen = set(stack)
    while stack:
        node, binders = stack.pop()
        below = [(child, binders) for child in node.children]
        match node:
            case Binder():
                below = [(child, (*binders, node)) for child in node.children]
            case Let():
                pairs = list(zip(node.names, node.values, strict=True))
                lets = [(*binders, Let(pairs[:i], node.body)) if i else binders for i in range(len(pairs) + 1)]
                below = list(zip(node.children, lets, strict=True))
            case Call() if node.name in by_name and not node.fresh:
                drawn = [n.name for n in postorder(*node.children) if isinstance(n, Call)]
                alone = drawn or any(
                    isinstance(binder, Let) for binder in binders
                )  # what it reads can depend on others
                if (said := _said(node, by_name[node.name], binders)) is not None:
                    found.setdefault((binders, node if alone else None), []).append(said)
        stack += [item for item in below if item not in seen]
        seen.update(below)
    return [_below(binders, And(*said) if len(said) > 1 else said[0]) for (binders, _), said in found.items()]


def _said(call: Call, symbol: Predicate | Function, binders: Sequence[Binder | Let]) -> Expr | None:
    """A formula about a call that is neither true nor false for sure."""
    if isinstance(symbol, Predicate):
        return call
    hidden = {name for binder in binders for name in binder.names}
    value = next((v for v in symbol.result.values or () if v not in hidden), None)
    if value is None or symbol.result.size == 1:
        return None
    return Compare("=", call, Name(value) if isinstance(value, str) else Number(value))


def _below(binders: Sequence[Binder | Let], said: Expr) -> Expr:
    """For all that the variables can be. Guards stay only where something might have no value without them."""
    terms = postorder(*[child for call in postorder(said) if isinstance(call, Call) for child in call.children])
    partial = any(isinstance(node, Arith | Index | Call | Let) for node in (*terms, *binders))
    for depth, binder in reversed(list(enumerate(binders))):
        if isinstance(binder, Let):
            said = Let(zip(binder.names, binder.values, strict=True), said)
        else:
            groups = [Group(g.names, sort=g.sort, domain=g.domain) for g in binder.groups]
            said = Quantifier("forall", groups, said, guard=binder.guard if partial else None)
        said = Not(Not(said)) if depth else said  # the outermost has an instance for each choice, as in the axiom
    return said


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
            groups = node.groups if isinstance(node, Binder) else ()
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
