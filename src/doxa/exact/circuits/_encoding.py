"""Problems as clauses: what a circuit compiler reads.

A variable with two values is one Boolean, whose literals weigh w⁺ = P[i, 1] and w⁻ = P[i, 0]. A variable with more
values has one Boolean for each, exactly one of which is true; these weigh w⁺ = P[i, v] and w⁻ = 1, so that literals
which weigh 1 can be left out of the circuit. Variables with one value need no Boolean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.exact.circuits._circuit import Circuit
from doxa.exact.circuits._compiler import BudgetError
from doxa.logic import CNF
from doxa.problem import Problem


@dataclass(frozen=True, eq=False)
class Encoding:
    """Clauses, and where the weight of each literal comes from."""

    cnf: CNF
    sources: Tensor  # for each literal in the order of a circuit, its place among the log-weights; the last one is 0
    forget: tuple[int, ...]  # literals that weigh 1 in every model
    smooth: tuple[int, ...]  # variables that weigh w⁺ + w⁻ where they are free
    always: tuple[int, ...]  # places of log-weights that every world has

    def finish(self, circuit: Circuit) -> Circuit:
        """What remains of a circuit for the clauses."""
        return circuit.forget(self.forget).smooth(self.smooth)

    @property
    def name(self) -> str:
        """Of how the circuit is finished, for a cache."""
        return f"forget {self.forget} smooth {self.smooth}"


@dataclass
class Atoms:
    """Booleans for variables with several values, and their literals."""

    sizes: Sequence[int]
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
                self.clauses += [[-a, -b] for a, b in combinations(own, 2)]

    def literal(self, variable: int, value: int) -> int | None:
        """The literal that says ``variable = value``; None if it always is."""
        size, first = self.sizes[variable], self.first[variable]
        return None if size == 1 else (first if value else -first) if size == 2 else first + value

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


def encode(problem: Problem, limit: int = 200_000) -> Encoding:
    """The factors of a problem as clauses; the log-weights are those of the world, the output, and a 0."""
    if problem.program is None:
        raise ProblemError(
            "the problem has no factors to encode as clauses; pass factors= or build it with Problem.from_factors, or "
            "use Enumeration if its worlds are few"
        )
    tables = [step.table.numel() for step in problem.program.steps] + [t.numel() for _, t in problem.program.checks]
    estimate = sum(tables) + sum(1 + size * (size - 1) // 2 for size in problem.sizes if size > 2)
    if estimate > limit:
        raise BudgetError(
            f"the factors stand for about {estimate:,} clauses, more than {limit:,}: variables with many values make "
            "many clauses. Use Elimination, or an approximate engine: sampled or amortized"
        )
    atoms = Atoms(problem.sizes)
    clauses = list(atoms.clauses)

    def forbid(variables: Sequence[int], number: int, target: tuple[int, int] | None) -> None:
        """Not these values, given as a number, unless the target has its value."""
        clause = []
        for v in reversed(variables):
            literal = atoms.literal(v, number % problem.sizes[v])
            number //= problem.sizes[v]
            if literal is not None:
                clause.append(-literal)
        if target is not None:
            literal = atoms.literal(*target)
            if literal is None:
                return
            clause.append(literal)
        clauses.append(clause)

    for step in problem.program.steps:
        for number, value in enumerate(step.table.tolist()):
            forbid(step.inputs, number, None if value < 0 else (step.target, value))
    for variables, table in problem.program.checks:
        for number, allowed in enumerate(table.tolist()):
            if not allowed:
                forbid(variables, number, None)
    world, output = problem.world, problem.output
    places = {i: i * max(world) for i in range(len(world))}
    zero = len(world) * max(world)
    for j in range(len(output)):
        places[len(world) + j] = zero + j * max(output)
    return atoms.encoding(clauses, atoms.count, places, zero + len(output) * max(output))
