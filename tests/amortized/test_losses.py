"""Losses against enumeration: their expectations and the gradients of these, over all outputs and worlds."""

from __future__ import annotations

import math

import pytest
import torch
from amortized_cases import RAGGED, belief, enumerate_tokens, model, repeated
from torch import Tensor

from doxa.amortized import (
    AmortizedReasoner,
    FactorMLPs,
    InferenceModel,
    ScanModel,
)
from doxa.amortized import SatPruner as Sat
from doxa.amortized.training._losses import (
    divergence,
    joint_matching_loss,
    on_policy_loss,
    prediction_loss,
    sampled_divergence,
    supervised_loss,
)
from doxa.errors import ConfigError
from doxa.problem import Belief, BruteForce, Problem, addition, cnf, parity

KINDS = ["matching", "forward-kl", "reverse-kl", "hellinger"]


def test_golden_values_of_divergences() -> None:
    """Errata 5.3."""
    p, q = (torch.tensor(x, dtype=torch.float64).log() for x in ([0.5, 0.5], [0.9, 0.1]))
    assert math.isclose(divergence(p, q, "hellinger").item(), 0.105573, abs_tol=5e-7)
    assert math.isclose(divergence(p, q, "matching").item(), 1.467892, abs_tol=5e-7)
    assert math.isclose(divergence(p, q, "reverse-kl").item(), 0.368064, abs_tol=5e-7)
    by_hand = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    assert math.isclose(divergence(p, q, "forward-kl").item(), by_hand, abs_tol=1e-12)


def test_impossible_outcomes_count_nothing() -> None:
    p, q = torch.tensor([1.0, 0.0]).log(), torch.tensor([0.5, 0.5]).log().requires_grad_()
    for kind in ("forward-kl", "matching", "hellinger"):
        value = divergence(p, q, kind)  # type: ignore[arg-type]
        assert bool(value.isfinite())
        assert bool(torch.autograd.grad(value, q)[0].isfinite().all())


def flat(grads: tuple[Tensor | None, ...]) -> Tensor:
    return torch.cat([g.flatten() for g in grads if g is not None])


def gradient(value: Tensor, m: InferenceModel) -> Tensor:
    return flat(torch.autograd.grad(value, list(m.parameters()), allow_unused=True, retain_graph=True))


def joint(m: InferenceModel, b: Belief) -> tuple[Tensor, Tensor]:
    """log p and log q of every world with its output, and of everything that p excludes q's total."""
    worlds = m.problem.worlds()
    many = repeated(b, len(worlds))
    return many.log_prob(worlds), m.log_prob(many, torch.cat([m.problem(worlds), worlds], -1))


