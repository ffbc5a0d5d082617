"""Finite everywhere: values, and gradients no larger than the cap allows, on the edges of the cube."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from doxa import fuzzy as fz
from doxa._numerics import cap


def check(f, *inputs: Tensor, eps: float | None = None, times: float = 1.0, unit: bool = True) -> None:
    """Values finite (and in [0, 1] if ``unit``), every derivative finite and at most ``times``/ε."""
    x = [v.clone().requires_grad_() for v in inputs]
    y = f(*x)
    assert bool(torch.isfinite(y).all())
    if unit:
        assert bool(((y >= 0) & (y <= 1)).all())
    if not y.requires_grad:
        return
    limit = times / cap(y, eps) * (1 + 1e-4)
    for grad in torch.autograd.grad(y.sum(), x, allow_unused=True):
        if grad is not None:
            assert bool(torch.isfinite(grad).all())
            assert grad.abs().max().item() <= limit


def pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = torch.meshgrid(x, x, indexing="ij")
    return a.reshape(-1), b.reshape(-1)


def triples(x: Tensor) -> Tensor:
    some = x[:: max(1, len(x) // 16)]
    return torch.cartesian_prod(some, some, some)


def test_tnorms(any_tnorm, edges):
    a, b = pairs(edges)
    for f in (any_tnorm, any_tnorm.dual, any_tnorm.residuum, fz.SImplication(any_tnorm.dual)):
        check(f, a, b, eps=any_tnorm.eps)


def test_tnorm_reductions(any_tnorm, edges):
    x = triples(edges)
    for op in (any_tnorm, any_tnorm.dual):
        check(lambda v, op=op: op.reduce(v, 1), x, eps=any_tnorm.eps)
        check(lambda v, op=op: op.reduce(v, 1, weight=torch.tensor([0.5, 2.0, 0.0])), x, eps=any_tnorm.eps, times=2)


def test_implications(implication, edges):
    check(implication, *pairs(edges), times=2e3)  # the sigmoid with s = 1000 adds a factor


def test_negations(negation, edges):
    check(negation, edges, times=60)


def test_aggregators(aggregator, edges):
    x = triples(edges)
    bend = 60 if isinstance(aggregator, fz.SigmoidalAggregator) else 3
    check(lambda v: aggregator(v, 1), x, times=bend, unit=aggregator.bounded)
    check(lambda v: aggregator(v, 1, mask=x < 0.5), x, times=bend, unit=aggregator.bounded)
    check(lambda v: aggregator(v[:, :1], 1), x, times=bend, unit=aggregator.bounded)
    check(lambda v: aggregator(v, 1, weight=torch.tensor([0.5, 2.0, 0.0])), x, times=4 * bend, unit=False)


@pytest.mark.parametrize("name", fz.LOGICS)
def test_logics(name, edges):
    logic = fz.logic(name)
    a, b = pairs(edges)
    if logic.is_log:
        a, b = a.log(), b.log()  # -inf included
    for f in (logic.conj, logic.disj, logic.implies, logic.iff, logic.xor):
        check(f, a, b, times=float("inf"), unit=not logic.is_log)
    for f in (logic.forall, logic.exists):
        check(lambda x, y, f=f: f(torch.stack([x, y]), 0), a, b, times=float("inf"), unit=f.bounded)


@pytest.mark.parametrize("s", [1e-3, 0.1, 1.0, 9.0, 100.0, 1e3])
@pytest.mark.parametrize("b0", [-3.0, -1.0, -0.5, -0.2, 0.0, 2.0])
def test_sigmoidal_is_stable(s, b0, edges):
    """Against the printed formula in exact arithmetic: floats of 400 digits."""
    import mpmath

    bend = fz.sigmoidal(fz.Godel(), s, b0)
    one = torch.ones((), dtype=edges.dtype)
    check(lambda x: bend(x, one), edges, times=1.0)
    with mpmath.workdps(3000 if s > 100 else 400):
        low, high = mpmath.exp(-mpmath.mpf(s) * b0), mpmath.exp(-mpmath.mpf(s) * (1 + mpmath.mpf(b0)))
        for x in (0.0, 0.001, 0.25, 0.5, 0.9, 1.0):
            sigma = 1 / (1 + mpmath.exp(-mpmath.mpf(s) * (mpmath.mpf(x) + mpmath.mpf(b0))))
            exact = (1 + high) / (low - high) * ((1 + low) * sigma - 1)
            value = bend(torch.tensor(x, dtype=edges.dtype), one).item()
            # A rounding of f moves the result by its slope, up to about s/4 (s beyond the ends of the curve).
            assert value == pytest.approx(
                float(exact), rel=2e-5 if edges.dtype == torch.float32 else 1e-12, abs=4e-7 * s
            )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.bool, torch.int64])
def test_other_dtypes_are_computed_in_float32(dtype):
    a, b = torch.tensor([0, 1, 1]).to(dtype), torch.tensor([1, 0, 1]).to(dtype)
    for tnorm in fz.TNORMS.values():
        for f in (tnorm, tnorm.dual, tnorm.residuum, fz.SImplication(tnorm.dual)):
            assert f(a, b).dtype == torch.float32
        assert tnorm(a, b).tolist() == pytest.approx([0, 0, 1], abs=1e-6)
        assert tnorm.reduce(a).dtype == tnorm.dual.reduce(a).dtype == torch.float32
    for aggregator in fz.AGGREGATORS.values():
        assert aggregator(a).dtype == torch.float32
    for negation in fz.NEGATIONS.values():
        assert negation(a).dtype == torch.float32


def test_autocast_stays_in_float32():
    a, b = torch.rand(2, 50, generator=torch.Generator().manual_seed(0))
    for name in fz.LOGICS:
        logic = fz.logic(name)
        x, y = (a.log(), b.log()) if logic.is_log else (a, b)
        plain = [f(x, y) for f in (logic.conj, logic.disj, logic.implies, logic.iff)] + [
            logic.forall(x),
            logic.exists(x),
        ]
        with torch.autocast("cpu", torch.bfloat16):
            cast = [f(x, y) for f in (logic.conj, logic.disj, logic.implies, logic.iff)] + [
                logic.forall(x),
                logic.exists(x),
            ]
        for left, right in zip(plain, cast, strict=True):
            assert right.dtype == torch.float32 and torch.equal(left, right)


def test_slightly_more_than_one_is_no_disaster():
    """A softmax in float32 may say 1.0000001."""
    x = torch.tensor([1.0000001, 0.5]).requires_grad_()
    for aggregator in fz.AGGREGATORS.values():
        value = aggregator(x)
        (grad,) = torch.autograd.grad(value, x)
        assert bool(torch.isfinite(value)) and bool(torch.isfinite(grad).all())


@pytest.mark.slow
def test_a_million_points(any_tnorm, edge_points_of):
    for dtype in (torch.float32, torch.float64):
        fill = torch.rand(1000, dtype=dtype, generator=torch.Generator().manual_seed(0))
        axis = torch.cat([edge_points_of(dtype), fill])[:1000]
        a, b = pairs(axis)
        assert len(a) == 10**6
        for f in (any_tnorm, any_tnorm.dual, any_tnorm.residuum, fz.SImplication(any_tnorm.dual)):
            check(f, a, b, eps=any_tnorm.eps)


@pytest.mark.slow
def test_a_million_points_of_aggregators(aggregator, edge_points_of):
    for dtype in (torch.float32, torch.float64):
        edges = edge_points_of(dtype)
        generator = torch.Generator().manual_seed(0)
        rows = edges[torch.randint(len(edges), (10**6, 3), generator=generator)]
        bend = 60 if isinstance(aggregator, fz.SigmoidalAggregator) else 3
        check(lambda v: aggregator(v, 1), rows, times=bend, unit=aggregator.bounded)


@pytest.mark.slow
def test_a_million_points_of_implications(implication, edge_points_of):
    for dtype in (torch.float32, torch.float64):
        edges = edge_points_of(dtype)
        generator = torch.Generator().manual_seed(1)
        a, c = edges[torch.randint(len(edges), (2, 10**6), generator=generator)]
        check(implication, a, c, times=2e3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("p", [0.9999, 0.99, 1.01, 1.0001, 1.000002])
def test_a_learnable_exponent_next_to_one(p, dtype):
    """The parameter is in float32; a floor computed there must not become 0 beside float64 truth values."""
    exponent = fz.Learnable(p, low=0.0, high=1.0) if p < 1 else fz.Learnable(p, low=1.0)
    norms = [family(exponent) for family in (fz.Yager, fz.AczelAlsina, fz.Dombi)]
    means = (fz.GeneralizedMean, fz.GeneralizedMeanError, fz.UnboundedYager, fz.UnboundedYagerSum)
    reductions = [f for t in norms for f in (t.reduce, t.dual.reduce)] + [mean(exponent) for mean in means]
    for reduction in [*reductions, fz.YagerNegation(exponent)]:
        for value in (0.0, 1.0, 1e-45, 1 - 2**-24):
            x = torch.full((3,), value, dtype=dtype, requires_grad=True)
            result = reduction(x).sum()
            for gradient in torch.autograd.grad(result, [x, exponent.raw], allow_unused=True):
                assert gradient is None or bool(gradient.isfinite().all())
