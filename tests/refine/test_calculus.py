"""Derivatives, finiteness, batches, ties and the dual problem of refinement functions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from doxa import fuzzy as fz
from doxa.refine import refinement


def away_from_ties(n: int, m: int, count: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n + m)
    t = 0.1 + 0.8 * torch.rand(count, n, generator=generator, dtype=torch.float64)
    c = 0.85 + 0.1 * torch.rand(count, m, generator=generator, dtype=torch.float64)
    target = 0.15 + 0.6 * torch.rand(count, generator=generator, dtype=torch.float64)
    return t.requires_grad_(), c.requires_grad_(), target.requires_grad_()


@pytest.mark.parametrize("m", [0, 2])
def test_gradcheck(closed: fz.TNorm, m: int) -> None:
    t, c, target = away_from_ties(3, m, count=2)
    assert torch.autograd.gradcheck(lambda t, c, g: refinement(closed)(t, g, c), (t, c, target))
    assert torch.autograd.gradcheck(lambda t, c, g: refinement(closed.dual)(t, g, 1 - c), (t, c, target))


def test_second_derivatives(closed: fz.TNorm) -> None:
    t, c, target = away_from_ties(2, 1, count=1)
    assert torch.autograd.gradgradcheck(lambda t, c, g: refinement(closed)(t, g, c), (t, c, target))


def test_gradcheck_of_implications(closed: fz.TNorm) -> None:
    t, _, target = away_from_ties(2, 0)
    for operator in (fz.SImplication(closed.dual), closed.residuum):
        for fixed in (None, "antecedent", "consequent"):
            if operator == fz.Godel().residuum and fixed == "consequent":
                continue  # piecewise constant
            assert torch.autograd.gradcheck(
                lambda t, g, o=operator, f=fixed: refinement(o)(t, g, fixed=f), (t, target), atol=1e-4
            )


@pytest.mark.parametrize(("tnorm", "p"), [(fz.Product(), 2.0), (fz.Yager(0.5), 1.0)], ids=repr)
@pytest.mark.parametrize("target", [0.2, 0.6])
def test_derivatives_of_the_numerical_search(tnorm: fz.TNorm, p: float, target: float) -> None:
    t, c = torch.tensor([[0.5, 0.8]], dtype=torch.float64), torch.tensor([[0.9]], dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (t, c, torch.tensor([target], dtype=torch.float64))]
    rho = refinement(tnorm, p)
    assert rho.numerical
    assert torch.autograd.gradcheck(lambda t, c, g: rho(t, g, c), inputs, eps=1e-3, atol=2e-2, rtol=2e-2)


def test_derivatives_of_the_numerical_residuum() -> None:
    t, _, target = away_from_ties(2, 0, count=2)
    assert torch.autograd.gradcheck(refinement(fz.GOGUEN, 2), (t, target), eps=1e-4, atol=5e-3, rtol=5e-3)


EDGES = [0.0, 1e-38, 1e-20, 1e-7, 0.3, 0.5, 1 - 1e-7, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_finite_at_the_edges(any_tnorm: fz.TNorm, dtype: torch.dtype) -> None:
    grid = torch.cartesian_prod(*[torch.tensor(EDGES, dtype=dtype)] * 4)
    t, c, target = grid[:, :2].clone(), grid[:, 2:3].clone(), grid[:, 3].clone()
    for operator in (any_tnorm, any_tnorm.dual, any_tnorm.residuum, fz.SImplication(any_tnorm.dual)):
        rho = refinement(operator)
        inputs = [x.clone().requires_grad_() for x in (t, target, c)]
        junction = isinstance(operator, fz.TNorm | fz.TConorm)
        found = rho(*inputs) if junction else rho(*inputs[:2])
        assert ((found >= 0) & (found <= 1)).all()
        found.sum().backward()
        for x in inputs if junction else inputs[:2]:
            assert x.grad is not None and torch.isfinite(x.grad).all(), rho


@given(
    n=st.integers(1, 6),
    m=st.integers(0, 3),
    which=st.integers(0, 2),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=60, deadline=None)
def test_laws(n: int, m: int, which: int, seed: int) -> None:
    """A met target changes nothing; rows are independent; the order of literals does not matter; duality."""
    tnorm = (fz.Godel(), fz.Lukasiewicz(), fz.Product())[which]
    rho, sigma = refinement(tnorm), refinement(tnorm.dual)
    generator = torch.Generator().manual_seed(seed)
    t = torch.rand(4, n, generator=generator, dtype=torch.float64)
    c = torch.rand(4, m, generator=generator, dtype=torch.float64)
    target = torch.rand(4, generator=generator, dtype=torch.float64)
    found = rho(t, target, c)
    assert torch.equal(rho(t, rho.value(t, c), c), t)
    torch.testing.assert_close(found[1], rho(t[1], target[1], c[1]))
    order = torch.randperm(n, generator=generator)
    torch.testing.assert_close(found[:, order], rho(t[:, order], target, c))
    torch.testing.assert_close(found, 1 - sigma(1 - t, 1 - target, 1 - c))
    torch.testing.assert_close(rho.value(found, c), rho.clamp(target.unsqueeze(-1), c if m else None, -1).squeeze(-1))
    torch.testing.assert_close(rho(t.float(), target.float(), c.float()), found.float(), atol=1e-4, rtol=0)


def test_broadcasting_over_leading_dimensions() -> None:
    rho = refinement(fz.Product())
    t, c, target = torch.rand(5, 1, 3), torch.rand(4, 2), torch.rand(5, 4)
    found = rho(t, target, c)
    assert found.shape == (5, 4, 3)
    torch.testing.assert_close(found[2, 3], rho(t[2, 0], target[2, 3], c[3]))


def test_many_literals_take_a_moment(closed: fz.TNorm) -> None:
    t = torch.rand(100_000, dtype=torch.float64)
    for operator, target in ((closed, 0.5), (closed.dual, 0.5)):
        rho = refinement(operator)
        assert rho.value(rho(t, target)).item() == pytest.approx(target, abs=1e-6)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_best_truth_for_a_budget_against_the_primal(closed: fz.TNorm, direction: str) -> None:
    """Refining towards the truth that the budget buys costs the budget, and random points within it do no better."""
    generator = torch.Generator().manual_seed(1)
    t = 0.2 + 0.6 * torch.rand(6, 3, generator=generator, dtype=torch.float64)
    budget = 0.3 * torch.rand(6, generator=generator, dtype=torch.float64)
    for operator in (closed, closed.dual):
        rho = refinement(operator)
        found = rho.best(t, budget, direction=direction)
        gone = (found - t).abs().sum(1)
        assert (gone <= budget + 1e-9).all()
        truth = rho.value(found)
        stopped = (truth < 1e-9) | (truth > 1 - 1e-9)
        torch.testing.assert_close(gone[~stopped], budget[~stopped], atol=1e-6, rtol=0)
        torch.testing.assert_close(rho.value(rho(t, truth)), truth, atol=1e-9, rtol=0)
        share = torch.rand(500, 6, 3, generator=generator, dtype=torch.float64)
        rivals = t + (share - 0.5).sign() * share / share.sum(-1, keepdim=True) * budget.unsqueeze(-1)
        values = rho.value(rivals.clamp(0, 1))
        assert (values <= truth + 1e-9).all() if direction == "up" else (values >= truth - 1e-9).all()