@pytest.mark.parametrize("kind", KINDS)
def test_samples_from_p_have_the_gradient_of_the_divergence(kind: str) -> None:
    m = model("mlps, ragged")
    b = belief(m.problem)
    log_p, log_q = joint(m, b)
    loss = sampled_divergence(log_q, log_p, kind, "off")  # type: ignore[arg-type]
    expected = (log_p.exp() * loss).sum()
    # Outcomes that no world gives have p = 0; to the forward divergences they contribute nothing.
    exact = divergence(log_p, log_q, kind)  # type: ignore[arg-type]
    torch.testing.assert_close(expected, exact)
    torch.testing.assert_close(gradient(expected, m), gradient(exact, m), atol=1e-12, rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_from_q_have_the_gradient_of_the_divergence(kind: str) -> None:
    """Over outcomes of a distribution p that allows everything, so that the sum over q is the whole of it."""
    m = model("mlps, ragged")
    everything = enumerate_tokens(m)
    log_q = m.log_prob(repeated(belief(m.problem), len(everything)), everything)
    log_p = torch.randn(len(everything), generator=torch.Generator().manual_seed(0), dtype=torch.float64).log_softmax(0)
    loss = sampled_divergence(log_q, log_p, kind, "on")  # type: ignore[arg-type]
    estimate = flat(
        torch.autograd.grad(loss, list(m.parameters()), log_q.detach().exp(), allow_unused=True, retain_graph=True)
    )
    if kind == "matching":  # ∇ KL(q ‖ p) = ½ E_q[∇ (log q / p)²]
        exact = gradient(divergence(log_p, log_q, "reverse-kl"), m)
        torch.testing.assert_close(0.5 * estimate, exact, atol=1e-13, rtol=1e-10)
        return
    value = divergence(log_p, log_q, kind)  # type: ignore[arg-type]
    torch.testing.assert_close((log_q.exp() * loss).sum().detach(), value.detach())
    torch.testing.assert_close(estimate, gradient(value, m), atol=1e-13, rtol=1e-10)


def test_off_policy_gradient_of_joint_matching() -> None:
    """-2 E_p[(log p - log q) ∇ log q] (dissertation, "Relation to common divergences")."""
    m = model("mlps, ragged")
    b = belief(m.problem)
    worlds = m.problem.worlds()
    many = repeated(b, len(worlds))
    loss = joint_matching_loss(m, many, worlds)
    log_p, log_q = joint(m, b)
    weights = (-2 * log_p.exp() * (log_p - log_q)).detach()
    expected = flat(torch.autograd.grad(log_q, list(m.parameters()), weights, allow_unused=True))
    torch.testing.assert_close(gradient((log_p.exp() * loss).sum(), m), expected, atol=1e-12, rtol=1e-9)


def test_prediction_loss_is_the_cross_entropy() -> None:
    m = model("scan, ragged")
    b = belief(m.problem)
    worlds = m.problem.worlds()
    many = repeated(b, len(worlds))
    average = (many.log_prob(worlds).exp() * prediction_loss(m, many, worlds)).sum()
    exact = BruteForce(m.problem)
    log_q = m.log_prob(repeated(b, len(exact.outputs)), exact.outputs)
    torch.testing.assert_close(average, -(exact.joint(b).exp() * log_q).sum())


@pytest.mark.parametrize("given", [None, 1])
def test_on_policy_loss_averages_to_the_sum_over_the_model(given: int | None) -> None:
    problem = cnf([[1, 2], [-1, 3]])
    torch.manual_seed(0)
    m, pruner = ScanModel(problem, hidden=6).double(), Sat.of(problem)
    b = belief(problem)
    worlds = problem.worlds()
    tokens = torch.cat([problem(worlds), worlds], -1)
    kept = tokens if given is None else tokens[tokens[:, 0] == given]
    many = repeated(b, len(kept))
    log_q = m.log_prob(many, kept, pruner)
    log_p = many.log_prob(kept[:, 1:])
    weights = log_q.detach().exp()
    exact = (weights / weights.sum() * (log_q - log_p).square()).sum()
    output = None if given is None else torch.tensor([given])
    count = 1500
    generator = torch.Generator().manual_seed(1)
    loss = on_policy_loss(m, repeated(b, count), pruner, output=output, generator=generator)
    assert loss.shape == (count,)
    error = loss.std() / count**0.5
    assert (loss.mean() - exact).abs() < 4 * error
    spread = flat(torch.autograd.grad(loss.mean(), list(m.parameters()), allow_unused=True))
    torch.testing.assert_close(spread, gradient(exact, m), atol=0.15 * float(spread.abs().max()), rtol=0)


def test_on_policy_loss_leaves_out_what_is_impossible() -> None:
    """Without a pruner the model samples worlds that do not give their output, and worlds the belief excludes."""
    problem = addition(1)
    m = FactorMLPs(problem, hidden=8)
    sure = Belief.from_probs(torch.eye(10)[[5, 8]]).log_probs.expand(200, 2, 10)
    loss = on_policy_loss(m, Belief(sure, (10, 10)), generator=torch.Generator().manual_seed(0))
    assert bool(loss.isfinite().all())
    loss.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in m.parameters() if p.grad is not None)
    assert float((loss == 0).float().mean()) > 0.5


def test_perception_loss_reaches_the_belief_only() -> None:
    m = model("mlps", torch.float32)
    logits = torch.zeros(3, 2, 10, requires_grad=True)
    AmortizedReasoner(m.problem, m).loss(Belief.from_logits(logits), torch.tensor([1, 3])).sum().backward()
    assert logits.grad is not None and logits.grad.abs().sum() > 0
    assert all(p.grad is None and p.requires_grad for p in m.parameters())


def test_supervised_loss_is_the_conditional() -> None:
    m = model("scan, ragged")
    b = belief(m.problem, 5)
    worlds = b.sample(1, generator=torch.Generator().manual_seed(0))[0]
    outputs = m.problem(worlds)
    expected = m.log_prob(b, outputs) - m.log_prob(b, torch.cat([outputs, worlds], -1))
    torch.testing.assert_close(supervised_loss(m, b, worlds), expected)


def test_errors() -> None:
    plain = FactorMLPs(parity(2), hidden=4, explain=False)
    b = Belief.uniform((2, 2), (3,))
    for wrong in (
        lambda: joint_matching_loss(plain, b, b.sample()[0]),
        lambda: on_policy_loss(plain, b),
        lambda: supervised_loss(plain, b, b.sample()[0]),
    ):
        with pytest.raises(ConfigError, match="explain=True"):
            wrong()
    log = torch.zeros(2)
    with pytest.raises(ConfigError, match="expected 'matching'"):
        divergence(log, log, "kl")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected 'matching'"):
        sampled_divergence(log, log, "kl")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="policy"):
        sampled_divergence(log, log, "matching", "both")  # type: ignore[arg-type]


def test_ragged_problem_is_what_the_cases_say() -> None:
    assert isinstance(RAGGED, Problem) and RAGGED.check().exhaustive
