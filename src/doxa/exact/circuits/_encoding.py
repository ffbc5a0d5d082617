"""Problems as clauses: what a circuit compiler reads.

A variable with two values is one Boolean, whose literals weigh w⁺ = P[i, 1] and w⁻ = P[i, 0]. A variable with more
values has one Boolean for each, exactly one of which is true; these weigh w⁺ = P[i, v] and w⁻ = 1, so that literals
which weigh 1 can be left out of the circuit. Variables with one value need no Boolean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

import torch
from torch import Tensor

from doxa.errors import BudgetError, ProblemError
from doxa.logic import CNF, Expr, Not, to_cnf
from doxa.problem import Problem
from doxa.problem._budget import Budget, Meter
from doxa.problem._factors import compared

CLAUSE = 32  # operations that a clause costs, apart from the search


@dataclass(frozen=True, eq=False)
class Encoding:
    """Clauses, and where the weight of each literal comes from."""

    cnf: CNF
    sources: Tensor  # for each literal in the order of a circuit, its place among the log-weights; the last one is 0
    forget: tuple[int, ...]  # literals that weigh 1 in every model
    smooth: tuple[int, ...]  # variables that weigh w⁺ + w⁻ where they are free
    always: tuple[int, ...]  # places of log-weights that every world has
    broken: tuple[tuple[int, ...], ...] | None = None  # clauses of which at least one does not hold


@dataclass
class Booleans:
    """Booleans for variables with several values, and their literals."""

    sizes: Sequence[int]
    meter: Meter | None = None
    first: list[int] = field(default_factory=list)
    count: int = 0
    clauses: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for size in self.sizes:
            self.first.append(self.count + 1)
            self.count += 0 if size == 1 else 1 if size == 2 else size
            if size > 2:
                own = [self.first[-1] + v for v in range(size)]
                self.clauses.append(own)
                if self.meter is not None:
                    self.meter.tick(size * size)
                self.clauses += [[-a, -b] for a, b in combinations(own, 2)]

    def literal(self, variable: int, value: int) -> int | None:
        """The literal that says ``variable = value``; None if it always is."""
        size, first = self.sizes[variable], self.first[variable]
        return None if size == 1 else (first if value else -first) if size == 2 else first + value

    @property
    def literals(self) -> list[list[int | None]]:
        """The literals of all values of all variables."""
        return [[self.literal(v, value) for value in range(size)] for v, size in enumerate(self.sizes)]

    def translated(self, cnf: CNF, places: Mapping[Expr, tuple[int, int]]) -> tuple[list[int | None], list[list[int]]]:
        """Clauses in these literals, and the literal of each of their variables; those without a place get new ones."""
        numbers: list[int | None] = []
        extra = self.count
        for atom in cnf.atoms:
            if atom is not None and atom in places:
                numbers.append(self.literal(*places[atom]))
            else:
                extra += 1
                numbers.append(extra)
        clauses = []
        for clause in cnf.clauses:
            known = [(numbers[abs(literal) - 1], literal > 0) for literal in clause]
            if not any(mine is None and positive for mine, positive in known):  # None is always true
                clauses.append([mine if positive else -mine for mine, positive in known if mine is not None])
        return numbers, clauses

    def encoding(self, clauses: list[list[int]], variables: int, places: dict[int, int], zero: int) -> Encoding:
        """An encoding; ``places`` says where the log-weights of each weighted variable begin."""
        sources = [zero] * (2 * variables)
        forget, smooth, always = [], [], []
        weighted = set()
        for v, place in places.items():
            size, first = self.sizes[v], self.first[v]
            if size == 1:
                always.append(place)
            elif size == 2:
                sources[2 * first - 2], sources[2 * first - 1] = place + 1, place
                smooth.append(first)
                weighted |= {first, -first}
            else:
                for value in range(size):
                    sources[2 * (first + value) - 2] = place + value
                    weighted.add(first + value)
        forget = [x for b in range(1, variables + 1) for x in (b, -b) if x not in weighted]
        cnf = CNF.from_clauses(clauses, variables)
        return Encoding(cnf, torch.tensor(sources, dtype=torch.int64), tuple(forget), tuple(smooth), tuple(always))


def encode(problem: Problem, meter: Meter | None = None) -> Encoding:
    """The factors of a problem as clauses; the log-weights are of world, output, given, and a 0."""
    if problem.program is None:
        remedy = "pass factors= or build it with Problem.from_factors, or use Enumeration if its worlds are few"
        raise ProblemError(f"the problem has no factors to encode as clauses; {remedy}")
    meter = meter or Meter(Budget(), "encoding factors as clauses")
    count_clauses(problem, meter.budget)
    booleans = Booleans(problem.sizes, meter)
    clauses = list(booleans.clauses)

    def forbid(variables: Sequence[int], number: int, target: tuple[int, int] | None) -> None:
        """Not these values, given as a number, unless the target has its value."""
        meter.tick(len(variables))
        clause = []
        for v in reversed(variables):
            literal = booleans.literal(v, number % problem.sizes[v])
            number //= problem.sizes[v]
            if literal is not None:
                clause.append(-literal)
        if target is not None:
            literal = booleans.literal(*target)
            if literal is None:
                return
            clause.append(literal)
        clauses.append(clause)

    for step in (*problem.program.steps, *problem.program.checks):
        codes = step.rule
        if not isinstance(codes, Tensor):
            left, right = (torch.arange(problem.sizes[v]) for v in step.inputs)
            codes = compared(codes, left.unsqueeze(-1), right).long().reshape(-1)
        for number, value in enumerate(codes.tolist()):
            if value < 0 or step.target is not None:
                forbid(step.inputs, number, None if value < 0 or step.target is None else (step.target, value))
    return booleans.encoding(clauses, booleans.count, *_places((problem.world, problem.output, problem.given)))


def count_clauses(problem: Problem, budget: Budget) -> int:
    """About how many clauses the factors or the formula stand for, from sizes alone; an error if they are too many."""
    sizes = problem.world + problem.given if problem.program is None else problem.sizes
    estimate = sum(1 + size * (size - 1) // 2 for size in sizes if size > 2)
    if problem.program is not None:
        for step in (*problem.program.steps, *problem.program.checks):
            estimate += math.prod(problem.sizes[v] for v in step.inputs)
    elif problem.formula is not None:
        estimate += problem.formula.edges
    if estimate * CLAUSE > budget.operations:
        many = f"about {estimate:,} clauses, {CLAUSE} operations each, more than {budget.operations:,}"
        remedy = "Raise Budget(operations=...), use Elimination, or an approximate engine: sampled or amortized"
        raise BudgetError("operations", f"the problem stands for {many}. {remedy}")
    return estimate


def encode_formula(problem: Problem, holds: bool, meter: Meter, *, breaking: bool = True) -> Encoding:
    """A formula or its negation as clauses; auxiliary variables are determined by the others, so they weigh 1.

    Without auxiliary variables, the negation is that one clause is broken, if the compiler knows ``breaking``.
    """
    assert problem.formula is not None
    count_clauses(problem, meter.budget)
    formula, places = problem.formula.formula, problem.formula.places
    booleans = Booleans(problem.world + problem.given, meter)
    clauses_of = partial(to_cnf, method="tseitin", atoms=tuple(places), entries=meter.budget.symbols)
    cnf = clauses_of(formula)
    broken = breaking and not holds and not cnf.auxiliary
    if not holds and not broken:
        cnf = clauses_of(Not(formula))
    meter.check_clock()
    numbers, clauses = booleans.translated(cnf, places)
    meter.check_clock()
    every, where = max([booleans.count, *(n for n in numbers if n)]), _places((problem.world, problem.given))
    if broken:
        return replace(booleans.encoding(booleans.clauses, every, *where), broken=tuple(map(tuple, clauses)))
    return booleans.encoding(booleans.clauses + clauses, every, *where)


def _places(blocks: Sequence[Sequence[int]]) -> tuple[dict[int, int], int]:
    """Where the log-weights of each variable begin, block after block; and where they end."""
    places: dict[int, int] = {}
    end = 0
    for sizes in blocks:
        for i in range(len(sizes)):
            places[len(places)] = end + i * max(sizes)
        end += len(sizes) * max(sizes, default=0)
    return places, end
