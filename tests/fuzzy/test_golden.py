"""Golden values: errata sections 1 and 2, and the T and R columns of its table 3.3. Each carries its number there."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from doxa import fuzzy as fz

D = torch.float64


def with_gradient(f, *values: float) -> list[float]:
    """[value, d1, d2, ...] of a function of several scalars, as the errata writes them."""
    x = [torch.tensor(v, dtype=D, requires_grad=True) for v in values]
    y = f(*x)
    grads = torch.autograd.grad(y, x, allow_unused=True)
    return [y.item(), *(0.0 if g is None else g.item() for g in grads)]


def over(aggregator, *values: float) -> list[float]:
    return with_gradient(lambda *x: aggregator(torch.stack(x), 0), *values)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=D)


def close(expected: object) -> object:
    return pytest.approx(expected, abs=1e-5)


PRODUCT = fz.AGGREGATORS["product"]
SUM = fz.AGGREGATORS["probabilistic_sum"]


def test_1_1_and_1_2_products_and_sums_of_none_and_of_some():
    assert PRODUCT(tensor()).item() == 1
    assert SUM(tensor()).item() == 0
    assert over(PRODUCT, 0.8, 0.7, 0.9) == close([0.504, 0.63, 0.72, 0.56])
    assert over(SUM, 0.2, 0.3, 0.1) == close([0.496, 0.63, 0.72, 0.56])
    assert over(fz.AGGREGATORS["lukasiewicz"], 0.9, 0.8, 0.95) == close([0.65, 1, 1, 1])
    assert over(fz.LogProduct(), 0.8, 0.7, 0.9) == close([-0.685179, 1.25, 1.428571, 1.111111])


def test_1_8_single_values():
    assert fz.DUBOIS_PRADE(tensor(1, 0.6, 0.6), tensor(0.3, 0, 0.2)).tolist() == close([0.3, 0.4, 1])
    assert fz.WEBER(tensor(0.999, 1), tensor(0, 0.3)).tolist() == close([1, 0.3])
    assert fz.FODOR(tensor(0.8), tensor(0.3)).tolist() == close([0.3])


def test_1_10_nilpotent():
    minimum, maximum = fz.AGGREGATORS["nilpotent_minimum"], fz.AGGREGATORS["nilpotent_maximum"]
    assert maximum(tensor(0.1, 0.45, 0.3)).item() == close(0.45)
    assert minimum(tensor(0.9, 0.45, 0.7)).item() == close(0.45)
    assert minimum(tensor(0.9, 0.45, 0.5)).item() == 0
    assert minimum(tensor(0.2)).item() == maximum(tensor(0.2)).item() == 0.2
    assert over(minimum, 0.9, 0.45, 0.7) == close([0.45, 0, 1, 0])


def test_2_1_chair():
    chair, cushion, arm_rest = (tensor(*v).requires_grad_() for v in ((0.9, 0.4), (0.05, 0.5), (0.05, 0.1)))
    part_of = torch.tensor([[0.001, 0.01], [0.95, 0.001]], dtype=D, requires_grad=True)  # part_of[y, x]
    logic = fz.logic("product")
    whole = logic.conj(chair[None, :], part_of)
    value = logic.forall(logic.implies(whole, logic.disj(cushion, arm_rest)[:, None]))
    grads = torch.autograd.grad(value, (chair, cushion, arm_rest, part_of))
    assert value.item() == close(0.612421)
    assert grads[0].tolist() == close([-0.426087, -0.005823])
    assert grads[1].tolist() == close([0.002860, 0.766182])
    assert grads[2].tolist() == close([0.002860, 0.425657])
    assert grads[3].flatten().tolist() == close([-0.497843, -0.221885, -0.403138, -0.110256])
    assert -fz.logic("log_product").forall(
        logic.implies(whole, logic.disj(cushion, arm_rest)[:, None])
    ).item() == close(0.490336)


def test_2_4_irwin_hall():
    assert fz.irwin_hall_cdf(1.4, 3) == close(0.425333)
    assert [fz.nonvanishing_fraction(fz.Lukasiewicz(), n).value for n in (2, 3, 4)] == close([1 / 2, 1 / 6, 1 / 24])
    assert fz.irwin_hall_cdf(-1, 3) == 0 and fz.irwin_hall_cdf(7, 3) == 1


def test_2_5_yager_derivative():
    assert over(fz.TNormAggregator(fz.Yager(2.0)), 0.8, 0.7, 0.9) == close([0.625834, 0.534522, 0.801784, 0.267261])
    assert over(fz.TNormAggregator(fz.Yager(3.0)), 0.8, 0.7, 0.9) == close([0.669807, 0.366881, 0.825482, 0.091720])


@pytest.mark.parametrize("p", [0.5, 1.5, 2.0, 3.0, 20.0])
def test_2_5_all_ones_has_derivative_zero(p):
    for aggregator in (fz.TNormAggregator(fz.Yager(p)), fz.GeneralizedMeanError(p)):
        assert over(aggregator, 1, 1, 1) == [1, 0, 0, 0]


def test_2_6_and_2_7_yager_fractions():
    two = [fz.nonvanishing_fraction(fz.Yager(2.0), n).value for n in (2, 3, 4, 5)]
    assert two == close([0.785398, 0.523599, 0.308425, 0.164493])
    assert two == close([math.pi ** (n / 2) / (2**n * math.gamma(n / 2 + 1)) for n in (2, 3, 4, 5)])
    assert fz.yager_fraction(1.5, 3) == close(0.367846)
    assert fz.yager_fraction(0.5, 2) == close(1 / 6)
    for p, expected in ((2.0, 0.785398), (3.0, 0.883319)):
        printed = math.sqrt(math.pi) * 4 ** (-1 / p) * math.gamma(1 / p) / (p * math.gamma(0.5 + 1 / p))
        assert fz.yager_fraction(p, 2) == close(expected) == close(printed)


def test_2_8_nilpotent_fraction():
    fractions = [fz.nonvanishing_fraction(fz.NilpotentMinimum(), n).value for n in (2, 3, 4, 5)]
    assert fractions == [1 / 2, 1 / 4, 1 / 8, 1 / 16]


def test_2_9_generalised_means():
    assert over(fz.GeneralizedMeanError(2.0), 0.8, 0.7, 0.9) == close([0.783975, 0.308607, 0.462910, 0.154303])
    assert over(fz.GeneralizedMean(1.5), 0.2, 0.3, 0.1) == close([0.208387, 0.326557, 0.399949, 0.230910])
    x = tensor(0.2, 0.3, 0.1).requires_grad_()
    (log_grad,) = torch.autograd.grad(fz.GeneralizedMean(1.5)(x).log(), x)
    assert log_grad.tolist() == close((x**0.5 / (x**1.5).sum()).tolist())


def test_2_11_godel_decision_tree():
    logic = fz.logic("godel")
    a, b, c = torch.rand(3, 100_000, dtype=D, generator=torch.Generator().manual_seed(0))
    a.requires_grad_()
    (grad,) = torch.autograd.grad(logic.disj(logic.conj(a, b), logic.conj(logic.neg(a), c)).sum(), a)
    one, zero = torch.ones_like(a), torch.zeros_like(a)
    first = torch.where(1 - a < c, torch.where(1 - a < a, one, -one), torch.where(c < a, one, zero))
    second = torch.where((1 - a < c) & (b < 1 - a), -one, zero)
    assert torch.equal(grad, torch.where(a < b, first, second))


@pytest.mark.parametrize(
    ("name", "formula", "expected"),
    [("godel", "cnf", 7 / 8), ("lukasiewicz", "dnf", 5 / 6), ("godel", "dnf", 1.0), ("lukasiewicz", "cnf", 1.0)],
)
def test_2_12_success_of_gradient_ascent(name, formula, expected):
    logic, n = fz.logic(name), 3000
    x = torch.rand(3, n, dtype=D, generator=torch.Generator().manual_seed(1))
    for _ in range(400):
        x.requires_grad_()
        a, b, c = x
        if formula == "dnf":
            value = logic.disj(logic.conj(a, b), logic.conj(logic.neg(a), c))
        else:
            value = logic.conj(logic.disj(a, b), logic.disj(logic.neg(a), c))
        (grad,) = torch.autograd.grad(value.sum(), x)
        x = (x.detach() + 0.005 * grad).clamp(0, 1)
    success = (value > 0.97).double().mean().item()
    assert success == pytest.approx(expected, abs=3 * math.sqrt(expected * (1 - expected) / n) + 1e-3)


def test_2_13_reichenbach_path():
    x = tensor(0.6, 0.5)
    while x[1] < 1:
        x.requires_grad_()
        (grad,) = torch.autograd.grad(fz.REICHENBACH(x[0], x[1]), x)
        x = x.detach() + 1e-3 * grad
    assert x.tolist() == pytest.approx([0.331662, 1], abs=2e-3)


@pytest.mark.parametrize(
    ("implication", "expected"),
    [
        (fz.Yager(1.5).residuum, [0.373219, -0.564881, 1.056796]),
        (fz.Yager(2.0).residuum, [0.329180, -0.298142, 1.043498]),
        (fz.Yager(3.0).residuum, [0.305485, -0.082927, 1.015858]),
        (fz.SImplication(fz.Yager(2.0).dual), [0.360555, -0.554700, 0.832050]),
        (fz.KLEENE_DIENES, [0.3, 0, 1]),
        (fz.REICHENBACH, [0.44, -0.7, 0.8]),
        (fz.Lukasiewicz().residuum, [0.5, -1, 1]),
        (fz.SImplication(fz.Lukasiewicz().dual), [0.5, -1, 1]),
        (fz.Godel().residuum, [0.3, 0, 1]),
        (fz.GOGUEN, [0.375, -0.46875, 1.25]),
        (fz.FODOR, [0.3, 0, 1]),
        (fz.sigmoidal(fz.REICHENBACH, 9.0, -0.5), [0.365226, -1.498468, 1.712535]),
        (fz.sigmoidal(fz.REICHENBACH, 9.0, -0.2), [0.880273, -0.681203, 0.778518]),
    ],
    ids=str,
)
def test_2_14_and_2_15_implications_at_one_point(implication, expected):
    assert with_gradient(implication, 0.8, 0.3) == close(expected)


def test_2_15_sigmoid_at_a_quarter():
    quarter = (
        fz.sigmoidal(fz.GeneralizedMeanError(1.0), 9.0, -0.5),
        fz.sigmoidal(fz.GeneralizedMeanError(1.0), 9.0, -0.2),
    )
    assert [f(tensor(0.25)).item() for f in quarter] == close([0.086258, 0.546754])
    s, b0 = 9.0, -0.5
    end, start = math.exp(-s * (1 + b0)), math.exp(-s * b0)
    w, h = (1 + end) * (1 + start) / (start - end), (1 + end) / (start - end)
    assert (w, h) == (close(1.022468), close(0.011234))
    f = tensor(0.1, 0.6)
    assert fz.sigmoidal(fz.Product(), s, b0)(f, tensor(1.0)).tolist() == close(
        (w * torch.sigmoid(s * (f + b0)) - h).tolist()
    )


def test_2_16_reichenbach_under_rmse_and_log_product():
    a, c = tensor(0.6, 0.9).requires_grad_(), tensor(0.3, 0.4)
    for aggregator, expected in ((fz.GeneralizedMeanError(2.0), 0.303885), (fz.LogProduct(), 1.206897)):
        (grad,) = torch.autograd.grad(aggregator(fz.REICHENBACH(a, c)), a)
        assert -grad[0].item() == close(expected)


def test_2_19_product_logic_counts_models():
    p = tensor(0.9, 0.4, 0.05, 0.5, 0.1)
    logic = fz.logic("product")
    value = logic.forall(torch.stack([logic.implies(p[0], p[1]), logic.implies(p[2], logic.disj(p[3], p[4]))]))
    assert value.item() == close(0.449650)
    assert -value.log().item() == close(0.799286)
    x = tensor(0.6)
    assert logic.conj(x, x).item() == close(0.36)
    assert logic.implies(x, x).item() == close(0.76)


@pytest.mark.parametrize(
    ("tnorm", "joint", "residual"),
    [
        (fz.Yager(2.0), 0.552786, 0.434315),
        (fz.SchweizerSklar(-1.0), 0.521739, 0.444444),
        (fz.Hamacher(0.0), 0.521739, 0.444444),
        (fz.SchweizerSklar(0.5), 0.447593, 0.544686),
        (fz.Frank(3.0), 0.459714, 0.526770),
        (fz.Hamacher(2.0), 0.444444, 0.545455),
        (fz.AczelAlsina(2.0), 0.572675, 0.411188),
        (fz.Dombi(2.0), 0.584112, 0.403385),
        (fz.SugenoWeber(2.0), 0.453333, 0.538462),
        (fz.Product(), 0.48, 0.5),
        (fz.Lukasiewicz(), 0.4, 0.6),
    ],
    ids=str,
)
def test_3_3_families(tnorm, joint, residual):
    assert tnorm(tensor(0.8), tensor(0.6)).item() == close(joint)
    assert tnorm.residuum(tensor(0.8), tensor(0.4)).item() == close(residual)


@pytest.mark.parametrize(
    ("tnorm", "zero", "convex"),
    [
        (fz.Product(), math.inf, True),
        (fz.Lukasiewicz(), 1, True),
        (fz.Yager(1.0), 1, True),
        (fz.Yager(0.5), 1, False),
        (fz.SchweizerSklar(-2.0), math.inf, True),
        (fz.SchweizerSklar(0.5), 2, True),
        (fz.SchweizerSklar(2.0), 0.5, False),
        (fz.Frank(0.1), math.inf, True),
        (fz.Frank(10.0), math.inf, True),
        (fz.Hamacher(0.0), math.inf, True),
        (fz.Hamacher(2.0), math.inf, True),
        (fz.Hamacher(5.0), math.inf, False),
        (fz.AczelAlsina(1.0), math.inf, True),
        (fz.AczelAlsina(0.5), math.inf, False),
        (fz.Dombi(1.0), math.inf, True),
        (fz.Dombi(0.5), math.inf, False),
        (fz.SugenoWeber(0.0), 1, True),
        (fz.SugenoWeber(-0.5), 1, False),
        # Just beyond where convexity ends:
        (fz.Yager(0.9), 1, False),
        (fz.SchweizerSklar(1.1), 1 / 1.1, False),
        (fz.Hamacher(2.2), math.inf, False),
        (fz.AczelAlsina(0.9), math.inf, False),
        (fz.Dombi(0.9), math.inf, False),
        (fz.SugenoWeber(-0.1), 1, False),
    ],
    ids=str,
)
def test_3_3_generators(tnorm, zero, convex):
    generator = tnorm.generator
    assert generator is not None
    assert generator.zero == zero and generator.convex is convex
    x = torch.linspace(0.01, 0.99, 99, dtype=D)
    assert generator(tensor(0.0)).item() == pytest.approx(zero)
    assert bool((generator(x).diff(n=2) > -1e-12).all()) is convex
