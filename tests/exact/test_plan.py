"""The planner: the right engine, the reason, and a clear word when nothing fits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from exact_cases import problems, random_belief
from hypothesis import given, settings

from doxa.errors import BudgetError, ConfigError, ProblemError
from doxa.exact import Compilation, Elimination, Enumeration, plan
from doxa.exact.engines._elimination import Schedule
from doxa.exact.engines._ordering import STRATEGIES, find_order
from doxa.exact.engines._plan import ENGINES
from doxa.problem import Belief, BruteForce, Budget, Problem, addition, cnf, majority, multiplication, parity
from doxa.problem._budget import Meter


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
    with pytest.raises(BudgetError, match=r"stands for about .* clauses, .* more than 16,777,216"):
        Compilation(majority(200))


def test_when_nothing_fits_the_bottleneck_is_named() -> None:
    problem = entangled()
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


def entangled() -> Problem:
    """Knowledge that no engine can do anything with."""
    rows = [[(7 * i) % 90 + 1, -((13 * i + 5) % 90 + 1), (29 * i + 11) % 90 + 1] for i in range(200)]
    return cnf(rows)


LIMITS = [
    ("worlds", lambda: Enumeration(addition(1), budget=Budget(worlds=99))),
    ("join", lambda: Elimination(majority(30), budget=Budget(join=64))),
    ("operations", lambda: Elimination(addition(100), budget=Budget(operations=1000))),
    ("operations", lambda: Compilation(addition(1), budget=Budget(operations=1000))),
    ("nodes", lambda: Compilation(parity(12), budget=Budget(nodes=10), cache=False)),
    ("entries", lambda: Enumeration(addition(1), budget=Budget(entries=100))),
    ("entries", lambda: Elimination(addition(5), budget=Budget(entries=50))),
    ("entries", lambda: Compilation(parity(4), budget=Budget(entries=50))),
    ("seconds", lambda: Elimination(addition(1000), budget=Budget(seconds=1e-9))),
    ("seconds", lambda: Compilation(parity(12), budget=Budget(seconds=1e-9), cache=False)),
    ("seconds", lambda: plan(entangled(), budget=Budget(seconds=1e-9))),
]


@pytest.mark.parametrize("field, build", LIMITS, ids=[f"{i}-{field}" for i, (field, _) in enumerate(LIMITS)])
def test_every_limit_names_its_field_and_is_reached_every_time(field: str, build: Callable[[], object]) -> None:
    messages = set()
    for _ in range(2):
        with pytest.raises(BudgetError, match=rf"[Rr]aise Budget\({field}=...\)") as error:
            build()
        assert error.value.field == field
        messages.add(str(error.value))
    assert len(messages) == 1
    assert "could not decide within" in messages.pop() or field != "seconds"


def test_time_stops_a_question_between_parts() -> None:
    problem = addition(1)
    reasoner = Enumeration(problem, budget=Budget(entries=1000, seconds=1e-9))
    one = reasoner.log_prob(Belief.uniform((10, 10)), torch.tensor([1, 3]))
    assert one.exp().item() == pytest.approx(0.06)
    with pytest.raises(BudgetError, match="could not decide within 1e-09 seconds: a question about 8 rows"):
        reasoner.log_prob(Belief.uniform((10, 10), (8,)), torch.tensor([1, 3]))


def test_only_the_engine_that_is_picked_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    for name, engine in list(ENGINES.items()):
        monkeypatch.setitem(ENGINES, name, lambda *a, _e=engine, _n=name, **k: built.append(_n) or _e(*a, **k))
    plan(addition(15))
    assert built == ["elimination"]


def test_limits_are_above_zero() -> None:
    with pytest.raises(ConfigError, match="worlds is 0, expected a number above 0"):
        Budget(worlds=0)
