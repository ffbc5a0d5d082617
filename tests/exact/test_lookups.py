"""Trees of lookups: partial sums, running maxima and used values against convolutions, formulas and brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from exact_cases import random_belief, seeded
from torch import Tensor

from doxa.errors import BudgetError, ProblemError
from doxa.exact import Elimination, plan
from doxa.problem import Belief, BruteForce, Budget, Factor, Problem, Variable

Step = Callable[[Tensor, Tensor], Tensor]


def chain(n: int, size: int, step: Step) -> Problem:
    """A running total of n variables; the states are numbered as they come."""
    w, y, state = Variable.world, Variable.output, Variable.auxiliary
    factors, auxiliary, before, count = list[Factor](), list[int](), w(0), size
    for i in range(1, n):
        codes = step(torch.arange(count).unsqueeze(-1), torch.arange(size)).expand(count, size).contiguous()
        count, target = int(codes.max()) + 1, y(0) if i == n - 1 else state(i - 1)
        auxiliary += [count] if i < n - 1 else []
        factors.append(Factor.lookup([before, w(i)], target, codes))
        before = target
    return Problem.from_factors(factors, (size,) * n, (count,), auxiliary=auxiliary)


def test_a_sum_of_100_digits_is_a_convolution() -> None:
    problem = chain(100, 10, torch.add)
    logits = torch.randn(3, 100, 10, dtype=torch.float64, generator=seeded()).requires_grad_()
    belief = Belief.from_logits(logits)
    reasoner = plan(problem).reasoner
    assert isinstance(reasoner, Elimination)
    for row, probs in enumerate(belief.probs.detach().numpy()):
        expected = probs[0]
        for digit in probs[1:]:
            expected = np.convolve(expected, digit)
        outputs = torch.tensor([[0], [1], [7], [31], [32], [300], [450], [511], [512], [899], [900]])
        many = belief[row].expand(len(outputs))
        for some in (slice(0, 3), slice(3, 5), slice(5, 9), slice(9, 11), slice(0, 11)):  # cut off at different places
            found = reasoner.log_prob(many[some], outputs[some])
            torch.testing.assert_close(found, torch.tensor(expected[outputs[some, 0].numpy()]).log())
        marginals = reasoner.marginals(belief[row]).probs[0]
        torch.testing.assert_close(marginals, torch.tensor(expected))
    value = reasoner.log_prob(belief, torch.tensor([[450], [20], [889]]))
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    # d log p(y) / d logit = p(digit | y) - p(digit), and the posterior by taking out one digit
    for row, total in enumerate([450, 20, 889]):
        probs = belief.probs[row].detach().numpy()
        others = np.array([1.0])
        for digit in probs[1:]:
            others = np.convolve(others, digit)
        weights = np.array(
            [p * others[total - d] if 0 <= total - d < len(others) else 0 for d, p in enumerate(probs[0])]
        )
        torch.testing.assert_close(gradient[row, 0], torch.tensor(weights / weights.sum() - probs[0]))


def test_improbable_sums_keep_their_logarithms() -> None:
    certain = torch.full((60, 10), -40.0).index_fill(1, torch.tensor([1]), 0.0).requires_grad_()
    value = Elimination(chain(60, 10, torch.add)).log_prob(Belief.from_logits(certain), torch.tensor([120]))
    (gradient,) = torch.autograd.grad(value, certain)
    assert -40.0 * 60 < value < -200.0  # below the smallest number of 32 bits
    assert gradient.isfinite().all() and gradient.abs().sum() > 1


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("step", [torch.add, torch.maximum, torch.minimum], ids=["sum", "max", "min"])
def test_chains_against_brute_force(n: int, step: Step) -> None:
    class LookupsFirst(Elimination):
        worth = 0

    problem = chain(n, 4, step)
    belief, oracle, reasoner = random_belief(problem, 6, seed=n), BruteForce(problem), LookupsFirst(problem)
    output = problem(belief.sample(1, generator=seeded(n))[0])
    torch.testing.assert_close(reasoner.log_prob(belief, output), oracle.log_prob(belief, output))
    torch.testing.assert_close(reasoner.posterior(belief, output).probs, oracle.posterior(belief, output).probs)
    assert torch.equal(reasoner.predict(belief), oracle.predict(belief))
    found, expected = reasoner.explain(belief, output, 3), oracle.explain(belief, output, 3)
    torch.testing.assert_close(found.scores, expected.scores)
    drawn = reasoner.sample(belief, output, 20, generator=seeded())
    assert torch.equal(problem(drawn), output.expand(20, -1, -1))


def test_used_values_are_a_permanent() -> None:
    n = 6
    full = (1 << n) - 1

    def used(sets: Tensor, value: Tensor) -> Tensor:
        sets = torch.where(sets < n, 1 << sets, 0) if len(sets) == n else sets  # the first is a value, not a set
        fresh = (sets >> value) & 1 == 0
        return torch.where(fresh & (sets > 0), sets | (1 << value), 0)

    problem = chain(n, n, used)
    belief = random_belief(problem, 2)
    found = plan(problem).reasoner.log_prob(belief, torch.full((2, 1), full)).exp()
    for row, probs in enumerate(belief.probs):
        permanent = sum(
            math.prod(probs[i, j].item() for i, j in enumerate(p)) for p in itertools.permutations(range(n))
        )
        assert found[row].item() == pytest.approx(permanent)


def test_shared_inputs_and_several_uses_are_left_to_elimination() -> None:
    """Two sums over some of the same digits, one of which is used twice."""
    w, y, aux = Variable.world, Variable.output, Variable.auxiliary
    plus = torch.arange(5).unsqueeze(-1) + torch.arange(5)
    more = torch.arange(9).unsqueeze(-1) + torch.arange(5)
    factors = [
        Factor.lookup([w(0), w(1)], aux(0), plus),
        Factor.lookup([aux(0), w(2)], y(0), more),
        Factor.lookup([w(2), w(3)], aux(1), plus),
        Factor.lookup([aux(1), w(4)], y(1), more),
        Factor.lookup([aux(0)], y(2), torch.arange(9) % 2),
    ]
    problem = Problem.from_factors(factors, (5,) * 5, (13, 13, 2), auxiliary=(9, 9))
    belief, oracle = random_belief(problem, 4), BruteForce(problem)

    class LookupsFirst(Elimination):
        worth = 0

    for engine in (Elimination, LookupsFirst):
        for output in ([6, 7, 0], [-1, 7, 1], [3, -1, -1], [0, 12, 1]):
            seen = torch.tensor(output).expand(4, -1)
            torch.testing.assert_close(engine(problem).log_prob(belief, seen), oracle.log_prob(belief, seen))


def test_too_many_states_are_refused() -> None:
    with pytest.raises(ProblemError, match="no exact engine fits"):
        plan(chain(100, 10, torch.add), budget=Budget(entries=1000, operations=1000, worlds=10))
    with pytest.raises(BudgetError, match="entries"):
        Elimination(chain(100, 10, torch.add), budget=Budget(entries=1000))
