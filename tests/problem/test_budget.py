"""Solvers within a budget: they can be stopped, and go on with what they have learnt."""

from __future__ import annotations

import os
import signal
import threading
from itertools import combinations

import pytest
import torch
from pysat.solvers import Solver

from doxa.amortized import KnowledgeProblem, SatPruner
from doxa.errors import BudgetError
from doxa.exact import Constraint
from doxa.logic import And, Call, Or, parse
from doxa.problem import Budget, addition
from doxa.problem._budget import solve
from doxa.refine import Refine


def pigeons(holes: int) -> list[list[int]]:
    """One pigeon too many: no solver proves it soon."""
    place = [[1 + i * holes + j for j in range(holes)] for i in range(holes + 1)]
    return place + [[-a, -b] for column in zip(*place, strict=True) for a, b in combinations(column, 2)]


@pytest.mark.parametrize("engine", ["cadical195", "g3"])
def test_a_solver_goes_on_after_a_pause(engine: str) -> None:
    pauses: list[None] = []
    with Solver(engine, bootstrap_with=pigeons(8)) as solver:
        assert solve(solver, [], lambda: pauses.append(None)) is False
    assert pauses
    with Solver(engine, bootstrap_with=[[1, 2], [-1, 2]]) as solver:
        assert solve(solver, []) is True
        assert solve(solver, [-2]) is False


def test_a_pruner_keeps_to_its_seconds() -> None:
    clauses = pigeons(11)
    count = 11 * 12
    pruner = SatPruner((2,) * count, [[-i, i] for i in range(1, count + 1)], clauses, Budget(seconds=0.05))
    with pytest.raises(BudgetError, match=r"could not decide within 0.05 seconds: looking for a completion of \(\)"):
        pruner(torch.zeros(0, dtype=torch.int64))
    with pytest.raises(BudgetError, match="encoding factors as clauses is not done"):
        SatPruner.of(addition(3), Budget(seconds=1e-9))


def interrupted(question: object) -> None:
    """Ask something that takes for ever, and press Ctrl-C after a while."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start us without
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            question()  # type: ignore[operator]
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


def test_control_c_stops_a_pruner() -> None:
    pruner = SatPruner((2,) * 182, [[-i, i] for i in range(1, 183)], pigeons(13))
    interrupted(lambda: pruner(torch.zeros(0, dtype=torch.int64)))


def test_control_c_stops_a_guarantee() -> None:
    atoms = [Call(f"a{i}") for i in range(182)]
    formula = And(*[Or(*[atoms[abs(x) - 1] if x > 0 else ~atoms[abs(x) - 1] for x in c]) for c in pigeons(13)])
    layer = Refine(formula, "godel", guarantee="sat", steps=1)
    interrupted(lambda: layer(torch.full((182,), 0.4)))


def test_knowledge_keeps_to_the_budget() -> None:
    kb = parse("sort Node = 0..39; pred edge(Node, Node); forall x, y, z: Node. edge(x, y) & edge(y, z) -> edge(x, z)")
    for make in (Constraint, KnowledgeProblem):
        with pytest.raises(BudgetError) as error:
            make(kb, budget=Budget(entries=32_000))
        assert error.value.field == "entries"
        with pytest.raises(BudgetError, match="could not decide within 1e-09 seconds"):
            make(kb, budget=Budget(seconds=1e-9))
