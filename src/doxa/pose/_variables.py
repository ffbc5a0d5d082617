"""The variables of a problem while knowledge is posed, and the factors between them.

Networks believe something about *world* variables, and the data decide *given* ones. What depends on one variable is a
`Term`; what depends on several becomes an *auxiliary* variable with a factor: t = d + e is f(d, e, t) = [t = d + e].
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from doxa.errors import BudgetError
from doxa.logic import Call, Expr
from doxa.logic.syntax._symbols import ARITHMETIC, COMPARISON, calculated


class Undefined:
    """The value of a term that has none, such as ``3 // 0``; there is one."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED = Undefined()


NUMBERS = range(1 << 62)
"""The values of a given variable that may be any whole number; 0 stands at its middle."""


SMALL = 1 << 31
"""Given numbers that are computed with are smaller than this."""


class Term:
    """A term or formula that depends on one variable: its value for each value of the variable."""

    __slots__ = ("_hash", "values", "variable")

    def __init__(self, variable: int, values: Sequence[Any]) -> None:
        self.variable = variable
        self.values = tuple(values)
        self._hash = hash((variable, self.values))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Term) or self._hash != other._hash:
            return False
        same = self.variable == other.variable and self.values == other.values
        return same and [type(v) for v in self.values] == [type(v) for v in other.values]  # 1 and True are equal

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Variable:
    """A world or given variable: what it stands for, its values, and its name."""

    kind: Literal["world", "given"]
    key: tuple[Any, ...]
    values: Sequence[Any]
    name: str


@dataclass(frozen=True)
class Computed:
    """A whole number that depends on too many joint values to list: how it is computed, and its bounds.

    The arguments are terms, numbers, given variables (by number, as `GivenNumber`) and other computed numbers.
    """

    op: str
    args: tuple[Any, ...]
    low: int
    high: int

    @classmethod
    def of(cls, op: str, args: Sequence[Any]) -> Computed:
        """The result of an operation; an error if it may not fit 64 bits."""
        ends = [bounds(a) for a in args]
        found = [ARITHMETIC[op](a, b) for a in ends[0] for b in ends[1]]
        if min(found) < -(1 << 61) or max(found) >= 1 << 61:
            raise BudgetError(
                "join", f"a term may be as large as {max(map(abs, found)):,}, beyond 61 bits; say it digit by digit"
            )
        return cls(op, tuple(args), min(found), max(found))


@dataclass(frozen=True)
class GivenNumber:
    """A given whole number, whatever it is: the number of its variable."""

    variable: int


def bounds(value: Any) -> tuple[int, int]:
    """Between which whole numbers a value lies."""
    if isinstance(value, Computed):
        return value.low, value.high
    if isinstance(value, GivenNumber):
        return -SMALL, SMALL
    listed = value.values if isinstance(value, Term) else (value,)
    if not all(type(v) is int for v in listed):
        raise BudgetError("join", "a term with so many joint values can only be computed with whole numbers")
    return min(listed), max(listed)


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """A variable that its inputs decide: by a table of positions among its values, or by comparing two positions."""

    inputs: tuple[int, ...]
    size: int
    table: Tensor | Literal["=", "<"] | Computed


