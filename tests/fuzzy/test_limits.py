"""Families meet at their limits: every parametric family against the t-norms it joins."""

from __future__ import annotations

import math

import pytest
import torch

from doxa import fuzzy as fz

D = torch.float64
GRID = torch.linspace(0.02, 0.98, 25, dtype=D)
A, B = torch.meshgrid(GRID, GRID, indexing="ij")


@pytest.mark.parametrize(
    ("near", "limit", "tolerance"),
    [
        (fz.Yager(1.0), fz.Lukasiewicz(), 1e-12),
        (fz.Yager(1 + 1e-7), fz.Lukasiewicz(), 1e-6),
        (fz.Yager(1 - 1e-7), fz.Lukasiewicz(), 1e-6),
        (fz.Yager(1e6), fz.Godel(), 1e-5),
        (fz.Yager(1e-2), fz.Drastic(), 1e-9),
        (fz.SchweizerSklar(0.0), fz.Product(), 1e-12),
        (fz.SchweizerSklar(1e-8), fz.Product(), 1e-6),
        (fz.SchweizerSklar(-1e-8), fz.Product(), 1e-6),
        (fz.SchweizerSklar(1.0), fz.Lukasiewicz(), 1e-9),
        (fz.SchweizerSklar(-1.0), fz.Hamacher(0.0), 1e-12),
        (fz.SchweizerSklar(-1e6), fz.Godel(), 1e-5),
        (fz.Frank(1.0), fz.Product(), 1e-12),
        (fz.Frank(1 + 1e-7), fz.Product(), 1e-6),
        (fz.Frank(1 - 1e-7), fz.Product(), 1e-6),
        (fz.Frank(1e-300), fz.Godel(), 2e-3),
        (fz.Frank(1e300), fz.Lukasiewicz(), 2e-3),
        (fz.Hamacher(1.0), fz.Product(), 1e-12),
        (fz.Hamacher(1 + 1e-7), fz.Product(), 1e-6),
        (fz.Hamacher(1e-9), fz.Hamacher(0.0), 1e-6),
        (fz.Hamacher(1e9), fz.Drastic(), 1e-5),
        (fz.AczelAlsina(1.0), fz.Product(), 1e-12),
        (fz.AczelAlsina(1 + 1e-7), fz.Product(), 1e-6),
        (fz.AczelAlsina(1e6), fz.Godel(), 1e-5),
        (fz.AczelAlsina(1e-2), fz.Drastic(), 1e-9),
        (fz.Dombi(1.0), fz.Hamacher(0.0), 1e-12),
        (fz.Dombi(1e6), fz.Godel(), 1e-5),
        (fz.Dombi(1e-2), fz.Drastic(), 1e-9),
        (fz.SugenoWeber(0.0), fz.Lukasiewicz(), 1e-12),
        (fz.SugenoWeber(1e-7), fz.Lukasiewicz(), 1e-6),
        (fz.SugenoWeber(-1e-7), fz.Lukasiewicz(), 1e-6),
        (fz.SugenoWeber(1e9), fz.Product(), 1e-6),
        (fz.SugenoWeber(-1 + 1e-6), fz.Drastic(), 1e-9),
    ],
    ids=str,
)
def test_tnorms(near, limit, tolerance):
    # The slowest part of a limit is where T is discontinuous or the arguments tie.
    assert near(A, B).sub(limit(A, B)).abs().max().item() < tolerance
    assert near.dual(A, B).sub(limit.dual(A, B)).abs().max().item() < tolerance


@pytest.mark.parametrize(
    ("near", "limit"),
    [
        (fz.Yager(1.0), fz.Lukasiewicz()),
        (fz.Yager(1e5), fz.Godel()),
        (fz.SchweizerSklar(1e-8), fz.Product()),
        (fz.SchweizerSklar(-1e-8), fz.Product()),
        (fz.SchweizerSklar(-1.0), fz.Hamacher(0.0)),
        (fz.Frank(1 + 1e-7), fz.Product()),
        (fz.Hamacher(1.0), fz.Product()),
        (fz.AczelAlsina(1.0), fz.Product()),
        (fz.Dombi(1.0), fz.Hamacher(0.0)),
        (fz.SugenoWeber(1e-7), fz.Lukasiewicz()),
    ],
    ids=str,
)
def test_residua(near, limit):
    apart = (A - B).abs() > 1e-3  # the Gödel implication jumps on the diagonal
    assert (near.residuum(A, B) - limit.residuum(A, B))[apart].abs().max().item() < 1e-4


