"""Given variables, lookups and comparisons: derivatives, batches, refusals, and no table that is not needed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from exact_cases import ENGINES, random_belief, seeded
from torch import Tensor

from doxa.errors import BudgetError, ProblemError
from doxa.exact import Elimination, Enumeration, ExactReasoner, counterfactual, describe, plan
from doxa.problem import Belief, BruteForce, Budget, Factor, Problem, Variable

Engine = Callable[..., ExactReasoner]
engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
w, y, g, a = Variable.world, Variable.output, Variable.given, Variable.auxiliary
SUM = torch.arange(3).unsqueeze(1) + torch.arange(4)


def same_sum() -> Problem:
    """Whether two digits add up to what is given, and whether the first is at most the second given value."""
    factors = [
        Factor.lookup([w(0), w(1)], a(0), SUM),
        Factor.compare(a(0), g(0), y(0), "="),
        Factor.compare(w(0), g(1), y(1), "<="),
    ]
    return Problem.from_factors(factors, (3, 4), (2, 2), auxiliary=(6,), given=(6, 3))


def product(digits: int = 2) -> tuple[Problem, Tensor, Tensor]:
    """Whether the product of two numbers is the given one; the products that there are, and the code of each pair."""
    count = 10**digits
    pairs = torch.arange(count).unsqueeze(1) * torch.arange(count)
    values, codes = torch.unique(pairs, return_inverse=True)
    number = torch.arange(count).reshape([10] * digits)
    factors = [
        Factor.lookup([w(i) for i in range(digits)], a(0), number),
        Factor.lookup([w(digits + i) for i in range(digits)], a(1), number),
        Factor.lookup([a(0), a(1)], a(2), codes),
        Factor.compare(a(2), g(0), y(0), "="),
    ]
    sizes = (count, count, len(values))
    problem = Problem.from_factors(factors, [10] * 2 * digits, [2], auxiliary=sizes, given=[len(values)])
    return problem, values, codes


@engines
def test_derivatives_to_the_second_order(engine: Engine) -> None:
    problem = same_sum()
    reasoner, oracle = engine(problem), BruteForce(problem)
    given, output = torch.tensor([[2, 1], [3, 0], [0, 2]]), torch.tensor([[1, 1], [0, -1], [1, 1]])
    found = []
    for engine_ in (reasoner, oracle):
        logits = [torch.randn(3, n, dtype=torch.float64, generator=seeded(n)).requires_grad_() for n in problem.world]
        value = engine_.log_prob(Belief.from_logits(logits), output, given=given)
        first = torch.autograd.grad(value.sum(), logits, create_graph=True)
        second = torch.autograd.grad(sum(x.square().sum() for x in first), logits)
        found.append([value, *first, *second])
    torch.testing.assert_close(*found)


@engines
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [(0,), (1,), (5,), (0, 3), (2, 2), ()])
def test_batches(engine: Engine, batch: tuple[int, ...], dtype: torch.dtype) -> None:
    problem = same_sum()
    belief = random_belief(problem, *batch, dtype=dtype)
    reasoner, oracle = engine(problem), BruteForce(problem)
    output = torch.tensor([1, -1])
    for given in (torch.tensor([3, 1]), torch.tensor([3, 1]).expand(*batch, 2)):
        expected = oracle.log_prob(belief, output, given=given)
        assert expected.dtype == dtype
        torch.testing.assert_close(reasoner.log_prob(belief, output, given=given), expected)
        posterior = oracle.posterior(belief, output, given=given)
        torch.testing.assert_close(reasoner.posterior(belief, output, given=given).probs, posterior.probs)
        assert reasoner.sample(belief, output, 2, given=given).shape == (2, *batch, 2)
        assert reasoner.predict(belief, given=given).shape == (*batch, 2)
        assert reasoner.explain(belief, output, 2, given=given).worlds.shape == (*batch, 2, 2)


@engines
def test_parts_that_fit_in_memory_and_functional_transformations(engine: Engine) -> None:
    problem = same_sum()
    logits = torch.randn(7, 2, 4, dtype=torch.float64, generator=seeded())
    logits[:, 0, 3] = -math.inf
    given = torch.tensor([[i % 6, i % 3] for i in range(7)])
    output = torch.tensor([1, -1])

    def loss(x: Tensor, seen: Tensor, reasoner: ExactReasoner) -> Tensor:
        belief = Belief(x.log_softmax(-1), problem.world, validate=False)
        return reasoner.loss(belief, output, given=seen).sum()

    whole = engine(problem, impossible="finite")
    row = whole.budget.entries // whole._rows_at_once  # numbers that one row takes, about
    small = engine(problem, impossible="finite", budget=Budget(entries=3 * row))
    assert small._rows_at_once < 7
    gradients = [torch.func.grad(loss)(logits, given, reasoner) for reasoner in (whole, small)]
    mapped = torch.vmap(torch.func.grad(lambda x, seen: loss(x, seen, whole)))(logits, given)
    torch.testing.assert_close(gradients[0], gradients[1])
    torch.testing.assert_close(gradients[0], mapped)


@engines
def test_samples_and_changes_keep_what_is_given(engine: Engine) -> None:
    problem = same_sum()
    reasoner = engine(problem)
    belief, given = random_belief(problem, 2), torch.tensor([[2, 2], [4, 1]])
    worlds = reasoner.sample(belief, torch.tensor([1, 1]), 50, given=given, generator=seeded())
    assert (problem(worlds, given) == 1).all()
    change = counterfactual(reasoner, torch.tensor([[0, 0], [0, 0]]), torch.tensor([1, 1]), given=given)
    assert change.changes.tolist() == [1, 2]
    assert (problem(change.worlds, given) == 1).all()
    text = describe(reasoner, Belief.uniform((3, 4)), torch.tensor([1, 1]), given=torch.tensor([0, 0]))
    assert text == "100.0 %  (w0=0, w1=0)"


def test_a_product_of_two_digit_numbers_makes_no_large_table() -> None:
    problem, values, codes = product()
    assert len(values) == 2870
    assert problem.factors is not None
    made = plan(problem)
    assert isinstance(made.reasoner, Enumeration)
    logits = torch.randn(3, 4, 10, dtype=torch.float64, generator=seeded(), requires_grad=True)
    label = codes.reshape(-1)[torch.tensor([3719, 4242, 1])]
    loss = made.reasoner.loss(Belief.from_logits(logits), torch.tensor([1]), given=label.unsqueeze(-1))
    left, right = [(x[:, 0, :, None] + x[:, 1, None, :]).flatten(1) for x in logits.log_softmax(-1).split(2, 1)]
    joint = (left[:, :, None] + right[:, None, :]).flatten(1)
    expected = -joint.masked_fill(codes.reshape(-1) != label.unsqueeze(-1), -math.inf).logsumexp(-1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(x.sum(), logits, retain_graph=True)[0] for x in (loss, expected)), rtol=1e-6, atol=1e-9
    )
    assert all("table" not in vars(factor.relation) for factor in problem.factors)
    with pytest.raises(BudgetError, match=r"tables of .* entries, more than 1,000,000; raise Budget\(entries"):
        Elimination(problem, budget=Budget(entries=1_000_000))


def test_lookups_and_comparisons_are_their_tables() -> None:
    """The same problem with every table made, asked by every engine."""
    lazy = same_sum()
    assert lazy.factors is not None
    dense = Problem.from_factors(
        [Factor(f.scope, f.table) for f in lazy.factors], lazy.world, lazy.output, auxiliary=(6,), given=lazy.given
    )
    assert torch.equal(lazy.factors[1].table[..., 1], torch.eye(6, dtype=torch.bool))
    for seen in torch.cartesian_prod(torch.arange(6), torch.arange(3)):
        worlds = lazy.worlds()
        expected = torch.stack([worlds.sum(-1) == seen[0], worlds[:, 0] <= seen[1]], -1).long()
        assert torch.equal(lazy(worlds, seen), expected)
        assert torch.equal(dense(worlds, seen), expected)
    assert lazy.check().factors and dense.check().exhaustive
    belief, output, given = random_belief(lazy, 4), torch.tensor([1, 0]), torch.tensor([3, 0])
    values = [make(p).log_prob(belief, output, given=given) for make in ENGINES.values() for p in (lazy, dense)]
    for value in values:
        torch.testing.assert_close(value, values[0])


@engines
@pytest.mark.parametrize(
    "given, message",
    [
        (None, r"the problem has the given variables g0, g1; say given=, an int64 tensor \(\*batch, 2\)"),
        (torch.zeros(3, 2), r"given has dtype torch.float32 and shape \(3, 2\), expected int64 \(..., 2\)"),
        (torch.zeros(3, 3).long(), r"given has dtype torch.int64 and shape \(3, 3\), expected int64 \(..., 2\)"),
        (torch.zeros(2, 2).long(), r"given has shape \(2, 2\), expected \(3, 2\): the batch of the belief"),
        (torch.tensor([6, 0]), r"given\[0\] is 6, expected 0 to 5 for g0"),
        (torch.tensor([0, -1]), r"given\[1\] is -1, expected 0 to 2 for g1"),
    ],
)
def test_given_values_that_do_not_fit(engine: Engine, given: Tensor | None, message: str) -> None:
    problem = same_sum()
    reasoner, belief = engine(problem), Belief.uniform(problem.world, (3,))
    for query in (reasoner.log_prob, reasoner.posterior, reasoner.explain, reasoner.sample, reasoner.entropy):
        with pytest.raises(ProblemError, match=message):
            query(belief, torch.tensor([1, 1]), given=given)
    for ask in (reasoner.predict, reasoner.marginals):
        with pytest.raises(ProblemError, match=message):
            ask(belief, given=given)


def test_given_values_that_nobody_asked_for() -> None:
    problem = Problem((2,), (2,), lambda worlds: worlds)
    with pytest.raises(ProblemError, match="the problem has no given variables; leave it out"):
        Enumeration(problem).log_prob(Belief.uniform((2,)), torch.tensor([1]), given=torch.tensor([1]))


def test_an_impossible_row_names_what_was_given() -> None:
    reasoner = Elimination(same_sum())
    with pytest.raises(ProblemError, match=r"rows \(1,\): no world gives \(1, 1\) with \(5, 0\) given"):
        reasoner.loss(Belief.uniform((3, 4), (2,)), torch.tensor([1, 1]), given=torch.tensor([[2, 2], [5, 0]]))
