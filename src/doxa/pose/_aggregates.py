"""Aggregates of one instance: a chain of auxiliary variables, each the state of the choices so far.

What networks say of one choice is a step of the chain: the state after it is a function of the state before, of
whether the guard lets it through, and of its value. Sums of what the data alone decide are left to the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import combinations
from math import comb
from operator import ne
from typing import Any

from doxa.errors import BudgetError
from doxa.logic import INT, REAL, Aggregate, And, Expr, Sort
from doxa.logic.unfold._aggregates import CHAINS, NOTHING, Chain, joined
from doxa.logic.unfold._unfolder import Case, Formulas
from doxa.pose._problem import lowered
from doxa.pose._references import Known
from doxa.pose._variables import UNDEFINED, Computed, Term, Variables, arithmetic, strict

SUBSETS = 1 << 12
"""Sets of used values up to which ``all_different`` is a chain; beyond, it says of each pair that they differ."""


class AggregateValues(Formulas, ABC):
    """What aggregates become for one instance; what terms are is for those who inherit from this to say."""

    variables: Variables

    @abstractmethod
    def _known(self, value: Any) -> Any:
        """A field or the value of a variable as what is known."""

    @abstractmethod
    def _number(self, node: Expr, value: Any) -> Any:
        """A number."""

    @abstractmethod
    def _term(self, value: Any) -> Any:
        """What is known as a variable."""

    @abstractmethod
    def _object(self, value: Any, sort: Sort) -> Any:
        """An object."""

    @abstractmethod
    def _sort_of(self, cell: Any) -> Sort | None:
        """The sort of a field."""

    def aggregate(self, node: Aggregate, cases: list[Case]) -> Any:
        choices, known = [], []
        for guard, value, _ in cases:
            if node.kind == "all_different":
                value = self._identified(self._known(value))
            else:
                value = self._number(node, value)
            condition = True if guard is None else lowered(guard, self.variables)
            if isinstance(value, Known) and condition is True and node.kind in ("sum", "min", "max"):
                known.append(value)  # the data add these up by themselves
            else:
                choices.append((condition, self._term(value)))
        found = aggregated(node, choices, self.variables) if choices or not known else None
        if known:
            total = known_aggregate(node.kind, known)
            if found is None:
                return total
            rest = [(True, self._term(total)), (True, found)]
            return aggregated(node, rest, self.variables)
        if isinstance(found, list):  # that all pairs differ
            return self._build.join(And, [self.truth(node, pair) for pair in found])
        if node.kind in ("argmin", "argmax"):
            objects = [scope[node.names[0]] for _, _, scope in cases]
            chosen = strict(lambda place: objects[place])
            return self.variables.apply(("chosen", *objects), chosen, [found])
        return found

    def _identified(self, value: Any) -> Any:
        """A value that may be compared for equality: an object by its label."""
        if isinstance(value, Known) and value.op == "cell":
            cell = value.args[0]
            sort = self._sort_of(cell)
            if sort is not None and sort.is_open and sort not in (INT, REAL):
                return self._object(cell, sort)
        return value


def aggregated(node: Aggregate, choices: Sequence[tuple[Any, Any]], variables: Variables) -> Any:
    """The value of an aggregate of choices, each a guard (True, or a Boolean term) and a value or term.

    For ``argmin`` and ``argmax`` it is the number of the choice. Known values stand only where nothing is uncertain.
    """
    chain, kind = CHAINS[node.kind], node.kind
    if kind == "all_different" and _subsets(choices) > SUBSETS:
        return _pairwise(choices, variables)
    numbered = kind in ("argmin", "argmax")
    states: list[Any] = []
    for place, (guard, value) in enumerate(choices):
        if guard is True and not numbered and kind != "all_different":
            states.append(value)
        else:
            name = ("choice", kind, place) if numbered else ("choice", kind)
            states.append(variables.apply(name, partial(_choice, chain, place), [guard, value]))

    def join(a: Any, b: Any) -> Any:
        if isinstance(a, Computed) or isinstance(b, Computed):
            if kind not in ("sum", "count"):
                raise BudgetError("join", f"{node} is of terms with too many joint values; say it digit by digit")
            return Computed.of("+", [a, b])
        if kind in ("sum", "count"):
            return variables.apply("+", partial(arithmetic, "+"), [a, b])
        return variables.apply(("join", kind), strict(chain.join), [a, b])

    def size(state: Any) -> int:
        return len(state.values) if isinstance(state, Term) else 1 if not isinstance(state, Computed) else 1 << 30

    if not states:
        return _finished(chain, chain.empty)
    total = joined(states, join, size)
    if isinstance(total, Computed):
        return total
    return variables.apply(("finish", kind), partial(_finished, chain), [total])


def _choice(chain: Chain, place: int, guard: Any, value: Any) -> Any:
    if guard is UNDEFINED or (guard and value is UNDEFINED):
        return UNDEFINED
    return chain.one(value, place) if guard else chain.empty


def _finished(chain: Chain, state: Any) -> Any:
    found = UNDEFINED if state is UNDEFINED else chain.finish(state)
    return UNDEFINED if found is NOTHING else found


def _values(value: Any) -> set[Any]:
    return set(value.values) if isinstance(value, Term) else {value}


def _subsets(choices: Sequence[tuple[Any, Any]]) -> int:
    """How many sets of values some of the choices may have used, at most, at once."""
    different = len(set().union(*[_values(value) for _, value in choices])) if choices else 0
    return max([comb(different, k) for k in range(min(len(choices), different) + 1)], default=1)


def _pairwise(choices: Sequence[tuple[Any, Any]], variables: Variables) -> list[Any]:
    """For each pair of choices, that they are not both there with one value."""

    def differ(g: Any, h: Any, a: Any, b: Any) -> Any:
        if g is False or h is False:
            return True
        return UNDEFINED if UNDEFINED in (g, h, a, b) else ne(a, b)

    pairs = combinations(choices, 2)
    return [variables.apply("differ", differ, [g, h, a, b]) for (g, a), (h, b) in pairs]


def known_aggregate(kind: str, values: Sequence[Known | int | float]) -> Any:
    """The sum, or the least or greatest, of numbers that the data decide: known itself."""
    op = {"sum": "+", "count": "+"}.get(kind, kind)
    return joined(list(values), lambda a, b: Known(op, (a, b)), lambda _: 1)
