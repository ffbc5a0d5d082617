"""Terms and formulas as functions of variables: how knowledge becomes the factors of a problem.

The value of a term depends on random variables. If it depends on one variable, it is a `Choice`: a value for each
value of that variable, and nothing new is needed. If it depends on several, it becomes an auxiliary variable of its
own, and a factor says which value it has:

    t = d + e    becomes    f(d, e, t) = [t = d + e]

A variable that occurs many times is one variable, so nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor

from doxa.exact import BudgetError
from doxa.problem import Factor, Problem, Variable


class Undefined:
    """The value of a term that has none, such as ``3 // 0``; there is one."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED = Undefined()


@dataclass(frozen=True)
class Choice:
    """A term or formula that depends on one variable: its value for each value of the variable."""

    variable: int
    labels: tuple[Any, ...]


@dataclass(frozen=True)
class World:
    """A world variable: what it stands for, and its values."""

    key: tuple[Any, ...]
    values: tuple[Any, ...]
    name: str


class Choices:
    """Variables and the factors between them, made one by one; equal ones are made once."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self.limit = limit
        self.worlds: list[World] = []
        self._sizes: list[int] = []  # of all variables
        self._world_of: dict[int, int] = {}  # variable to its place among the world variables
        self._known: dict[Hashable, Choice] = {}
        self._made: dict[Hashable, Any] = {}
        self._factors: list[tuple[tuple[int, ...], Tensor]] = []
        self._tables: dict[Hashable, Tensor] = {}

    def world(self, key: tuple[Any, ...], values: Sequence[Any], name: str) -> Choice:
        """The world variable of a key, whose values are the given ones."""
        if key not in self._known:
            self._world_of[len(self._sizes)] = len(self.worlds)
            self._known[key] = Choice(len(self._sizes), tuple(values))
            self._sizes.append(len(values))
            self.worlds.append(World(key, tuple(values), name))
        return self._known[key]

    def apply(self, name: Hashable, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """A function of values; what it depends on becomes a choice, or an auxiliary variable.

        ``name`` stands for the function: two functions of one name are the same.
        """
        variables = list(dict.fromkeys([a.variable for a in args if isinstance(a, Choice)]))
        if not variables:
            return function(*args)
        key = (name, *[a if isinstance(a, Choice) else (type(a), a) for a in args])
        if key not in self._made:
            self._made[key] = self._apply(function, args, variables)
        return self._made[key]

    def _apply(self, function: Callable[..., Any], args: Sequence[Any], variables: list[int]) -> Any:
        sizes = [self._sizes[v] for v in variables]
        if prod(sizes) > self.limit:
            raise BudgetError(
                "join",
                f"a term depends on {prod(sizes):,} joint values of {len(variables)} variables, more than "
                f"{self.limit:,}: its numbers are too large. Say it digit by digit, or use an approximate engine: "
                "sampled or amortized",
            )
        places = [variables.index(a.variable) if isinstance(a, Choice) else -1 for a in args]
        results = [
            function(*[a.labels[at[p]] if p >= 0 else a for a, p in zip(args, places, strict=True)])
            for at in product(*map(range, sizes))
        ]
        # 1 and True are equal, yet different values.
        number: dict[Any, int] = {}
        codes = [number.setdefault((type(r), r), len(number)) for r in results]
        values = tuple([value for _, value in number])
        if len(values) == 1:
            return values[0]
        if len(variables) == 1:
            return Choice(variables[0], tuple(results))
        made = Choice(len(self._sizes), values)
        self._sizes.append(len(values))
        table = torch.nn.functional.one_hot(torch.tensor(codes), len(values)).bool().reshape(*sizes, len(values))
        self._factors.append(((*variables, made.variable), self._share(table)))
        return made

    def _share(self, table: Tensor) -> Tensor:
        """Factors of one form share their table."""
        return self._tables.setdefault((tuple(table.shape), table.numpy().tobytes()), table)

    def problem(self, result: Choice) -> Problem:
        """The problem whose output is 1 where the result is true, 0 where it is false, 2 where it is undefined."""
        labels = torch.tensor([2 if label is UNDEFINED else int(label) for label in result.labels])
        return self._problem(result, labels, 3 if (labels == 2).any() else 2, "holds")

    def valued(self, result: Choice) -> tuple[Problem, tuple[Any, ...]]:
        """The problem whose output is the value of the result, and what its values are, in order."""
        values = set(result.labels) - {UNDEFINED}
        listed = (*sorted(values), *([UNDEFINED] if UNDEFINED in result.labels else []))
        place = {value: i for i, value in enumerate(listed)}
        labels = torch.tensor([place[label] for label in result.labels])
        return self._problem(result, labels, len(listed), "value"), listed

    def _problem(self, result: Choice, labels: Tensor, outputs: int, name: str) -> Problem:
        auxiliary = {v: i for i, v in enumerate(v for v in range(len(self._sizes)) if v not in self._world_of)}

        def named(v: int) -> Variable:
            return Variable.world(self._world_of[v]) if v in self._world_of else Variable.auxiliary(auxiliary[v])

        factors = [Factor(tuple(map(named, scope)), table) for scope, table in self._factors]
        table = torch.nn.functional.one_hot(labels, outputs).bool()
        factors.append(Factor((named(result.variable), Variable.output(0)), table))
        return Problem.from_factors(
            factors,
            [len(w.values) for w in self.worlds],
            [outputs],
            auxiliary=[self._sizes[v] for v in auxiliary],
            names=[*_distinct([w.name for w in self.worlds], name), name],
        )


def _distinct(names: Sequence[str], taken: str) -> list[str]:
    seen: dict[str, int] = {taken: 1}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def conjunction(*values: Any) -> Any:
    """And, where an undefined part matters only if no part is false."""
    if any(v is False for v in values):
        return False
    return UNDEFINED if any(v is UNDEFINED for v in values) else True


def negation(value: Any) -> Any:
    """Not; undefined stays undefined."""
    return value if value is UNDEFINED else not value


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is undefined where an argument is."""

    def applied(*values: Any) -> Any:
        return UNDEFINED if any(v is UNDEFINED for v in values) else function(*values)

    return applied