def test_residua_meet_for_product_like_derivatives():
    a, c = torch.tensor(0.8, dtype=D, requires_grad=True), torch.tensor(0.3, dtype=D, requires_grad=True)
    expected = [-0.46875, 1.25]
    for tnorm in (fz.AczelAlsina(1.0), fz.Frank(1.0), fz.Hamacher(1.0), fz.SchweizerSklar(0.0), fz.Product()):
        got = torch.autograd.grad(tnorm.residuum(a, c), (a, c))
        assert [g.item() for g in got] == pytest.approx(expected)


@pytest.mark.parametrize("operator", [fz.REICHENBACH, fz.GOGUEN, fz.Product(), fz.Yager(2.0).dual], ids=str)
def test_sigmoidal_to_the_identity(operator):
    assert torch.equal(fz.sigmoidal(operator, 0.0)(A, B), operator(A, B))
    for s, tolerance in ((1e-2, 1e-2), (1e-4, 1e-4), (1e-6, 1e-6)):
        assert fz.sigmoidal(operator, s, -0.2)(A, B).sub(operator(A, B)).abs().max().item() < tolerance


def test_generalised_means():
    x = torch.rand(50, dtype=D, generator=torch.Generator().manual_seed(0))
    assert fz.GeneralizedMean(1e5)(x).item() == pytest.approx(x.max().item(), abs=1e-3)
    assert fz.GeneralizedMeanError(1e5)(x).item() == pytest.approx(x.min().item(), abs=1e-3)
    assert fz.GeneralizedMean(1.0)(x).item() == pytest.approx(x.mean().item())
    assert fz.GeneralizedMean(1e-3)(x).item() == pytest.approx(x.log().mean().exp().item(), rel=1e-3)  # geometric
    assert fz.GeneralizedMeanError(2.0)(x).item() == pytest.approx(1 - (1 - x).square().mean().sqrt().item())


def test_large_exponents_do_not_underflow_in_float32():
    x = torch.tensor([0.99, 0.995])
    exact = 1 - (0.01**20 + 0.005**20) ** (1 / 20)
    assert fz.Yager(20.0).reduce(x).item() == pytest.approx(exact, abs=1e-6)
    assert fz.Yager(20.0)(x[0], x[1]).item() == pytest.approx(exact, abs=1e-6)


def test_log_mean_exp_to_the_maximum():
    x = torch.tensor([0.2, 0.7, 0.4], dtype=D).log()
    assert fz.LogExists(1e4)(x).exp().item() == pytest.approx(0.7, abs=1e-3)


@pytest.mark.parametrize("small", [1e-3, 1e-8, 1e-300])
def test_means_of_small_exponents(small):
    """GeneralizedMean goes to the geometric mean, the log-mean-exp to the mean, without losing digits on the way."""
    x = torch.tensor([0.2, 0.7, 0.4], dtype=D)
    geometric = x.log().mean().exp().item()
    assert fz.GeneralizedMean(small)(x).item() == pytest.approx(geometric, rel=small + 1e-12)
    assert fz.GeneralizedMeanError(small)(1 - x).item() == pytest.approx(1 - geometric, rel=small + 1e-12)
    assert fz.LogExists(small)(x.log()).item() == pytest.approx(x.log().mean().item(), rel=small + 1e-12)


@pytest.mark.parametrize("lam", [2, 5, 20, 1000])
def test_schweizer_sklar_keeps_small_truths(lam):
    """Against exact rational arithmetic; 1 - x^λ in float32 would lose them."""
    from fractions import Fraction

    for a, b in [(0.01, 1.0), (0.3, 1.0), (0.9, 0.9375), (0.5, 1 - 2.0**-20)]:
        x, y = torch.tensor(a), torch.tensor(b)
        inside = Fraction(x.item()) ** lam + Fraction(y.item()) ** lam - 1
        log = math.log(inside.numerator) - math.log(inside.denominator) if inside > 0 else -math.inf
        assert fz.SchweizerSklar(float(lam))(x, y).item() == pytest.approx(math.exp(log / lam), rel=1e-4)


@pytest.mark.parametrize("lam", [2.0, 5.0, 50.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_schweizer_sklar_from_certainty(lam, dtype):
    """R(1, c) = c to the last bit, for truths too small for their logarithms too."""
    c = torch.cat([torch.logspace(-44, 0, 500, dtype=dtype), torch.linspace(0, 1, 500, dtype=dtype)])
    assert torch.equal(fz.SchweizerSklar(lam).residuum(torch.ones_like(c), c), c)
