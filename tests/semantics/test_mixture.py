"""A problem batch whose belief is a mixture, under the semantics that take one; enumeration is the oracle."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import doxa
from doxa.errors import ConfigError, ProblemError
from doxa.pose import PosedAxiom, ProblemBatch
from doxa.problem import Belief, Mixture
from doxa.semantics import Exact, Refined, Sampled
from doxa.semantics._probabilistic import Probabilistic
from doxa.stochastic import Enumerate, Estimator, LeaveOneOut, Score, UnorderedSet, check_unbiased
from doxa.stochastic.estimators._mixtures import JointWorlds

ROWS = 3000
LOGITS = torch.tensor([[[2.0, -1], [1, 0]], [[0, 0.5], [-2, 1]], [[0.3, 0.1], [0, 0]]], dtype=torch.float64)
WEIGHTS = torch.tensor([0.1, 0.5, -0.3], dtype=torch.float64)


def asked(how: doxa.semantics.Semantics, belief: Belief | Mixture) -> tuple[Probabilistic, PosedAxiom, ProblemBatch]:
    """Whether a and b are the same, of every row of a belief."""
    kb = doxa.parse("pred a; pred b; [same] a <-> b")
    model = doxa.Model(kb, a=doxa.probs(torch.tensor(0.5)), b=doxa.probs(torch.tensor(0.5)))
    compiled = how.compile(kb.axioms, model.interpretation)
    assert isinstance(compiled, Probabilistic)
    (posed,) = compiled.posed({})
    (batch,) = posed.batches
    (rows,) = belief.batch_shape
    return (
        compiled,
        posed,
        replace(batch, belief=belief, observed=batch.observed.expand(rows, -1), instances=torch.arange(rows)),
    )


def same(mixture: Mixture) -> Tensor:
    """How probable it is, written out."""
    probs = mixture.components.probs
    agree = probs[..., 0, 0] * probs[..., 1, 0] + probs[..., 0, 1] * probs[..., 1, 1]
    return (mixture.log_weights.exp() * agree).sum(-1)


def leaves(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    return (x.expand(rows, *x.shape).clone().requires_grad_() for x in (LOGITS, WEIGHTS))  # type: ignore[return-value]


@pytest.mark.parametrize("estimator", [Score(2), LeaveOneOut(4), Enumerate()], ids=repr)
def test_estimates_are_unbiased(estimator: Estimator) -> None:
    x, y = leaves()
    compiled, posed, batch = asked(Sampled(estimator, log=False), Mixture.from_logits(x, y))
    loss = compiled.batch_losses(posed, batch, torch.Generator().manual_seed(0))
    violated = 1 - same(Mixture.from_logits(x, y))
    pairs = [(loss.detach(), violated.detach())]
    pairs += zip(torch.autograd.grad(loss.sum(), (x, y)), torch.autograd.grad(violated.sum(), (x, y)), strict=True)
    for found, true in pairs:
        spread = found.std(0) / math.sqrt(ROWS)
        assert ((found.mean(0) - true[0]).abs() <= 4.5 * spread + 1e-12).all()
        assert isinstance(estimator, Enumerate) == bool((spread < 1e-9).all())


@pytest.mark.parametrize("estimator", [Score(), LeaveOneOut(2), Enumerate()], ids=repr)
def test_the_judge_finds_no_bias(estimator: Estimator) -> None:
    def worlds(theta: Tensor) -> JointWorlds:
        heads = torch.stack([theta, -theta, theta.flip(-1)], -2).unsqueeze(-1) * torch.tensor([1.0, -0.5])
        return JointWorlds(Mixture.from_logits(heads, theta))

    def cost(z: Tensor) -> Tensor:
        return (z[..., 0] + 2 * z[..., 1] * z[..., 2]).double()

    verdict = check_unbiased(estimator, worlds, cost, at=torch.tensor([0.4, -0.7, 0.2]), order=1)
    assert verdict.ok, str(verdict)


def test_the_logarithm_of_the_share_that_holds() -> None:
    x, y = leaves(2)
    compiled, posed, batch = asked(Sampled(LeaveOneOut(40_000)), Mixture.from_logits(x, y))
    loss = compiled.batch_losses(posed, batch, torch.Generator().manual_seed(0))
    true = -same(Mixture.from_logits(x, y)).log()
    torch.testing.assert_close(loss, true, rtol=0, atol=0.02)
    for found, slope in zip(
        torch.autograd.grad(loss.sum(), (x, y)), torch.autograd.grad(true.sum(), (x, y)), strict=True
    ):
        torch.testing.assert_close(found, slope, rtol=0, atol=0.02)


def test_truths_are_those_of_exact_reasoning() -> None:
    mixture = Mixture.from_logits(LOGITS, WEIGHTS)
    compiled, posed, batch = asked(Sampled(), mixture.expand(ROWS))
    shares = compiled.batch_truths(posed, batch, torch.Generator().manual_seed(0))
    exact, posed, batch = asked(Exact(), mixture.expand(1))
    (true,) = exact.batch_truths(posed, batch, None)
    torch.testing.assert_close(true, same(mixture))
    spread = math.sqrt(true * (1 - true) / 128 / ROWS)
    assert abs(shares.mean() - true) <= 5 * spread
    point = Belief.from_bernoulli(probs=torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]))
    sure = Mixture(point, torch.tensor([0.5, 0.5, 0.0]).log())
    compiled, posed, batch = asked(Sampled(), sure.expand(50))
    assert (compiled.batch_truths(posed, batch, None) == 1).all()


def test_who_cannot_take_a_mixture_says_who_can() -> None:
    mixture = Mixture.from_logits(LOGITS, WEIGHTS).expand(2)
    compiled, posed, batch = asked(Refined(), mixture)
    with pytest.raises(ProblemError, match="BruteForce take it"):
        compiled.batch_truths(posed, batch, None)
    compiled, posed, batch = asked(Sampled(UnorderedSet(2), log=False), mixture)
    with pytest.raises(ConfigError, match="got JointWorlds"):
        compiled.batch_losses(posed, batch, None)
