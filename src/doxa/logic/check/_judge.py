"""What can be said of a formula without any data: does it always hold, or never?

Connectives are decided by a SAT solver over the atoms of the formula. Calls and quantified parts are propositions: two
of them are the same when they are the same tree, unless something in them is drawn afresh. Comparisons are tables over
what their terms can be: the values of a finite sort; for another term that is compared with numbers, those numbers and
some between; for two other terms, their order. Tables that share a term give a lemma: the joint truths that are
possible. The abstraction forgets links and never invents one, so what it decides is so; it need not decide.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from doxa.logic.check._sorts import Kind
from doxa.logic.sat._solve import satisfiable
from doxa.logic.syntax._symbols import ARITHMETIC, COMPARISON, Sort, literal
from doxa.logic.syntax._tree import CONNECTIVES, And, Arith, Call, Compare, Expr, Not, Number, Or, Truth

NODES = 200  # larger formulas are not judged
GRID = 2**16  # joint values of terms that are compared with each other; more are not looked at
EXACT = 2**50  # larger numbers are not calculated with

Meaning = Callable[[Expr], "Kind | int"]
"""What a term is: its kind, or its place in an enumerated sort when it is one of the values."""
Axes = dict[Hashable, npt.NDArray[Any]]  # the terms a comparison depends on, and what each can be
Side = Callable[[Axes], "npt.NDArray[Any] | None"]  # one side of a comparison, calculated from its terms


@dataclass(frozen=True)
class Comparison:
    """A comparison of two expressions over axes; ``table`` is its truth at every joint value."""

    node: Expr
    axes: Axes
    sides: tuple[Side, Side]

    def table(self, axes: Axes) -> npt.NDArray[np.bool_] | None:
        """The truth over given axes, one per dimension; None when it cannot be calculated."""
        shape = [len(v) for v in axes.values()]
        spread = {
            key: v.reshape([-1 if i == place else 1 for i in range(len(shape))])
            for place, (key, v) in enumerate(axes.items())
        }
        left, right = [side(spread) for side in self.sides]
        if left is None or right is None:
            return None
        return np.broadcast_to(COMPARISON[self.node.label](left, right), shape)


class Judge:
    """Judges formulas, within a budget of questions and with a memory of shapes already judged."""

    def __init__(self, tables: int = 20_000, questions: int = 5_000) -> None:
        self.tables = tables
        self.questions = questions
        self.known: dict[tuple[Expr, Expr], bool | None] = {}

    def verdict(self, formula: Expr, meaning: Meaning) -> bool | None:
        """True when the formula always holds, False when it never does, None when neither is known."""
        if isinstance(formula, Compare):
            if has_fresh(formula):
                return None
            truth = self.truths([compare(formula, meaning, {})])
            return None if truth is None or len(truth) != 1 else bool(truth[0, 0])
        order = occurrences(formula)
        return self.decide(order, meaning) if order is not None and doubtful(order) else None

    def decide(self, order: list[Expr], meaning: Meaning) -> bool | None:
        atoms: dict[Hashable, Expr] = {}
        comparisons: dict[Hashable, Comparison] = {}
        decidable = False
        steps: list[Expr] = []
        numbers = compared_numbers(order)
        for place, node in enumerate(order):
            if isinstance(node, (*CONNECTIVES, Truth)):
                decidable |= isinstance(node, Truth)
                steps.append(node)
                continue
            key: Hashable = place if has_fresh(node) else node
            decidable |= key in atoms
            if isinstance(node, Compare) and key is node and key not in atoms:
                comparisons[key] = compare(node, meaning, numbers)
            steps.append(atoms.setdefault(key, Call(str(len(atoms)))))
        lemma = And(*[self.lemma(group, atoms) for group in joined(comparisons)])
        if not decidable and isinstance(lemma, Truth):
            return None  # every atom stands once and is free
        root = assemble(steps)
        if (lemma, root) not in self.known:
            if self.questions < 2:
                return None
            self.questions -= 2
            can_fail, can_hold = satisfiable(And(lemma, Not(root))), satisfiable(And(lemma, root))
            self.known[lemma, root] = True if can_fail is None else False if can_hold is None else None
        return self.known[lemma, root]

    def lemma(self, group: dict[Hashable, Comparison], atoms: dict[Hashable, Expr]) -> Expr:
        """The joint truths that are possible for comparisons that share terms."""
        rows = self.truths(list(group.values()))
        if rows is None or len(rows) == 2 ** len(group) or len(rows) > NODES // len(group):
            return Truth(True)
        names = [atoms[key] for key in group]
        return Or(*[And(*[n if t else Not(n) for n, t in zip(names, row, strict=True)]) for row in rows])

    def truths(self, group: list[Comparison]) -> npt.NDArray[np.bool_] | None:
        """The distinct joint truths of comparisons over all values of their terms, one row each."""
        axes: Axes = {}
        for comparison in group:
            axes.update(comparison.axes)
        if not small(axes, len(group)) or self.tables < 1:
            return None
        self.tables -= 1
        tables = [c.table(axes) for c in group]
        if any(t is None for t in tables):
            return None
        return np.unique(np.stack([np.ravel(t) for t in tables if t is not None], axis=1), axis=0)


def doubtful(order: list[Expr]) -> bool:
    """Might anything be known of a formula? Not when every atom stands once, and so is free to be true or false."""
    atoms = [node for node in order if not isinstance(node, CONNECTIVES)]
    kinds = [type(atom) for atom in atoms]
    return Truth in kinds or kinds.count(Compare) > 1 or len(set(atoms)) < len(atoms)


def occurrences(root: Expr, kinds: tuple[type[Expr], ...] = CONNECTIVES) -> list[Expr] | None:
    """Nodes of these kinds and what is below them, children first, every occurrence; None when there are too many."""
    found: list[Expr] = []
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready or not isinstance(node, kinds):
            found.append(node)
        elif len(node.children) > NODES:
            return None
        else:
            stack.append((node, True))
            stack += [(c, False) for c in reversed(node.children)]
        if len(found) + len(stack) > NODES:
            return None
    return found


def assemble(steps: list[Expr]) -> Expr:
    """The formula whose nodes, children first, are given; atoms already replaced."""
    values: list[Expr] = []
    for node in steps:
        if isinstance(node, CONNECTIVES):
            count = len(node.children)
            values[-count:] = [node.with_children(tuple(values[-count:]))]
        else:
            values.append(node)
    return values[0]


def has_fresh(node: Expr) -> bool:
    """Is anything in an atom drawn afresh? (Also yes when the atom is too large to look through.)"""
    stack, seen = [node], 0
    while stack:
        node = stack.pop()
        seen += 1
        if seen + len(node.children) > NODES or (isinstance(node, Call) and node.fresh):
            return True
        stack += node.children
    return False


def compared_numbers(order: list[Expr]) -> dict[Expr, set[float]]:
    """The numbers that each expression is compared with."""
    numbers: dict[Expr, set[float]] = {}
    for node in order:
        if isinstance(node, Compare):
            for side, other in (node.children, node.children[::-1]):
                if (value := literal(other)) is not None and abs(value) < EXACT:
                    numbers.setdefault(side, set()).add(value)
    return numbers


def compare(node: Expr, meaning: Meaning, numbers: dict[Expr, set[float]]) -> Comparison:
    """What a comparison depends on."""
    finite: Axes = {}
    left, right = node.children
    first, second = calculation(left, meaning, finite), calculation(right, meaning, finite)
    if first is not None and second is not None and small(finite):
        return Comparison(node, finite, (first, second))
    if left == right:
        return Comparison(node, {}, (fixed(0), fixed(0)))
    for side, other in ((left, right), (right, left)):
        value = literal(other)
        if value is not None and abs(value) < EXACT:
            key: Hashable = ("number", side)
            axes = {key: landmarks(numbers.get(side, {value}), meaning(side))}
            return Comparison(node, axes, (on(key), fixed(value)) if side is left else (fixed(value), on(key)))
    # The order of two expressions: the one below, equal to or above the other, whichever is written first.
    swapped = hash(left) > hash(right)
    key = ("order", right, left) if swapped else ("order", left, right)
    axes = {key: np.array([-1, 0, 1])}
    return Comparison(node, axes, (fixed(0), on(key)) if swapped else (on(key), fixed(0)))


def on(key: Hashable) -> Side:
    return lambda axes: axes[key]


def fixed(value: float) -> Side:
    return lambda axes: np.asarray(value)


def small(axes: Axes, tables: int = 1) -> bool:
    """Can tables over these axes be looked through? (Arrays have few dimensions, so there must be few axes.)"""
    return len(axes) <= 16 and math.prod([len(values) for values in axes.values()]) * tables <= GRID


def landmarks(numbers: set[float], kind: Kind | int) -> npt.NDArray[Any]:
    """Values that stand for all that a term can be when it is only compared with these numbers."""
    points = sorted(numbers)
    between = [(a + b) / 2 for a, b in itertools.pairwise(points)]
    values = [points[0] - 1, *points, *between, points[-1] + 1]
    if isinstance(kind, Sort) and isinstance(kind.values, range):
        low, high = [min(max(bound, -EXACT), EXACT) for bound in (kind.values[0], kind.values[-1])]
        values = [low, high, *[v for v in values if low <= v <= high]]
    return np.array(sorted(set(values)), dtype=np.float64)


def calculation(side: Expr, meaning: Meaning, axes: Axes) -> Side | None:
    """How to calculate one side from terms of finite sorts alone, which join the axes; None if it has others."""
    if (value := literal(side)) is not None:
        return fixed(value) if abs(value) < EXACT else None
    order = occurrences(side, (Arith,))
    if order is None:
        return None
    places: dict[Expr, int] = {}
    for node in order:
        if isinstance(node, Arith) or (isinstance(node, Number) and isinstance(node.value, int)):
            continue
        what = meaning(node)
        if isinstance(what, int):
            places[node] = what
        elif isinstance(what, Sort) and what.values is not None and (what.size or 0) <= GRID:
            values = what.values if isinstance(what.values, range) else range(len(what.values))
            if max(-values[0], values[-1]) >= EXACT:
                return None
            axes[node] = np.array(values)
        else:
            return None
    return lambda spread: calculate(order, spread, places)


def calculate(order: list[Expr], axes: Axes, places: dict[Expr, int]) -> npt.NDArray[Any] | None:
    values: list[npt.NDArray[Any]] = []
    for node in order:
        if not isinstance(node, Arith):
            value = node.value if isinstance(node, Number) else places.get(node)
            if value is not None and abs(value) >= EXACT:
                return None
            values.append(axes[node] if value is None else np.asarray(value))
        elif len(node.children) == 1:
            values[-1] = -values[-1]
        else:
            right = values.pop()
            bounds = [int(np.abs(v).max(initial=0)) for v in (values[-1], right)]
            too_large = bounds[0] * bounds[1] >= EXACT if node.op == "*" else sum(bounds) >= EXACT
            if too_large or (node.op in ("//", "mod") and bool((right == 0).any())):
                return None
            values[-1] = ARITHMETIC[node.op](values[-1], right)
    return values[0]


def joined(comparisons: dict[Hashable, Comparison]) -> list[dict[Hashable, Comparison]]:
    """Comparisons that depend on each other, through terms they share; those that stand alone are left out."""
    group_of: dict[Hashable, dict[Hashable, Comparison]] = {}
    groups: list[dict[Hashable, Comparison]] = []
    for key, comparison in comparisons.items():
        merged = {key: comparison}
        for axis in comparison.axes:
            if (other := group_of.get(axis)) is not None and not merged.keys() >= other.keys():
                groups.remove(other)
                merged = other | merged
        groups.append(merged)
        for member in merged.values():
            group_of.update(dict.fromkeys(member.axes, merged))
    return [g for g in groups if len(g) > 1]
