"""What can be observed of a row: the numbers of a field that knowledge can tell apart."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, pairwise, product
from typing import Any

from doxa.doctor._polynomials import Polynomial, add, constant, multiply, representatives, variable
from doxa.logic import INT, REAL, Arith, Call, Compare, Expr, Field, Let, Name, Number, Quantifier, Sort, postorder
from doxa.logic.syntax._symbols import ARITHMETIC, Signature
from doxa.logic.syntax._tree import fold

_MOST = 4096  # values of a term
_TRIED = 1 << 16  # combinations of values, where something occurs twice in a term

Values = set[Any] | None  # all numbers that a term may be; None where that is not known
Place = tuple[str, str]  # the name of the rows, and the field


@dataclass
class Compared:
    """What the numbers of a field are compared with."""

    equal: set[Any] = field(default_factory=set)  # by = and !=
    ordered: set[Any] = field(default_factory=set)  # by < and its like
    period: int = 1  # numbers that differ by a multiple of this are alike, beside what they are compared with
    spare: int = 1  # so many numbers are needed that are alike: one for each field that is compared with this one
    unclear: str | None = None  # where the field stands in a way that says too little about its numbers

    def values(self, sort: Sort) -> list[Any]:
        """Every number that the field is compared with, and one for all others; where order matters, one of each gap.

        >>> Compared({1, 2}).values(INT), Compared({6}, {5, 7, 8}).values(INT), Compared(set(), {0.5}).values(REAL)
        ([0, 1, 2], [4, 5, 6, 7, 8, 9], [-0.5, 0.5, 1.5])
        """
        known = self.equal | self.ordered
        ends = [-math.inf, *sorted(self.ordered), math.inf]
        others = [v for low, high in pairwise(ends) for v in self._spare(_between(low, high, known, sort == INT))]
        return sorted([v for v in {*known, *others} if sort == REAL or v == int(v)])

    def _spare(self, candidates: Iterator[Any]) -> Iterator[Any]:
        """Enough of each kind."""
        left = dict.fromkeys(range(self.period), self.spare)
        for candidate in candidates:
            kind = int(candidate // 1) % self.period
            if kind in left:
                yield candidate
                left[kind] -= 1
                left = {k: n for k, n in left.items() if n}
            if not left:
                return


def _between(low: float, high: float, known: Collection[Any], whole: bool) -> Iterator[Any]:
    """Numbers between two others, but none that are known."""
    if not whole and math.isfinite(low) and math.isfinite(high):
        candidates: Iterable[Any] = (low + (high - low) / 2**i for i in count(1))
    elif math.isfinite(low):
        candidates = count(math.floor(low) + 1 if whole else low + 1)
    else:
        candidates = count(0) if high == math.inf else count(math.ceil(high) - 1 if whole else high - 1, -1)
    for candidate in candidates:
        if not low < candidate < high:
            return
        if candidate not in known:
            yield candidate


def compared_values(
    formulas: Iterable[Expr],
    signature: Signature,
    *,
    given: Mapping[str, Collection[Any]] | None = None,
    constants: Mapping[str, Any] | None = None,
    rows: Mapping[str, int] | None = None,
) -> dict[Place, Compared]:
    """What each field of numbers that are not ``given`` is compared with; ``rows`` counts rows, by default one each."""
    return told_apart(formulas, signature, given=given, constants=constants, rows=rows)[0]


Joint = list[tuple[tuple[Place, ...], list[tuple[int, ...]]]]
"""Fields whose numbers matter together, and one choice of numbers for them of each kind."""


def told_apart(
    formulas: Iterable[Expr],
    signature: Signature,
    *,
    given: Mapping[str, Collection[Any]] | None = None,
    constants: Mapping[str, Any] | None = None,
    rows: Mapping[str, int] | None = None,
) -> tuple[dict[Place, Compared], Joint]:
    """What each field of numbers is compared with, and the fields that are multiplied or compared with each other."""
    scope = _Scope(signature, dict(given or {}), dict(constants or {}))
    for formula in formulas:
        scope.visit(formula)
    joint = scope.solve(rows or {})
    scope.join(rows or {})
    return scope.found, joint


class _Scope:
    """Formulas from the outside in. Every variable gets a name of its own, and ``:=`` is written out."""

    def __init__(self, signature: Signature, given: dict[str, Collection[Any]], constants: dict[str, Any]) -> None:
        self.signature, self.given, self.constants = signature, given, constants
        self.found: dict[Place, Compared] = {}
        self.ranges: dict[str, Values] = {}  # of variables
        self.rows: dict[str, str] = {}  # what variables are rows of
        self.links: list[tuple[Place, Place, bool]] = []  # fields that are compared with fields, and whether by order
        self.hard: list[tuple[set[Place], list[Polynomial], str]] = []  # fields in comparisons that are not solved

    def visit(self, formula: Expr) -> None:
        stack: list[tuple[Expr, dict[str, Expr]]] = [(formula, {})]
        while stack:
            node, bound = stack.pop()
            match node:
                case Quantifier():
                    bound = self._entered(node, bound)
                    stack += [(part, bound) for part in (node.guard, node.body) if part is not None]
                case Let():
                    for name, value in zip(node.names, node.values, strict=True):
                        bound = bound | {name: _written_out(value, bound)}
                    stack.append((node.body, bound))
                case Compare():
                    self._compare(node, bound)
                case Call():
                    self._give_up([_written_out(child, bound) for child in node.children], node)
                case _:
                    stack += [(child, bound) for child in node.children]

    def _entered(self, node: Quantifier, bound: dict[str, Expr]) -> dict[str, Expr]:
        inside = dict(bound)
        for group in node.groups:
            domain = None if group.domain is None else _written_out(group.domain, inside)
            for name in group.names:
                variable = Name(f"{name} {len(self.ranges)}")
                inside[name] = variable
                self.ranges[variable.name] = None
                if group.sort is not None:
                    self.ranges[variable.name] = _numbers(self.signature.sorts[group.sort])
                elif isinstance(domain, Name):
                    self.rows[variable.name] = domain.name
                elif isinstance(domain, Field) and self._place(domain) is not None:
                    inside[name] = domain  # an element of a sequence of numbers
                elif isinstance(domain, Field):
                    self.ranges[variable.name] = self._possible(domain)
        return inside

    def _compare(self, node: Compare, bound: dict[str, Expr]) -> None:
        """Solve a comparison for the field in it."""
        side, other = [_written_out(child, bound) for child in node.children]
        if self._has_field(other):
            side, other = other, side
        if not self._has_field(side):
            return
        while isinstance(side, Arith) and side.op in ("+", "-") and not self._has_field(other):
            op, first, last = side.op, side.children[0], side.children[-1]
            if len(side.children) == 1:
                side, other = first, Arith("-", other)
            elif self._has_field(first):
                side, other = first, Arith("-" if op == "+" else "+", other, last)
            else:
                side, other = last, Arith("-", other, first) if op == "+" else Arith("-", first, other)
        place, beside = self._place(side), self._place(other)
        ordered = node.op not in ("=", "!=")
        if place is not None and beside is not None:
            self.links.append((place, beside, ordered))
            return
        values = None if self._has_field(other) else self._possible(other)
        if values is None or (place is None and not self._divided(side, values, ordered)):
            found = self._polynomials(Arith("-", side, other))
            if found is None:
                self._give_up([side, other], node)
            else:
                named = {place for p in found for monomial in p for place in monomial}
                self.hard.append((named, found, str(node)))
        elif place is not None:
            compared = self.found.setdefault(place, Compared())
            (compared.ordered if ordered else compared.equal).update(values)

    def _divided(self, side: Expr, values: set[Any], ordered: bool) -> bool:
        """Solve a comparison of ``field * n``, ``field // n`` or ``field mod n`` with values; False if it cannot be."""
        if not isinstance(side, Arith) or side.op not in ("*", "//", "mod"):
            return False
        first, by = side.children
        if side.op == "*" and self._has_field(by):
            first, by = by, first
        found = self._sort(first)
        factors = None if self._has_field(by) else self._possible(by)
        if factors is None or found is None or self._place(first) is None or found[1] != INT:
            return False
        factors = factors - {0}
        if side.op != "mod" and len(values) * len(factors) > _MOST:
            return False
        compared = self.found.setdefault(found[0], Compared())
        if side.op == "*" and not ordered:
            compared.equal |= {v // n for v in values for n in factors if v % n == 0}
        elif side.op == "*":
            compared.ordered |= {end for v in values for n in factors for end in (v // n, -(-v // n))}
        elif side.op == "//":
            compared.ordered |= {(v + i) * n + j for v in values for n in factors for i in (0, 1) for j in (-1, 0, 1)}
        else:
            compared.period = math.lcm(compared.period, *map(abs, factors))
        return compared.period <= _MOST

    def _polynomials(self, term: Expr) -> list[Polynomial] | None:
        """The term as a polynomial of fields, for all values of what else is in it; None if it is none."""
        leaves = {leaf: self._leaf(leaf) for leaf in _leaves(term) if self._place(leaf) is None}
        fields = [self._sort(leaf) for leaf in _leaves(term) if self._place(leaf) is not None]
        if any(v is None for v in leaves.values()) or any(f is None or f[1] != INT for f in fields):
            return None
        if any(isinstance(leaf, Call) and leaf.fresh for leaf in leaves):
            return None
        if math.prod([len(v or ()) for v in leaves.values()]) > _MOST:
            return None
        found = []
        for choice in product(*[v or () for v in leaves.values()]):
            one = self._polynomial(term, dict(zip(leaves, choice, strict=True)))
            if one is None:
                return None
            found.append(one)
        return found

    def _polynomial(self, term: Expr, values: Mapping[Expr, Any]) -> Polynomial | None:
        def made(node: Expr, parts: tuple[Polynomial | None, ...]) -> Polynomial | None:
            if (place := self._place(node)) is not None:
                return variable(place)
            if not isinstance(node, Arith):
                value = values.get(node)
                return constant(int(value)) if value is not None and value == int(value) else None
            if any(part is None for part in parts):
                return None
            sides: list[Polynomial] = [part for part in parts if part is not None]
            if node.op in ("+", "-"):
                first, last = ({}, sides[0]) if len(sides) == 1 else (sides[0], sides[1])
                return add(first, last, -1 if node.op == "-" else 1)
            if node.op == "*":
                return multiply(sides[0], sides[1])
            numbers = [part.get((), 0) for part in sides if not any(part)]
            if len(numbers) < len(sides) or not numbers[-1]:
                return None
            return constant(int(ARITHMETIC[node.op](*numbers)))

        return fold(made, term)

    def solve(self, rows: Mapping[str, int]) -> Joint:
        """Of fields that stand together in comparisons that are not solved, one choice of numbers of each kind."""
        joint: Joint = []
        parts = [set(places) for places, _, _ in self.hard]
        for a, b, _ in self.links:
            if any({a, b} & part for part in parts):
                parts.append({a, b})
        while parts:
            places = parts.pop()
            while touching := [part for part in parts if part & places]:
                places |= set().union(*touching)
                parts = [part for part in parts if part not in touching]
            every = [p for named, own, _ in self.hard if named <= places for p in own]
            every += [add(variable(a), variable(b), -1) for a, b, _ in self.links if a in places]
            known = [(place, self.found[place]) for place in places if place in self.found]
            values = [(place, v) for place, compared in known for v in compared.equal | compared.ordered]
            every += [add(variable(place), constant(-int(v))) for place, v in values if v == int(v)]
            whole = all(compared.period == 1 and not compared.unclear for _, compared in known)
            single = all(rows.get(name, 1) == 1 for name, _ in places) and all(v == int(v) for _, v in values)
            found = representatives(every) if whole and single else None
            where = next((said for named, _, said in self.hard if named <= places), "")
            for place in places:
                self.found[place] = Compared(unclear=None if found else where)
            if found:
                joint.append(found)
                for i, place in enumerate(found[0]):
                    self.found[place].equal |= {numbers[i] for numbers in found[1]}
            self.links = [link for link in self.links if link[0] not in places]
        return joint

    def join(self, rows: Mapping[str, int]) -> None:
        """Fields that are compared with each other are compared with the same numbers, and need as many of a kind."""
        classes: dict[Place, set[Place]] = {}
        for a, b, _ in self.links:
            both = classes.get(a, {a}) | classes.get(b, {b})
            classes |= dict.fromkeys(both, both)
        for places in {id(c): c for c in classes.values()}.values():
            every = [self.found.setdefault(place, Compared()) for place in sorted(places)]
            equal, ordered = set().union(*[c.equal for c in every]), set().union(*[c.ordered for c in every])
            if ordered or any(by_order for a, _, by_order in self.links if a in places):
                ordered |= equal
            shared = {"period": math.lcm(*[c.period for c in every]), "spare": sum(rows.get(r, 1) for r, _ in places)}
            unclear = next((c.unclear for c in every if c.unclear), None)
            for place in places:
                self.found[place] = Compared(equal, ordered, **shared, unclear=unclear)

    def _give_up(self, terms: list[Expr], where: Expr) -> None:
        for node in postorder(*terms):
            if (place := self._place(node)) is not None:
                self.found.setdefault(place, Compared()).unclear = str(where)

    def _has_field(self, term: Expr) -> bool:
        return any(self._place(node) is not None for node in postorder(term))

    def _sort(self, node: Expr) -> tuple[Place, Sort] | None:
        """Which field of which rows a term is."""
        if not isinstance(node, Field) or not isinstance(node.children[0], Name):
            return None
        rows = self.signature.rows.get(self.rows.get(node.children[0].name, ""))
        sorts = {} if rows is None else {name: sort for name, sort, _ in rows.fields}
        return None if rows is None or node.name not in sorts else ((rows.name, node.name), sorts[node.name])

    def _place(self, node: Expr) -> Place | None:
        """The field that a term is, if it holds numbers that are not known."""
        found = self._sort(node)
        return None if found is None or found[1] not in (INT, REAL) or node.label in self.given else found[0]

    def _leaf(self, node: Expr) -> Values:
        match node:
            case Number():
                return {node.value}
            case Name() if node.name in self.ranges:
                return self.ranges[node.name]
            case Name() if node.name in self.constants:
                value = self.constants[node.name]
                return {value} if isinstance(value, int | float) else None
            case Name() if node.name in self.signature.constants:
                return _numbers(self.signature.constants[node.name].sort)
            case Call() if node.name in self.signature.functions:
                return _numbers(self.signature.functions[node.name].result)
            case Field() if node.name in self.given:
                return set(self.given[node.name])
            case Field() if (found := self._sort(node)) is not None:
                return _numbers(found[1])
        return None

    def _possible(self, term: Expr) -> Values:
        """All numbers that a term without fields of unknown numbers may be."""
        leaves = list(_leaves(term))
        values = {leaf: self._leaf(leaf) for leaf in leaves}
        if any(v is None for v in values.values()):
            return None
        once = len(values) == len(leaves) or any(isinstance(leaf, Call) and leaf.fresh for leaf in leaves)
        if once:
            return _computed(term, values)
        if math.prod([len(v or ()) for v in values.values()]) > _TRIED:
            return None
        found: set[Any] = set()
        for choice in product(*[v or () for v in values.values()]):
            found |= _computed(term, {leaf: {v} for leaf, v in zip(values, choice, strict=True)}) or set()
        return found if len(found) <= _MOST else None


def _written_out(term: Expr, bound: Mapping[str, Expr]) -> Expr:
    def written(node: Expr, children: tuple[Expr, ...]) -> Expr:
        return bound.get(node.name, node) if isinstance(node, Name) else node.with_children(children)

    return fold(written, term)


def _leaves(term: Expr) -> Iterator[Expr]:
    """What a term is computed from, as often as it occurs."""
    stack = [term]
    while stack:
        node = stack.pop()
        if isinstance(node, Arith):
            stack += node.children
        else:
            yield node


def _computed(term: Expr, leaves: Mapping[Expr, Values]) -> Values:
    """The values of a term whose leaves have values independently of each other."""

    def computed(node: Expr, parts: tuple[Values, ...]) -> Values:
        if not isinstance(node, Arith):
            return leaves.get(node)  # nothing for what stands inside of leaves
        sides = [part for part in ([{0}, *parts] if len(parts) == 1 else parts) if part is not None]
        if len(sides) != 2 or len(sides[0]) * len(sides[1]) > _MOST * _MOST:
            return None
        divides = node.op in ("//", "mod")
        values = {ARITHMETIC[node.op](a, b) for a, b in product(*sides) if b or not divides}
        return values if len(values) <= _MOST else None

    return fold(computed, term)


def _numbers(sort: Sort) -> Values:
    return set(sort.values) if isinstance(sort.values, range) and len(sort.values) <= _MOST else None
