"""Derivatives, extreme probabilities, batches of any size."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from exact_cases import ENGINES, random_belief
from torch import Tensor

from doxa.exact import Elimination, ExactReasoner
from doxa.exact.engines._search import finite, log_of
from doxa.problem import Belief, BruteForce, Budget, Problem, addition, exactly_k, parity

Engine = Callable[..., ExactReasoner]
engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
PROBLEMS = {"addition": addition(2, base=2), "exactly": exactly_k(2, 3)}
problems = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


@engines
@problems
def test_derivatives_to_the_second_order(engine: Engine, problem: Problem) -> None:
    reasoner = engine(problem)
    logits = torch.randn(2, len(problem.world), max(problem.world), dtype=torch.float64, requires_grad=True)
    output = problem(problem.random_worlds(2))
    partial = output.clone()
    partial[0, 0] = -1
    queries: list[Callable[[Tensor], Tensor]] = [
        lambda x: reasoner.log_prob(Belief.from_logits(x), output),
        lambda x: reasoner.log_prob(Belief.from_logits(x), partial),
        lambda x: reasoner.entropy(Belief.from_logits(x), output),
        lambda x: reasoner.posterior(Belief.from_logits(x), output).probs,
        lambda x: reasoner.marginals(Belief.from_logits(x)).probs,
        lambda x: reasoner.kl(Belief.from_logits(x), output, Belief.from_logits(x.flip(0)), posterior=True),
    ]
    for query in queries:
        assert torch.autograd.gradcheck(query, logits, fast_mode=True)
        assert torch.autograd.gradgradcheck(query, logits, fast_mode=True)


@engines
def test_zeros_and_impossible_outputs_have_finite_derivatives(engine: Engine) -> None:
    problem = addition(2, base=3)
    probs = torch.eye(3, dtype=torch.float64)[torch.tensor([[0, 1, 2, 2], [2, 2, 2, 2]])].requires_grad_()
    reasoner = engine(problem, impossible="finite")
    for output in ([1, 0, 0], [1, 2, 2], [1, 2, 1]):
        loss = reasoner.loss(Belief.from_probs(probs), torch.tensor(output))
        (gradient,) = torch.autograd.grad(loss.sum(), probs, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), probs)
        assert loss.isfinite().all()
        assert gradient.isfinite().all()
        assert not second.isnan().any()


@engines
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_probabilities(engine: Engine, dtype: torch.dtype) -> None:
    """p(y) = 1e-300: 4 bits that are each true with probability 1e-75, in both precisions."""
    problem = exactly_k(4, 4)
    small = torch.full((4,), math.log(1e-75), dtype=dtype)
    log_probs = torch.stack([torch.zeros_like(small), small], -1).requires_grad_()
    reasoner = engine(problem)
    value = reasoner.log_prob(Belief(log_probs, validate=False), torch.tensor([1]))
    assert value.item() == pytest.approx(4 * math.log(1e-75), rel=1e-6)
    (gradient,) = torch.autograd.grad(value, log_probs)
    torch.testing.assert_close(gradient, torch.eye(2, dtype=dtype)[1].expand(4, 2))
    best = reasoner.explain(Belief(log_probs.detach(), validate=False), torch.tensor([1]))
    assert best.worlds.tolist() == [[1] * 4]
    assert best.scores.item() == pytest.approx(0, abs=1e-3)


@engines
@pytest.mark.parametrize("batch", [(0,), (1,), (10_000,), (0, 3), ()])
def test_batches(engine: Engine, batch: tuple[int, ...]) -> None:
    problem = parity(4)
    belief = random_belief(problem, *batch, dtype=torch.float32)
    reasoner, oracle = engine(problem), BruteForce(problem)
    output = torch.tensor([1])
    torch.testing.assert_close(reasoner.log_prob(belief, output), oracle.log_prob(belief, output))
    torch.testing.assert_close(reasoner.posterior(belief, output).probs, oracle.posterior(belief, output).probs)
    torch.testing.assert_close(reasoner.marginals(belief).probs, oracle.marginals(belief).probs)
    assert reasoner.sample(belief, output, 2).shape == (2, *batch, 4)
    assert reasoner.predict(belief).shape == (*batch, 1)
    if batch != (10_000,):
        assert reasoner.explain(belief, output, 2).worlds.shape == (*batch, 2, 4)


@engines
def test_parts_that_fit_in_memory_give_the_same(engine: Engine) -> None:
    problem = addition(2, base=3)
    logits = torch.randn(7, 4, 3, dtype=torch.float64, requires_grad=True)
    output = problem(problem.random_worlds(7))
    answers = []
    for reasoner in (engine(problem), engine(problem, budget=Budget(entries=2000))):
        loss = reasoner.loss(Belief.from_logits(logits), output)
        answers.append(
            (loss, *torch.autograd.grad(loss.sum(), logits), reasoner.marginals(Belief.from_logits(logits)).probs)
        )
    torch.testing.assert_close(*answers)


@engines
def test_vmap_and_functional_gradients(engine: Engine) -> None:
    problem = addition(2, base=3)
    reasoner = engine(problem, impossible="inf")
    logits = torch.randn(5, 2, 4, 3, dtype=torch.float64)
    output = problem(problem.random_worlds(5))

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return reasoner.loss(Belief.from_logits(x), y).sum()

    mapped = torch.vmap(torch.func.grad(loss))(logits, output)
    for x, y, gradient in zip(logits, output, mapped, strict=True):
        point = x.clone().requires_grad_()
        torch.testing.assert_close(gradient, *torch.autograd.grad(loss(point, y), point))
    hessian = torch.func.jacrev(torch.func.jacrev(lambda x: loss(x.reshape(2, 4, 3), output[0])))(logits[0].flatten())
    assert hessian.shape == (24, 24)
    torch.testing.assert_close(hessian, hessian.T)
    posterior = torch.vmap(lambda x, y: reasoner.posterior(Belief.from_logits(x), y).probs)(logits, output)
    torch.testing.assert_close(posterior[0], reasoner.posterior(Belief.from_logits(logits[0]), output[0]).probs)


@engines
def test_every_question_in_inference_mode(engine: Engine) -> None:
    problem = addition(2, base=3)
    reasoner, logits = engine(problem), torch.randn(3, 4, 3)
    output = problem(problem.random_worlds(3))

    def answers() -> list[Tensor]:
        belief = Belief.from_logits(logits)
        return [
            reasoner.log_prob(belief, output),
            reasoner.loss(belief, output),
            reasoner.posterior(belief, output).probs,
            reasoner.marginals(belief).probs,
            reasoner.predict(belief),
            reasoner.explain(belief, output, 2).scores,
            reasoner.entropy(belief, output),
            reasoner.sample(belief, output, generator=torch.Generator().manual_seed(0)),
        ]

    expected = answers()
    with torch.inference_mode():
        for found, wanted in zip(answers(), expected, strict=True):
            torch.testing.assert_close(found, wanted)


def test_a_thousand_digits_like_the_same_digits_one_by_one() -> None:
    """With certain digits in all places but two, the long sum is as probable as the sum of these two."""
    digits = 1000
    reasoner, problem = Elimination(addition(digits)), addition(digits)
    world = problem.random_worlds(1)
    probs = torch.nn.functional.one_hot(world, 10).double()
    left = torch.rand(2, 10, dtype=torch.float64)
    left /= left.sum(-1, keepdim=True)
    probs[0, 500], probs[0, 1500] = left
    world[0, 500], world[0, 1500] = 6, 7
    output = problem(world)
    carried = int(problem(world)[0, 501] != 3)  # whether the digit to the right carries into this one
    expected = sum(left[0, a] * left[1, b] for a in range(10) for b in range(10) if a + b + carried == 13 + carried)
    assert reasoner.log_prob(Belief.from_probs(probs), output).exp().item() == pytest.approx(float(expected), rel=1e-9)
    assert torch.equal(reasoner.explain(Belief.from_probs(probs), output).worlds[0, 0] >= 0, torch.ones(2000).bool())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logarithms_of_every_probability(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).tiny
    probs = torch.tensor([0.0, tiny / 1024, tiny / 2, tiny, 1.25 * tiny, 1.75 * tiny, 3 * tiny, 0.5, 1.0], dtype=dtype)
    for own in (probs, probs[6:], probs[[0, 7]], probs[:1], probs[:0], probs.reshape(3, 3).T):
        expected = torch.tensor([math.log(p) if p else -math.inf for p in own.flatten().tolist()], dtype=dtype)
        torch.testing.assert_close(log_of(own), expected.reshape(own.shape))
    assert log_of(torch.tensor([math.nan, 0.5], dtype=dtype)).isnan().tolist() == [True, False]


def test_finite_logarithms() -> None:
    log_probs = torch.tensor([-math.inf, -1e300, 0.0], dtype=torch.float64, requires_grad=True)
    found = finite(log_probs)
    assert found.tolist() == [0.0, -1e300, 0.0]
    assert torch.autograd.grad(found.sum(), log_probs)[0].tolist() == [0.0, 1.0, 1.0]
