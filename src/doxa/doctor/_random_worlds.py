"""Random truth values: worlds in which a knowledge base can be tried before there are networks and data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from doxa.doctor._observed import Compared, compared_values
from doxa.errors import BudgetError, KnowledgeError
from doxa.logic import (
    INT,
    REAL,
    Call,
    Expr,
    Function,
    Interpretation,
    KnowledgeBase,
    Name,
    Predicate,
    Quantifier,
    Ragged,
    Sort,
    postorder,
    probs,
)
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._walk import fold

__all__ = ["RandomWorlds", "groundings"]


LIMIT = 1 << 22
"""Numbers in a tensor: with what is kept for derivatives, this fits 4 GB."""
LENGTH = 3
"""Of a field that is a sequence."""


class RandomWorlds:
    """Random truth values for every predicate, random distributions for every function, and data to match.

    Closed predicates are true of their facts; other predicates of guards are true of a random half of the objects.

    Args:
        kb: the knowledge.
        objects: how many objects an open sort has, and how many rows there are.
        generator: draws everything.
        limit: numbers in a tensor, at most.

    Raises:
        BudgetError: an axiom would have more instances than the limit, or a symbol more truth values.
    """

    def __init__(self, kb: KnowledgeBase, objects: int, generator: torch.Generator, limit: int = LIMIT) -> None:
        self.kb, self.generator = kb, generator
        signature = kb.signature
        self.entries = _check_size(kb, objects, limit)
        self.atoms: dict[str, nn.Parameter] = {}
        self.data: dict[str, Any] = {}
        sizes = {s.name: objects for s in signature.sorts.values() if s.is_open and s not in (INT, REAL)}
        names = {name: [c.name for c in signature.constants.values() if c.sort.name == name] for name in sizes}
        sizes = {name: max(size, len(names[name])) for name, size in sizes.items()}
        self._rows(sizes, objects)
        facts = {fact.atom.name for fact in kb.facts}
        bound: dict[str, Any] = {n: i for group in names.values() for i, n in enumerate(group)}
        symbols: list[Predicate | Function] = [*signature.predicates.values(), *signature.functions.values()]
        for symbol in symbols:
            shape = [self._size(symbol, sort, sizes) for sort in symbol.sorts]
            if isinstance(symbol, Predicate) and symbol.closed:
                continue
            endless = isinstance(symbol, Function) and symbol.result.values is None
            if endless or (symbol.name in _in_guards(kb) and symbol.name not in facts):
                bound[symbol.name] = self._certain(symbol, shape, sizes)
            else:
                last = [len(symbol.result.values or ())] if isinstance(symbol, Function) else []
                self.atoms[symbol.name] = nn.Parameter(torch.zeros([*shape, *last]))
                bound[symbol.name] = probs(self.atoms[symbol.name])
        self.draw()
        self.interpretation = Interpretation(kb, **bound)
        self.data |= sizes

    def count(self, group: Group) -> int:
        """How many objects or rows a variable ranges over."""
        return _count(self.kb, group, self.data)

    def draw(self) -> None:
        """Other truth values, uniform in (0, 1); other distributions, uniform among all."""
        functions = self.kb.signature.functions
        for name, atom in self.atoms.items():
            random = torch.rand(atom.shape, generator=self.generator).clamp(1e-4, 1 - 1e-4)
            if name in functions:
                random = -random.log()
                random = random / random.sum(-1, keepdim=True)
            atom.data.copy_(random)

    @contextmanager
    def rounded(self) -> Iterator[None]:
        """While this is open, every truth value is the nearest of 0 and 1, and functions have their likeliest value."""
        kept = {name: atom.detach().clone() for name, atom in self.atoms.items()}
        for name, atom in self.atoms.items():
            likeliest = atom.data == atom.data.amax(-1, keepdim=True) if name in self.kb.signature.functions else None
            atom.data.copy_(atom.data.round() if likeliest is None else likeliest)
        yield
        for name, atom in self.atoms.items():
            atom.data.copy_(kept[name])

    def _size(self, symbol: Predicate | Function, sort: Sort, sizes: dict[str, int]) -> int:
        if sort in (INT, REAL):
            raise KnowledgeError(f"{symbol.name} is about numbers, so no truth values can be drawn; give a run")
        return sizes[sort.name] if sort.values is None else len(sort.values)

    def _certain(self, symbol: Predicate | Function, shape: list[int], sizes: dict[str, int]) -> Tensor:
        random = torch.rand(shape, generator=self.generator)
        if isinstance(symbol, Predicate):
            return random < 0.5
        if symbol.result == REAL:
            return random
        values = symbol.result.values
        high = 10 if symbol.result == INT else sizes[symbol.result.name] if values is None else len(values)
        place = (random * high).long()
        return place + values[0] if isinstance(values, range) else place

    def _rows(self, sizes: dict[str, int], count: int) -> None:
        signature = self.kb.signature
        compared = compared_values(self.kb.axioms, signature)
        for name in sorted(_ranged_rows(self.kb)):
            if name not in signature.rows:
                raise KnowledgeError(f"the fields of {name} are not declared; declare them: data {name}(field: Sort)")
            self.data[name] = {}
            for field, sort, many in signature.rows[name].fields:
                total = LENGTH * count if many else count
                if sort.is_open and sort not in (INT, REAL):
                    start = sizes[sort.name]
                    sizes[sort.name] = start + total
                    column = torch.arange(start, start + total)
                elif sort == REAL:
                    column = torch.rand(total, generator=self.generator)
                else:
                    values = sort.values or _likely(compared.get((name, field)))
                    places = torch.randint(len(values), (total,), generator=self.generator)
                    column = places if isinstance(values, tuple) else torch.tensor(list(values))[places]
                self.data[name][field] = Ragged(column, torch.full((count,), LENGTH)) if many else column


def groundings(formula: Expr, count: Callable[[Group], int]) -> int:
    """How many choices of variables a formula has where it has the most, by how many a variable ranges over."""

    def inside(node: Expr, children: tuple[int, ...]) -> int:
        own = [count(group) ** len(group.names) for group in node.groups] if isinstance(node, Quantifier) else []
        return int(math.prod(own)) * max(children, default=1)

    return fold(inside, formula)


def _count(kb: KnowledgeBase, group: Group, data: Mapping[str, Any]) -> int:
    if group.sort is not None:
        values = kb.signature.sorts[group.sort].values
        size = data.get(group.sort, 1) if values is None else len(values)
    elif isinstance(group.domain, Name):
        rows = data.get(group.domain.name, 1)
        size = rows if isinstance(rows, int) else len(next(iter(rows.values())))
    else:
        size = LENGTH
    return int(size if group.sample is None else min(group.sample, size))


def _check_size(kb: KnowledgeBase, objects: int, limit: int) -> int:
    """The numbers in the largest tensor of all axioms; an error if they are too many."""
    signature = kb.signature
    every = dict.fromkeys((*signature.sorts, *signature.rows), objects)
    for name in _ranged_rows(kb):
        fields = signature.rows[name].fields if name in signature.rows else ()
        for _, sort, many in fields:
            if sort.name in every:
                every[sort.name] += objects * (LENGTH if many else 1)
    most = 0
    for axiom in kb.axioms:
        most = max(most, found := groundings(axiom.formula, lambda group: _count(kb, group, every)))
        if found > limit:
            raise BudgetError(
                "entries",
                f"axiom {axiom.name!r} has {found:,} instances with {objects:,} objects or rows of each kind, more "
                f"than the limit of {limit:,}; take fewer objects, or 'sample' in the axiom",
            )
    symbols: list[Predicate | Function] = [*signature.predicates.values(), *signature.functions.values()]
    for symbol in symbols:
        last = [len(symbol.result.values or ())] if isinstance(symbol, Function) else []
        sizes = [every[s.name] if s.values is None else len(s.values) for s in symbol.sorts if s not in (INT, REAL)]
        most = max(most, found := math.prod([*sizes, *last]))
        if found > limit:
            raise BudgetError(
                "entries",
                f"{symbol.name} has {found:,} values with {objects:,} objects or rows of each kind, more than the "
                f"limit of {limit:,}; take fewer objects",
            )
    return most


def _ranged_rows(kb: KnowledgeBase) -> set[str]:
    """The rows that variables range over."""
    quantifiers = [node for axiom in kb.axioms for node in postorder(axiom.formula) if isinstance(node, Quantifier)]
    return {g.domain.name for q in quantifiers for g in q.groups if isinstance(g.domain, Name)}


def _likely(numbers: Compared | None) -> list[int]:
    """What a field may hold; a number that it is never compared with only where it is compared with no two others."""
    if numbers is None:
        return [0]
    named = [v for v in numbers.equal if v == int(v)]
    return sorted(named) if len(named) > 1 and not numbers.ordered else numbers.values(INT)


def _in_guards(kb: KnowledgeBase) -> set[str]:
    """The symbols of guards."""
    nodes = [node for axiom in kb.axioms for node in postorder(axiom.formula) if isinstance(node, Quantifier)]
    return {c.name for node in nodes if node.guard is not None for c in postorder(node.guard) if isinstance(c, Call)}
