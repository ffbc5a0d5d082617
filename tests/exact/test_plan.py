"""The planner: the right engine, the reason, and a clear word when nothing fits."""

from __future__ import annotations

import pytest
import torch
from exact_cases import problems, random_belief
from hypothesis import given, settings

from doxa.errors import ProblemError
from doxa.exact import Budget, BudgetError, Compilation, Elimination, Enumeration, plan
from doxa.exact._budget import Meter
from doxa.exact.engines._elimination import Schedule
from doxa.exact.engines._ordering import STRATEGIES, find_order
from doxa.problem import BruteForce, Problem, addition, cnf, majority, multiplication


def test_small_spaces_are_enumerated_and_chains_eliminated() -> None:
    assert isinstance(plan(addition(1)).reasoner, Enumeration)
    assert isinstance(plan(multiplication(1)).reasoner, Enumeration)
    assert isinstance(plan(addition(15)).reasoner, Elimination)
    assert isinstance(plan(majority(60)).reasoner, Elimination)


def test_entangled_knowledge_is_compiled() -> None:
    """When lists and joins are not allowed to be of any size, there is still a circuit."""
    problem = cnf([[1, 2, -3], [-1, 4, 5], [3, -4, 6], [-2, -5, -6], [2, 5, 6]])
    made = plan(problem, budget=Budget(worlds=4, join=4))
    assert isinstance(made.reasoner, Compilation)
    text = made.explain()
    assert "uses Compilation: a circuit of about" in text
    assert "worlds, more than 4; raise Budget(worlds=...)" in text
    assert "entangled" in text
    belief = random_belief(problem, 2)
    for output in (torch.tensor([0]), torch.tensor([1])):
        expected = BruteForce(problem).log_prob(belief, output)
        torch.testing.assert_close(made.reasoner.log_prob(belief, output), expected)


def test_variables_with_many_values_are_not_made_into_clauses() -> None:
    with pytest.raises(BudgetError, match=r"stands for about .* clauses, .* more than 2,097,152"):
        Compilation(majority(200))


def test_when_nothing_fits_the_bottleneck_is_named() -> None:
    rows = [[(7 * i) % 90 + 1, -((13 * i + 5) % 90 + 1), (29 * i + 11) % 90 + 1] for i in range(200)]
    problem = cnf(rows)
    with pytest.raises(ProblemError) as error:
        plan(problem, budget=Budget(operations=1 << 18, join=64))
    for part in ("enumeration: ", "elimination: ", "compilation: ", "sampled", "amortized", "Budget(operations=...)"):
        assert part in str(error.value)
    with pytest.raises(ProblemError, match="the problem has no factors"):
        plan(Problem((2,) * 40, (2,), lambda w: w[..., :1]))


@settings(deadline=None, max_examples=15)
@given(problem=problems())
def test_the_plan_is_right(problem: Problem) -> None:
    made = plan(problem)
    belief = random_belief(problem, 2)
    given = torch.zeros(2, len(problem.given), dtype=torch.int64) if problem.given else None
    output = problem(problem.random_worlds(2), given)
    expected = BruteForce(problem).log_prob(belief, output, given=given)
    torch.testing.assert_close(made.reasoner.log_prob(belief, output, given=given), expected)
    assert type(made.reasoner).__name__ in made.explain()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_order_eliminates_every_variable_once(strategy: str) -> None:
    sizes = [2, 3, 2, 4, 2, 3, 2]
    batches = [[(0, 1), (1, 2), (2, 3)], [(3, 4, 5)], [(5, 6), (6, 0)], [(i,) for i in range(7)]]
    order = find_order(batches, sizes, 1 << 20, strategy, Meter(Budget(), "test"))  # type: ignore[arg-type]
    assert sum(step.variables for step in order.steps) == 7
    assert order.widest <= 2 * 3 * 4 * 3
    used = [(operand.batch, number) for step in order.steps for operand in step.operands for number in operand.numbers]
    assert len(used) == len(set(used))  # every table is used once


def test_a_chain_is_halved_not_walked() -> None:
    order = Schedule.of(addition(1000), Budget(), observed=True).order
    assert len(order.steps) < 30
    assert order.widest == 8
