"""Learned distributions over outcomes against the exact expectation and its gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from doxa.amortized import CategoricalOutcomes, GaussianOutcomes
from doxa.amortized.models._outcomes import OutcomeModel
from doxa.errors import ConfigError, ProblemError

PRICES = torch.tensor([0.0, 1.0, 1.0, 5.0])


def g(z: Tensor) -> Tensor:
    """A function that is not differentiable in z ∈ {0, 1}²."""
    return PRICES[(2 * z[..., 0] + z[..., 1]).long()]


def expected(p: Tensor) -> Tensor:
    """E[g(z)] for independent coins with probabilities p."""
    a, b = p.unbind(-1)
    return a * (1 - b) + (1 - a) * b + 5 * a * b


@pytest.mark.parametrize("make", [lambda: GaussianOutcomes(2), lambda: CategoricalOutcomes(2, [0.0, 1.0, 5.0])])
def test_the_learned_mean_has_the_gradient_of_the_expectation(make) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    model: OutcomeModel = make()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(400):
        optimizer.zero_grad()
        model.loss_of_samples(torch.rand(256, 2), torch.bernoulli, g).mean().backward()
        optimizer.step()
    p = (0.2 + 0.6 * torch.rand(200, 2)).requires_grad_()
    learned, exact = model.expected(p), expected(p)
    assert float((learned - exact).detach().abs().mean()) < 0.2
    (ours,) = torch.autograd.grad(learned.sum(), p)
    (truth,) = torch.autograd.grad(exact.sum(), p)
    assert float(torch.cosine_similarity(ours, truth).mean().detach()) > 0.97
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_losses_are_log_densities() -> None:
    torch.manual_seed(0)
    parameters = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    gauss = GaussianOutcomes(3).double()
    r = torch.randn(5, dtype=torch.float64)
    q = gauss(parameters)
    by_hand = 0.5 * ((r - q.mean) / q.stddev) ** 2 + q.stddev.log() + 0.5 * torch.log(torch.tensor(2 * torch.pi))
    torch.testing.assert_close(gauss.loss(parameters, r), by_hand)
    values = CategoricalOutcomes(3, [2.0, -1.0, 0.5]).double()
    probs = values(parameters).probs
    torch.testing.assert_close(values.loss(parameters, torch.full((5,), -1.0)), -probs[:, 1].log())
    torch.testing.assert_close(values.mean(parameters), probs @ torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64))
    assert torch.autograd.grad(gauss.loss(parameters, r).sum(), parameters, allow_unused=True) == (None,)


def test_errors() -> None:
    with pytest.raises(ProblemError, match="none of the values"):
        CategoricalOutcomes(1, [0.0, 1.0]).loss(torch.zeros(1, 1), torch.tensor([2.0]))
    with pytest.raises(ConfigError, match="different outcomes"):
        CategoricalOutcomes(1, [1.0, 1.0])
    with pytest.raises(ProblemError, match="expected"):
        GaussianOutcomes(2).mean(torch.zeros(3))
    with pytest.raises(ConfigError, match="expected 1"):
        GaussianOutcomes(0)
