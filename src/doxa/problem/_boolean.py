"""Questions about Boolean variables: counting, and clauses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem._factors import Factor, Variable, tabulate
from doxa.problem._problem import Problem

WIDEST = 8  # literals in one factor; longer clauses are cut, so that tables stay small


def parity(n: int) -> Problem:
    """Whether an odd number of n Boolean variables is true; the factors are a chain of exclusive ors.

    >>> parity(3)(torch.tensor([[1, 0, 1], [1, 1, 1]]))
    tensor([[0],
            [1]])
    """
    return _counter(n, _odd, [[0, 1], [1, 0]], [0, 1])


def exactly_k(k: int, n: int) -> Problem:
    """Whether exactly k of n Boolean variables are true; the factors are a chain that counts to k + 1.

    >>> exactly_k(1, 3)(torch.tensor([[0, 1, 0], [1, 1, 0]]))
    tensor([[1],
            [0]])
    """
    if k < 0:
        raise ProblemError(f"k is {k}, expected at least 0")
    return _counter(n, partial(_counts, low=k, high=k), _saturating(k + 1), [int(count == k) for count in range(k + 2)])


def majority(n: int) -> Problem:
    """Whether more than half of n Boolean variables are true; the factors are a chain that counts.

    >>> majority(4)(torch.tensor([[1, 1, 0, 0], [1, 1, 0, 1]]))
    tensor([[0],
            [1]])
    """
    enough = n // 2 + 1
    labels = [0] * enough + [1]
    return _counter(n, partial(_counts, low=enough, high=n), _saturating(enough), labels)


def cnf(clauses: Sequence[Sequence[int]], variables: int | None = None) -> Problem:
    """Whether n Boolean variables satisfy a formula in conjunctive normal form.

    Literals are numbered as in DIMACS files: i is variable i, counted from 1, and -i its negation. There is one factor
    for each clause, which says whether it holds, and a chain of conjunctions.

    >>> problem = cnf([[1, 2], [-1, 3]])
    >>> problem(torch.tensor([[1, 0, 1], [1, 1, 0]]))
    tensor([[1],
            [0]])
    """
    rows = tuple(tuple(clause) for clause in clauses)
    literals = [literal for row in rows for literal in row]
    count = max((abs(literal) for literal in literals), default=0) if variables is None else variables
    if count < 1 or any(literal == 0 or abs(literal) > count for literal in literals):
        raise ProblemError(
            f"the literals are {sorted(set(literals))} for {count} variables, expected numbers from 1 to {count} "
            "or their negatives, and at least one variable; say variables= if there are no literals"
        )
    factors: list[Factor] = []
    w, y, auxiliary = Variable.world, Variable.output, Variable.auxiliary
    used = 0

    def fresh() -> Variable:
        nonlocal used
        used += 1
        return auxiliary(used - 1)

    def one_of(inputs: list[tuple[Variable, bool]]) -> Variable:
        """A variable that says whether one of the inputs has the wanted value."""
        while len(inputs) > WIDEST:
            inputs = [(one_of(inputs[:WIDEST]), True), *inputs[WIDEST:]]
        holds = fresh()
        scope = tuple(dict.fromkeys(variable for variable, _ in inputs))
        table = torch.zeros(*[2] * len(scope), 2, dtype=torch.bool)
        table[..., 0] = True
        for variable, wanted in inputs:
            place = table.movedim(scope.index(variable), 0)[int(wanted)]
            place[..., 0], place[..., 1] = False, True
        factors.append(Factor((*scope, holds), table))
        return holds

    holding = [one_of([(w(abs(literal) - 1), literal > 0) for literal in row]) for row in rows]
    conjunction = tabulate((2, 2, 2), lambda a, b, both: both == a * b)
    while len(holding) > 1:
        both = y(0) if len(holding) == 2 else fresh()
        factors.append(Factor((holding[0], holding[1], both), conjunction))
        holding[:2] = [both]
    if not rows:
        factors.append(Factor((y(0),), torch.tensor([False, True])))
    elif len(rows) == 1:
        factors.append(Factor((holding[0], y(0)), torch.eye(2, dtype=torch.bool)))
    return Problem(
        world=(2,) * count,
        output=(2,),
        function=partial(_satisfied, clauses=rows),
        factors=tuple(factors),
        auxiliary=(2,) * used,
        names=(*(f"x{i + 1}" for i in range(count)), "satisfied"),
    )


def _counter(n: int, function: Callable[[Tensor], Tensor], transitions: list[list[int]], labels: list[int]) -> Problem:
    """A machine that reads Booleans, with a function of its own to be checked against."""
    if n < 1:
        raise ProblemError(f"n is {n}, expected at least 1 variable")
    machine = Problem.from_machine(transitions, steps=n, labels=labels)
    return Problem(machine.world, (2,), function, machine.factors, auxiliary=machine.auxiliary)


def _saturating(top: int) -> list[list[int]]:
    """A counter of ones that stays at ``top``."""
    return [[count, min(count + 1, top)] for count in range(top + 1)]


def _odd(worlds: Tensor) -> Tensor:
    return worlds.sum(-1, keepdim=True) % 2


def _counts(worlds: Tensor, low: int, high: int) -> Tensor:
    count = worlds.sum(-1, keepdim=True)
    return ((low <= count) & (count <= high)).long()


def _satisfied(worlds: Tensor, clauses: tuple[tuple[int, ...], ...]) -> Tensor:
    result = torch.ones_like(worlds[..., 0], dtype=torch.bool)
    for clause in clauses:
        holds = torch.zeros_like(result)
        for literal in clause:
            holds |= worlds[..., abs(literal) - 1] == int(literal > 0)
        result &= holds
    return result.long().unsqueeze(-1)