class Variables:
    """Variables and what decides them, made one by one; equal ones are made once, terms of at most ``limit`` values."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.all: list[Variable | Auxiliary] = []
        self._made: dict[Hashable, Any] = {}
        self._terms: dict[Hashable, Term] = {}
        self._tables: dict[Hashable, Tensor] = {}
        self.tests: dict[Expr, Term] = {}
        """What the atoms of formulas stand for."""
        self.equations: dict[int, tuple[Term, int]] = {}
        """Auxiliary variables that say whether a term equals a given value: the term, and the given variable."""

    def own(self, kind: Literal["world", "given"], key: tuple[Any, ...], values: Sequence[Any], name: str) -> Term:
        """The world or given variable of a key."""
        if key not in self._terms:
            self._terms[key] = Term(self._add(Variable(kind, key, tuple(values), name)), values)
        return self._terms[key]

    def given_number(self, known: Any, limit: int) -> GivenNumber:
        """The given variable of a whole number, whatever it is below a limit."""
        key = ("number", known, limit)
        if key not in self._made:
            self._made[key] = GivenNumber(self._add(Variable("given", key, NUMBERS, str(known))))
        found: GivenNumber = self._made[key]
        return found

    def size(self, variable: int) -> int:
        """How many values a variable has."""
        found = self.all[variable]
        return found.size if isinstance(found, Auxiliary) else len(found.values)

    def atom(self, term: Term) -> Expr:
        """The atom of a formula that stands for a Boolean term."""
        atom = Call(f"{term.variable}:{''.join(['u' if v is UNDEFINED else 'ft'[v] for v in term.values])}", ())
        self.tests[atom] = term
        return atom

    def compare(self, op: Literal["=", "<"], term: Term, given: int, values: Sequence[Any]) -> Term:
        """Whether the place of a term among ``values`` is the given one; or, where they are sorted, below it."""
        key = (op, term, given)
        if key not in self._terms:
            table: Tensor | Literal["=", "<"] = op
            if term.values != tuple(values):
                place = {value: i for i, value in enumerate(values)}
                here, there = torch.tensor([[place[v]] for v in term.values]), torch.arange(self.size(given))
                table = (here == there if op == "=" else here < there).long()
            found = self._terms[key] = Term(self._add(Auxiliary((term.variable, given), 2, table)), (False, True))
            if op == "=":
                self.equations[found.variable] = (term, given)
        return self._terms[key]

    def test(self, op: str, args: Sequence[Any]) -> Term:
        """A comparison of computed numbers: a Boolean that no table decides."""
        inputs: list[int] = []
        stack = list(args)
        while stack:
            value = stack.pop()
            if isinstance(value, Computed):
                stack += value.args
            elif isinstance(value, Term | GivenNumber):
                inputs.append(value.variable)
        made = Auxiliary(tuple(dict.fromkeys(inputs)), 2, Computed(op, tuple(args), 0, 1))
        return Term(self._add(made), (False, True))

    def apply(self, name: Hashable, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """A function of values; what it depends on becomes a term, perhaps of an auxiliary variable.

        ``name`` stands for the function: two functions of one name are the same.
        """
        variables = list(dict.fromkeys([a.variable for a in args if isinstance(a, Term)]))
        if not variables:
            return function(*args)
        key = (name, *[a if isinstance(a, Term) else (type(a), a) for a in args])
        if key not in self._made:
            self._made[key] = self._apply(name, function, args, variables)
        return self._made[key]

    def _apply(self, name: Hashable, function: Callable[..., Any], args: Sequence[Any], variables: list[int]) -> Any:
        sizes = [self.size(v) for v in variables]
        if prod(sizes) > self.limit and name in ("+", "-", "*"):
            return Computed.of(str(name), args)
        if prod(sizes) > self.limit:
            raise BudgetError(
                "join",
                f"a term depends on {prod(sizes):,} joint values of {len(variables)} variables, more than "
                f"{self.limit:,}: its numbers are too large. Say it digit by digit, raise Budget(join=...), or use "
                "an approximate semantics: Sampled()",
            )
        codes, values = _vectorised(name, args, variables, sizes) or _one_by_one(function, args, variables, sizes)
        if len(values) == 1:
            return values[0]
        if len(variables) == 1:
            return Term(variables[0], [values[c] for c in codes.tolist()])
        # Equal tables are one, by which engines see that they may treat several variables together.
        table = self._tables.setdefault((tuple(sizes), codes.tobytes()), torch.from_numpy(codes).reshape(sizes))
        made = Auxiliary(tuple(variables), len(values), table)
        return Term(self._add(made), values)

    def _add(self, variable: Variable | Auxiliary) -> int:
        self.all.append(variable)
        return len(self.all) - 1


def _vectorised(
    name: Hashable, args: Sequence[Any], variables: list[int], sizes: list[int]
) -> tuple[np.ndarray[Any, Any], tuple[Any, ...]] | None:
    """Arithmetic on whole numbers, all at once; None for anything else."""
    operate = {**ARITHMETIC, **COMPARISON}.get(name) if isinstance(name, str) else None
    if operate is None or name in ("//", "mod") or prod(sizes) < 64:
        return None
    parts = []
    for arg in args:
        listed = arg.values if isinstance(arg, Term) else (arg,)
        if not all(type(v) is int and abs(v) < 1 << 31 for v in listed):
            return None
        shape = [-1 if isinstance(arg, Term) and v == arg.variable else 1 for v in variables]
        parts.append(np.array(listed, dtype=np.int64).reshape(shape))
    found, codes = np.unique(np.broadcast_to(operate(*parts), sizes).ravel(), return_inverse=True)
    return codes.astype(np.int64), tuple(found.tolist())


def _one_by_one(
    function: Callable[..., Any], args: Sequence[Any], variables: list[int], sizes: list[int]
) -> tuple[np.ndarray[Any, Any], tuple[Any, ...]]:
    places = [variables.index(a.variable) if isinstance(a, Term) else -1 for a in args]
    results = [
        function(*[a.values[at[p]] if p >= 0 else a for a, p in zip(args, places, strict=True)])
        for at in product(*map(range, sizes))
    ]
    distinct = list(dict.fromkeys([(type(r), r) for r in results]))  # 1 and True are equal, yet different values
    if all(kind in (int, float) for kind, _ in distinct):
        distinct.sort(key=lambda pair: pair[1])
    number = {pair: i for i, pair in enumerate(distinct)}
    codes = np.array([number[type(r), r] for r in results], dtype=np.int64)
    return codes, tuple([value for _, value in distinct])


def arithmetic(op: str, a: Any, b: Any) -> Any:
    """An operation on numbers: undefined where it has no value, or where an argument is."""
    if a is UNDEFINED or b is UNDEFINED:
        return UNDEFINED
    found = calculated(op, a, b)
    return UNDEFINED if found is None else found


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is undefined where an argument is."""

    def applied(*values: Any) -> Any:
        return UNDEFINED if any(v is UNDEFINED for v in values) else function(*values)

    return applied
