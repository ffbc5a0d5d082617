"""Derivatives: against finite differences in the interior, at kinks, of second order, and under torch's transforms."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacrev, jvp, vmap

from doxa import fuzzy as fz

D = torch.float64


def leaves(points: torch.Tensor, n: int) -> list[torch.Tensor]:
    return [points[:, i].clone().requires_grad_() for i in range(n)]


def test_tnorms(tnorm, interior):
    for f in (tnorm, tnorm.dual, tnorm.residuum):
        a, b = leaves(interior, 2)
        if f(a, b).requires_grad:
            assert gradcheck(f, (a, b), fast_mode=True)
            assert gradgradcheck(f, (a, b), fast_mode=True)


def test_tnorm_reductions(tnorm, interior):
    for op in (tnorm, tnorm.dual):
        assert gradcheck(lambda x, op=op: op.reduce(x, 1), (interior.clone().requires_grad_(),), fast_mode=True)


def test_implications(implication, interior):
    a, c = leaves(interior, 2)
    if implication(a, c).requires_grad:
        assert gradcheck(implication, (a, c), fast_mode=True, rtol=1e-2)


def test_aggregators(aggregator, interior):
    weight = torch.tensor([0.7, 1.3, 2.0], dtype=D)
    mask = torch.tensor([True, False, True])
    x = interior.clone().requires_grad_()
    assert gradcheck(lambda v: aggregator(v, 1), (x,), fast_mode=True)
    assert gradcheck(lambda v: aggregator(v, 1, mask, weight), (x,), fast_mode=True)
    (masked,) = torch.autograd.grad(aggregator(x, 1, mask).sum(), x)
    assert bool((masked[:, 1] == 0).all())


def test_smooth_aggregators_twice(interior):
    for aggregator in (
        fz.LogProduct(),
        fz.LogProbabilisticSum(),
        fz.GeneralizedMean(1.5),
        fz.GeneralizedMeanError(3.0),
    ):
        x = interior[:5].clone().requires_grad_()
        assert gradgradcheck(lambda v, a=aggregator: a(v, 1), (x,))


def test_negations(negation, interior):
    (a,) = leaves(interior, 1)
    assert gradcheck(negation, (a,), fast_mode=True)


def test_generators(generated, interior):
    """g⁻¹ after g, and the slope that residua use, against autograd."""
    g = generated.generator
    (x,) = leaves(interior, 1)
    assert gradcheck(g, (x,), fast_mode=True)
    assert gradcheck(lambda v: g.inverse(g(v)), (x,), fast_mode=True)
    (slope,) = torch.autograd.grad(g(x).sum(), x)
    constant = torch.log(-slope) - g.log_slope(x)
    assert torch.allclose(constant, constant[0], atol=1e-7)


# --- kinks: each documented choice -------------------------------------------------------------------------


def derivatives(f, *values: float) -> list[float]:
    x = [torch.tensor(v, dtype=D, requires_grad=True) for v in values]
    return [0.0 if g is None else g.item() for g in torch.autograd.grad(f(*x), x, allow_unused=True)]


def test_ties_go_to_the_first():
    assert derivatives(fz.Godel(), 0.3, 0.3) == [1, 0]
    assert derivatives(fz.Godel().dual, 0.3, 0.3) == [1, 0]
    assert derivatives(fz.KLEENE_DIENES, 0.75, 0.25) == [-1, 0]
    for op in (fz.Godel(), fz.Godel().dual):
        assert derivatives(lambda *x, op=op: op.reduce(torch.stack(x)), 0.9, 0.4, 0.4, 0.9) in (
            [0, 1, 0, 0],
            [1, 0, 0, 0],
        )
    assert derivatives(lambda *x: fz.NilpotentMinimum().reduce(torch.stack(x)), 0.9, 0.6, 0.6) == [0, 1, 0]


def test_plateaus_are_flat_at_their_edge():
    assert derivatives(fz.Lukasiewicz(), 0.75, 0.25) == [0, 0]
    assert derivatives(fz.Lukasiewicz().dual, 0.75, 0.25) == [0, 0]
    assert derivatives(fz.Lukasiewicz().residuum, 0.5, 0.5) == [0, 0]
    assert derivatives(fz.Yager(1.0).dual, 0.75, 0.25) == [0, 0]
    for tnorm in fz.TNORMS.values():
        assert derivatives(tnorm.residuum, 0.5, 0.5) == [0, 0]


def test_boundary_derivatives_are_one(tnorm):
    """T(a, 1) = a and S(a, 0) = a, so their derivatives are 1 (Chapter 3, "Conjunction and Disjunction")."""
    for a in (0.2, 0.5, 0.9):
        # Of the strongly curved ones the cap leaves a little over.
        assert derivatives(tnorm, a, 1.0)[0] == pytest.approx(1, abs=1e-6)
        assert derivatives(tnorm.dual, a, 0.0)[0] == pytest.approx(1, abs=1e-6)
        assert derivatives(tnorm.residuum, 1.0, a)[1] == pytest.approx(1, abs=1e-6)


def test_cap_of_singular_derivatives():
    eps = 1e-3
    assert derivatives(lambda x: fz.LogProduct(eps=eps)(x), 0.0) == [pytest.approx(1 / eps)]
    assert derivatives(fz.Product(eps=eps).residuum, 1e-9, 0.0) == [0, pytest.approx(1 / eps)]
    assert derivatives(fz.Yager(2.0, eps=eps).residuum, 0.5 + 1e-12, 0.5)[1] == pytest.approx(1 / eps)
    # Away from the cap nothing changes.
    assert derivatives(lambda x: fz.LogProduct(eps=eps)(x), 0.25) == [4]
    assert derivatives(fz.Product(eps=eps).residuum, 0.5, 0.25) == [-1, 2]
    assert fz.LogProduct(eps=eps)(torch.zeros(2)).item() == pytest.approx(2 * torch.tensor(eps).log().item())
    assert fz.Product(eps=eps).residuum(torch.tensor(1e-6), torch.tensor(5e-7)).item() == 0.5


def test_product_has_the_product_of_the_others_at_zero():
    f = fz.Product().reduce
    assert derivatives(lambda *x: f(torch.stack(x)), 0.0, 0.5, 0.8) == pytest.approx([0.4, 0, 0])
    assert derivatives(lambda *x: f(torch.stack(x)), 0.0, 0.0, 0.8) == [0, 0, 0]
    for tnorm in (fz.Hamacher(2.0), fz.Frank(3.0)):  # regular at 0 as well
        at_zero = derivatives(tnorm, 0.0, 0.5)[0]
        nearby = derivatives(tnorm, 1e-9, 0.5)[0]
        assert at_zero == pytest.approx(nearby, rel=1e-6)


# --- transforms ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, on first use
def test_vmap_and_forward_mode(tnorm):
    a, b = torch.tensor([0.3, 0.6, 0.9], dtype=D), torch.tensor([0.2, 0.7, 0.4], dtype=D)
    for f in (tnorm, tnorm.dual, tnorm.residuum, fz.SImplication(tnorm.dual)):
        assert torch.allclose(vmap(f)(a, b), f(a, b))
        backward = vmap(jacrev(f, argnums=(0, 1)))(a, b)
        _, forward = jvp(f, (a, b), (torch.ones_like(a), torch.ones_like(b)))
        assert torch.allclose(forward, backward[0] + backward[1])
        second = hessian(lambda x, f=f: f(x[0], x[1]))(torch.tensor([0.8, 0.6], dtype=D))
        assert torch.allclose(second, second.T)
    x = torch.rand(4, 3, dtype=D, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(vmap(lambda v: tnorm.reduce(v))(x), tnorm.reduce(x, 1))
    assert vmap(grad(lambda v: tnorm.reduce(v)))(x).shape == x.shape


def test_vmap_of_aggregators(aggregator):
    x = torch.rand(4, 3, dtype=D, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(vmap(aggregator)(x), aggregator(x, 1))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile's own
def test_compile_traces_without_breaks():
    implication, aggregator = fz.sigmoidal(fz.REICHENBACH, 9.0), fz.GeneralizedMeanError(20.0)

    def together(a, b):
        joint = fz.SchweizerSklar(-3.0).dual(a, b) + fz.Frank(3.0)(a, b) + fz.Yager(1.5).residuum(a, b)
        return aggregator(implication(a, b)) + fz.LogProduct()(joint / 3) + fz.AGGREGATORS["minimum"](fz.GOGUEN(a, b))

    compiled = torch.compile(together, fullgraph=True, backend="aot_eager")
    points = torch.rand(7, 2, generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1
    a, b = leaves(points, 2)
    plain, traced = together(a, b), compiled(a, b)
    assert torch.allclose(plain, traced)
    for left, right in zip(torch.autograd.grad(plain, (a, b)), torch.autograd.grad(traced, (a, b)), strict=True):
        assert torch.allclose(left, right, atol=1e-5)
