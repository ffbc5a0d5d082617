"""Amortised inference on a tape, by enumeration: the control variate is unbiased, the sum is what it says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from doxa.amortized import (
    AmortizedControl,
    AmortizedReasoner,
    PairsModel,
    ScanModel,
    with_sampling,
    worlds_of,
)
from doxa.errors import ConfigError
from doxa.problem import Belief, BruteForce, Problem, parity
from doxa.stochastic import LeaveOneOut, Tape, check_unbiased

PROBLEM = Problem((3, 3), (5,), lambda w: w.sum(-1, keepdim=True))
WANTED = torch.tensor([1])


def engine() -> AmortizedReasoner:
    torch.manual_seed(0)
    return AmortizedReasoner(PROBLEM, ScanModel(PROBLEM, hidden=8).double())


def distribution(theta: Tensor):  # type: ignore[no-untyped-def]
    """p(w | P) for logits that depend on one number."""
    weight = torch.tensor([[0.7, -0.4, 0.9], [0.2, -1.1, 0.0]], dtype=torch.float64)
    logits = theta.unsqueeze(-1).unsqueeze(-1) * weight
    return worlds_of(Belief.from_logits(logits, (3, 3)))


def cost(worlds: Tensor) -> Tensor:
    return (PROBLEM(worlds.long()) != WANTED).any(-1).double() + 0.3 * worlds[..., 0].double()


@pytest.mark.parametrize("scale", [1.0, 0.4, -2.0])
@pytest.mark.parametrize("surrogate", ["expected_miss", "expected_hamming"])
def test_control_variate_is_unbiased_at_every_order(scale: float, surrogate: str) -> None:
    """An untrained model is a poor control variate, and still an unbiased one: proved by enumeration."""
    e = engine()
    control = AmortizedControl(lambda b: getattr(e, surrogate)(b, WANTED), n=2, scale=scale)
    report = check_unbiased(control, distribution, cost, order=3, at=torch.tensor(0.37))
    assert report.enumerated and report.ok, str(report)


def test_the_check_can_fail() -> None:
    """Without the term that compensates for the tangent plane, the estimate is biased."""

    class Missing(AmortizedControl):
        def control(self, draw, box, cost):  # type: ignore[no-untyped-def]
            probs = draw.distribution.base_dist.probs
            _, slope = self._tangent(probs)
            return super().control(draw, box, cost) - ((probs - probs.detach()) * slope).sum((-1, -2))

    e = engine()
    missing = Missing(lambda b: e.expected_miss(b, WANTED), n=2)
    assert not check_unbiased(missing, distribution, cost, order=1, at=torch.tensor(0.37)).ok


def gradients(estimator, logits: Tensor, count: int) -> Tensor:  # type: ignore[no-untyped-def]
    """``count`` independent estimates, one for each row of a batch."""
    rows = logits.expand(count, *logits.shape).clone().requires_grad_()
    tape = Tape(batch_dims=1, generator=torch.Generator().manual_seed(0))
    w = tape.sample(worlds_of(Belief.from_logits(rows, (3, 3))), estimator)
    tape.cost((PROBLEM(w) != WANTED).any(-1).double())
    (found,) = torch.autograd.grad(tape.surrogate(reduction="sum"), rows)
    return found.reshape(count, -1)


def test_a_good_model_takes_variance_away() -> None:
    """With the exact probability as surrogate, what is left is only what its tangent plane misses."""
    exact = BruteForce(PROBLEM)
    logits = torch.tensor([[0.3, -0.5, 0.1], [0.4, -0.2, 0.0]], dtype=torch.float64)
    plain = gradients(LeaveOneOut(4), logits, 4000)
    control = AmortizedControl(lambda b: 1 - exact.log_prob(b, WANTED).exp(), n=4)
    better = gradients(control, logits, 4000)
    assert better.var(0).sum() < 0.85 * plain.var(0).sum()
    point = logits.clone().requires_grad_()
    (truth,) = torch.autograd.grad(1 - exact.log_prob(Belief.from_logits(point, (3, 3)), WANTED).exp(), point)
    for found in (plain, better):
        error = found.std(0) / 4000**0.5 + 1e-12
        assert float(((found.mean(0) - truth.flatten()).abs() / error).max()) < 4.5


def test_a_perfect_linear_cost_has_no_variance_at_all() -> None:
    """Where the expected cost is linear in P, the tangent plane is the cost itself."""
    price = torch.tensor([[1.0, 4.0, 2.0], [3.0, 0.0, 0.0]], dtype=torch.float64)
    control = AmortizedControl(lambda b: (b.probs * price).sum((-1, -2)), n=2)
    rows = torch.randn(50, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    tape = Tape(batch_dims=1)
    b = Belief.from_logits(rows, (3, 3))
    w = tape.sample(worlds_of(b), control)
    tape.cost(price[torch.arange(2), w].sum(-1))
    (found,) = torch.autograd.grad(tape.surrogate(reduction="sum"), rows, retain_graph=True)
    (exact,) = torch.autograd.grad((b.probs * price).sum(), rows)
    torch.testing.assert_close(found, exact)


def test_the_sum_is_the_sum_and_the_model_alone_is_biased() -> None:
    e = engine()
    logits = torch.tensor([[[0.3, -0.5, 0.1], [0.4, -0.2, 0.0]]], dtype=torch.float64).expand(3, 2, 3)
    rows = logits.clone().requires_grad_()
    b = Belief.from_logits(rows, (3, 3))

    def misses(found: Tensor, wanted: Tensor) -> Tensor:
        return (found != wanted).any(-1).double()

    loss = with_sampling(e, b, WANTED, misses, LeaveOneOut(6), weight=2.0, generator=torch.Generator().manual_seed(3))
    tape = Tape(batch_dims=1, generator=torch.Generator().manual_seed(3))
    w = tape.sample(worlds_of(b), LeaveOneOut(6))
    tape.cost(misses(PROBLEM(w), WANTED))
    by_hand = e.loss(b, WANTED) + 2.0 * tape.surrogate(reduction="none")
    torch.testing.assert_close(loss, by_hand)
    one, two = (torch.autograd.grad(x.sum(), rows, retain_graph=True)[0] for x in (loss, by_hand))
    torch.testing.assert_close(one, two)
    exact = 1 - BruteForce(PROBLEM).log_prob(b, WANTED).exp()
    (truth,) = torch.autograd.grad(exact.sum(), rows, retain_graph=True)
    (model,) = torch.autograd.grad(e.expected_miss(b, WANTED).sum(), rows)
    assert float((truth - model).abs().max()) > 0.01  # which is what the control variate removes


def test_expected_costs_of_independent_outputs_are_exact() -> None:
    problem = Problem((3,) * 3, (2, 2), lambda w: torch.stack([w[..., 0] != w[..., 1], w[..., 1] != w[..., 2]], -1))
    e = AmortizedReasoner(problem, PairsModel(problem, closed_form=True))
    b = Belief.from_logits(torch.randn(5, 3, 3, dtype=torch.float64))
    y = torch.tensor([1, 0])
    marginals = BruteForce(problem).marginals(b).probs
    torch.testing.assert_close(e.expected_hamming(b, y), (1 - marginals[:, 0, 1]) + (1 - marginals[:, 1, 0]))
    torch.testing.assert_close(e.expected_miss(b, y), 1 - e.log_prob(b, y).exp())


def test_errors() -> None:
    e = AmortizedReasoner(parity(2))
    tape = Tape(batch_dims=1)
    b = Belief.uniform((2, 2), (3,))
    w = tape.sample(worlds_of(b), AmortizedControl(lambda p: e.expected_miss(p, torch.tensor([1])).sum(), n=2))
    tape.cost(w.sum(-1).float())
    with pytest.raises(ConfigError, match="one cost for each row"):
        tape.surrogate()
    tape = Tape(batch_dims=1)
    w = tape.sample(torch.distributions.Bernoulli(torch.full((3,), 0.5)), AmortizedControl(lambda p: p.entropy(), n=2))
    tape.cost(w)
    with pytest.raises(ConfigError, match="worlds_of"):
        tape.surrogate()
