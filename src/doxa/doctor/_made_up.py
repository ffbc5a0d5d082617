"""Made-up truth values: a world in which a knowledge base can be tried before there are networks and data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from doxa.doctor._observed import Compared, compared_values
from doxa.errors import KnowledgeError
from doxa.logic import (
    INT,
    REAL,
    Call,
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

__all__ = ["MadeUp"]


class MadeUp:
    """Random truth values for every predicate, random distributions for every function, and data to match.

    Closed predicates are true of their facts; other predicates of guards are true of a random half of the objects.

    Args:
        kb: the knowledge.
        objects: how many objects an open sort has, and how many rows there are.
        generator: draws everything.
    """

    def __init__(self, kb: KnowledgeBase, objects: int, generator: torch.Generator) -> None:
        self.kb, self.generator = kb, generator
        signature = kb.signature
        self.atoms: dict[str, nn.Parameter] = {}
        self.data: dict[str, Any] = {}
        sizes = {s.name: objects for s in signature.sorts.values() if s.is_open and s not in (INT, REAL)}
        names = {name: [c.name for c in signature.constants.values() if c.sort.name == name] for name in sizes}
        sizes = {name: max(size, len(names[name])) for name, size in sizes.items()}
        self._rows(sizes, objects)
        facts = {fact.atom.name for fact in kb.facts}
        bound: dict[str, Any] = {n: i for group in names.values() for i, n in enumerate(group) if not facts}
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
        self.data |= {name: size for name, size in sizes.items() if not names[name] or not facts}

    def draw(self) -> None:
        """Other truth values, uniform in (0, 1); other distributions, uniform among all."""
        functions = self.kb.signature.functions
        for name, atom in self.atoms.items():
            random = torch.rand(atom.shape, generator=self.generator).clamp(1e-4, 1 - 1e-4)
            if name in functions:
                random = -random.log()
                random = random / random.sum(-1, keepdim=True)
            atom.data.copy_(random)

    def _size(self, symbol: Predicate | Function, sort: Sort, sizes: dict[str, int]) -> int:
        if sort in (INT, REAL):
            raise KnowledgeError(f"{symbol.name} is about numbers, so no truth values can be made up; give a run")
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
        used = {
            group.domain.name
            for axiom in self.kb.axioms
            for node in postorder(axiom.formula)
            if isinstance(node, Quantifier)
            for group in node.groups
            if isinstance(group.domain, Name)
        }
        for name in sorted(used):
            if name not in signature.rows:
                raise KnowledgeError(f"the fields of {name} are not declared; declare them: data {name}(field: Sort)")
            self.data[name] = {}
            for field, sort, many in signature.rows[name].fields:
                total = 3 * count if many else count
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
                self.data[name][field] = Ragged(column, torch.full((count,), 3)) if many else column


def _likely(numbers: Compared | None) -> list[int]:
    """What a field may hold; a number that it is never compared with only where it is compared with no two others."""
    if numbers is None:
        return [0]
    named = [v for v in numbers.equal if v == int(v)]
    return sorted(named) if len(named) > 1 and not numbers.ordered else numbers.values(INT)


def _in_guards(kb: KnowledgeBase) -> set[str]:
    return {call.name for guard in _guards(kb) for call in postorder(guard) if isinstance(call, Call)}


def _guards(kb: KnowledgeBase) -> Iterator[Any]:
    for axiom in kb.axioms:
        for node in postorder(axiom.formula):
            if isinstance(node, Quantifier) and node.guard is not None:
                yield node.guard
