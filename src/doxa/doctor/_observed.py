"""What can be observed of a row: the numbers that a field of type Int can have, read off what it is compared with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import product

from doxa.logic import (
    Arith,
    Axiom,
    Call,
    Compare,
    Expr,
    Field,
    Let,
    Name,
    Number,
    Quantifier,
    Signature,
    postorder,
)

__all__ = ["compared_values"]

_MOST = 4096  # values of a term
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "mod": operator.mod,
}

Values = set[int] | None
"""All values that a term may have, perhaps some more; None where that is not known."""


def compared_values(axioms: Iterable[Axiom], signature: Signature) -> dict[str, set[int]]:
    """For each field, the values that terms beside it in comparisons may have: all that can make a difference."""
    found: dict[str, set[int]] = {}
    for axiom in axioms:
        terms = _terms(axiom.formula, signature)
        for node in postorder(axiom.formula):
            if not isinstance(node, Compare):
                continue
            for side, other in (node.children, node.children[::-1]):
                values = terms.get(id(other))
                if isinstance(side, Field) and values:
                    # beyond the ends, an order comparison says the same everywhere
                    ends = set() if node.op in ("=", "!=") else {min(values) - 1, max(values) + 1}
                    found.setdefault(side.name, set()).update(values, ends)
    return found


def _terms(formula: Expr, signature: Signature) -> dict[int, Values]:
    """The values that each term of a formula may have, as if no variable occurred twice."""
    bound: dict[str, Expr | Values] = {}
    for node in postorder(formula):
        if isinstance(node, Let):
            bound.update(zip(node.names, node.values, strict=True))
        elif isinstance(node, Quantifier):
            for group in node.groups:
                sort = None if group.sort is None else signature.sorts[group.sort].values
                bound.update(dict.fromkeys(group.names, set(sort) if isinstance(sort, range) else None))
    found: dict[int, Values] = {}
    for node in postorder(formula, *[value for value in bound.values() if isinstance(value, Expr)]):
        found[id(node)] = _values(node, found, bound, signature)
    return found


def _values(node: Expr, found: dict[int, Values], bound: dict[str, Expr | Values], signature: Signature) -> Values:
    match node:
        case Number() if isinstance(node.value, int):
            return {node.value}
        case Name() if node.name in bound:
            value = bound[node.name]
            return _look(value, found, bound, signature) if isinstance(value, Expr) else value
        case Call() if node.name in signature.functions:
            listed = signature.functions[node.name].result.values
            return set(listed) if isinstance(listed, range) else None
        case Arith():
            parts = [_look(child, found, bound, signature) for child in node.children]
            sides = [part for part in ([{0}, *parts] if len(parts) == 1 else parts) if part is not None]
            if len(sides) != 2 or len(sides[0]) * len(sides[1]) > _MOST * _MOST:
                return None
            divides = node.op in ("//", "mod")
            values = {_ARITHMETIC[node.op](a, b) for a, b in product(*sides) if b or not divides}
            return values if len(values) <= _MOST else None
    return None


def _look(node: Expr, found: dict[int, Values], bound: dict[str, Expr | Values], signature: Signature) -> Values:
    if id(node) not in found:  # a statement is met after its body
        found[id(node)] = _values(node, found, bound, signature)
    return found[id(node)]
