"""Parameters that learn: constrained, registered, saved, with right derivatives; and those that are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from doxa import fuzzy as fz
from doxa.errors import ConfigError

D = torch.float64

# Each entry builds an operator from a parameter; its bounds, and a start.
LEARNABLE_FAMILY = [
    ("yager", fz.Yager, 2.0, 1.0, None),
    ("yager below 1", fz.Yager, 0.7, 0.0, 1.0),
    ("aczel-alsina", fz.AczelAlsina, 1.7, 1.0, None),
    ("dombi", fz.Dombi, 2.5, 1.0, 5.0),
    ("hamacher", fz.Hamacher, 0.5, 0.0, None),
    ("frank above 1", fz.Frank, 3.0, 1.0, None),
    ("frank below 1", fz.Frank, 0.2, 0.0, 1.0),
    ("schweizer-sklar negative", fz.SchweizerSklar, -0.7, None, 0.0),
    ("schweizer-sklar positive", fz.SchweizerSklar, 0.5, 0.0, 1.0),
    ("sugeno-weber", fz.SugenoWeber, 2.0, 0.0, None),
    ("sugeno-weber negative", fz.SugenoWeber, -0.4, -1.0, 0.0),
]


@pytest.fixture(params=LEARNABLE_FAMILY, ids=lambda entry: entry[0])
def learnt(request):
    _, make, start, low, high = request.param
    parameter = fz.Learnable(start, low=low, high=high).double()
    return make(parameter), make(start), parameter


def test_learnable_operators_have_the_values_of_fixed_ones(learnt):
    operator, fixed, _ = learnt
    a, b = torch.rand(2, 50, dtype=D, generator=torch.Generator().manual_seed(0))
    x = torch.stack([a, b])
    for left, right in (
        (operator(a, b), fixed(a, b)),
        (operator.dual(a, b), fixed.dual(a, b)),
        (operator.residuum(a, b), fixed.residuum(a, b)),
        (operator.reduce(x, 0), fixed.reduce(x, 0)),
    ):
        assert torch.allclose(left, right, atol=1e-5)


def difference_quotient(f, raw: nn.Parameter, step: float = 1e-6) -> float:
    with torch.no_grad():
        raw += step
        up = f().item()
        raw -= 2 * step
        down = f().item()
        raw += step
    return (up - down) / (2 * step)


def test_derivatives_of_learnable_tnorms(learnt):
    operator, _, parameter = learnt
    a, b = torch.tensor([0.9, 0.8, 0.6], dtype=D), torch.tensor([0.7, 0.95, 0.8], dtype=D)
    for f in (
        lambda: operator(a, b).sum(),
        lambda: operator.dual(1 - a, 1 - b).sum(),
        lambda: operator.residuum(a, b * 0.5).sum(),
        lambda: operator.reduce(torch.stack([a, b])).sum(),
    ):
        (grad,) = torch.autograd.grad(f(), parameter.raw)
        assert grad.item() == pytest.approx(difference_quotient(f, parameter.raw), rel=1e-4, abs=1e-7)
    edge = torch.tensor([0.0, 1.0, 1.0, 0.5, 0.5], dtype=D), torch.tensor([0.0, 1.0, 0.5, 0.0, 0.5], dtype=D)
    for f in (operator, operator.dual, operator.residuum):
        grads = torch.autograd.grad(f(*edge).sum(), parameter.raw, allow_unused=True)
        assert all(g is None or bool(torch.isfinite(g)) for g in grads)


@pytest.mark.parametrize(
    "make",
    [
        fz.GeneralizedMean,
        fz.GeneralizedMeanError,
        fz.UnboundedYager,
        fz.UnboundedYagerSum,
        lambda p: fz.sigmoidal(fz.AGGREGATORS["mae"], p, -0.3),
        lambda p: fz.sigmoidal(fz.AGGREGATORS["mae"], 9.0, p),
    ],
    ids=["gm", "gme", "uy", "uys", "s", "b0"],
)
def test_derivatives_of_learnable_aggregators(make):
    parameter = fz.Learnable(1.5, low=1.0).double()
    aggregator = make(parameter)
    x = torch.tensor([0.2, 0.5, 0.7], dtype=D)
    (grad,) = torch.autograd.grad(aggregator(x), parameter.raw)
    assert grad.item() == pytest.approx(difference_quotient(lambda: aggregator(x), parameter.raw), rel=1e-5, abs=1e-8)
    assert aggregator(x).item() == pytest.approx(make(1.5)(x).item())
    for corner in (torch.zeros(3, dtype=D), torch.ones(3, dtype=D)):
        value = aggregator(corner)
        assert bool(torch.isfinite(torch.autograd.grad(value, parameter.raw)[0]))


def test_learnable_negations_and_alpha():
    parameter = fz.Learnable(2.0, low=1.0).double()
    x = torch.tensor([0.2, 0.7], dtype=D)
    for f in (
        lambda: fz.YagerNegation(parameter)(x).sum(),
        lambda: fz.SugenoNegation(parameter)(x).sum(),
        lambda: fz.LogExists(parameter)(x.log()),
    ):
        (grad,) = torch.autograd.grad(f(), parameter.raw)
        assert grad.item() == pytest.approx(difference_quotient(f, parameter.raw), rel=1e-5)


def test_a_learnable_parameter_trains_and_stays_inside():
    p = fz.Learnable(2.0, low=1.0)
    operator = fz.Yager(p)
    x = torch.tensor([0.9, 0.8, 0.95])

    def train(direction: float, steps: int) -> float:
        for _ in range(steps):
            (grad,) = torch.autograd.grad(operator.reduce(x), p.raw)
            with torch.no_grad():
                p.raw += direction * 100 * grad
            assert p().item() >= 1
        return p().item()

    lowest = train(-1, 200)
    assert lowest < 1.01
    assert train(+1, 300) > lowest + 0.1  # it comes back from its bound


def test_a_logic_registers_what_it_learns():
    p, s, b0 = fz.Learnable(1.5, low=1.0, high=2.0), fz.Learnable(9.0, low=0.0), fz.Learnable(-0.5)
    logic = fz.recommended(p, s, b0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logic = logic.trainable()

    model = Model()
    names = {"logic.conj_p.raw", "logic.implies_s.raw", "logic.implies_b0.raw"}
    assert set(model.state_dict()) == names  # p, shared by ∧, ∨ and ∃, once
    state = {k: v + 1 for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    assert b0().item() == pytest.approx(0.5)
    assert not fz.logic("product").trainable()
    a, b = torch.rand(2, 10)
    logic.forall(logic.implies(logic.conj(a, b), a)).backward()
    assert all(v.grad is not None for v in model.parameters())
    assert hash(logic) == hash(fz.recommended(p, s, b0)) and logic == fz.recommended(p, s, b0)


def test_learnable_prints_itself():
    assert repr(fz.Learnable(2.0, low=1.0)) == "Learnable(2 in (1, inf))"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fz.Yager(0.0), "the exponent of a power generator is 0.0, expected a number > 0 and finite"),
        (lambda: fz.Yager(float("inf")), "is inf, expected a number > 0 and finite"),
        (lambda: fz.Yager(float("nan")), "is nan, expected a number > 0"),
        (lambda: fz.Hamacher(-1.0), "the λ of a Hamacher t-norm is -1.0, expected a number >= 0"),
        (lambda: fz.Frank(0.0), "the λ of a Frank generator is 0.0, expected a number > 0"),
        (lambda: fz.FrankGenerator(1.0), "expected a number other than 1"),
        (lambda: fz.Frank(fz.Learnable(2.0, low=0.0)), "on both sides of 1; give Learnable low=1 or high=1"),
        (lambda: fz.SugenoWeber(-1.0), "the λ of a Sugeno-Weber generator is -1.0, expected a number > -1"),
        (lambda: fz.SugenoWeberGenerator(0.0), "expected a number other than 0"),
        (lambda: fz.SugenoWeber(fz.Learnable(1.0, low=-1.0)), "on both sides of 0; give Learnable low=0 or high=0"),
        (lambda: fz.SchweizerSklarGenerator(0.0), "expected a number other than 0, which is LogGenerator's"),
        (lambda: fz.SchweizerSklar(float("inf")), "is inf, expected a number > -inf and finite"),
        (lambda: fz.SchweizerSklar(fz.Learnable(1.0)), "on both sides of 0; give Learnable low=0 or high=0"),
        (lambda: fz.Yager(fz.Learnable(2.0)), r"may learn values in \(-inf, inf\), expected a number > 0"),
        (lambda: fz.Yager(fz.Learnable(2.0, low=0.0)), "on both sides of 1; give Learnable low=1 or high=1"),
        (lambda: fz.GeneralizedMean(-2.0), "the p of GeneralizedMean is -2.0, expected a number > 0"),
        (lambda: fz.sigmoidal(fz.REICHENBACH, -1.0), "the s of a sigmoidal operator is -1.0, expected a number >= 0"),
        (lambda: fz.sigmoidal(fz.UnboundedYager(2.0), 9.0), "UnboundedYager has values outside"),
        (lambda: fz.SugenoNegation(-2.0), "the λ of a Sugeno negation is -2.0, expected a number > -1"),
        (lambda: fz.YagerNegation(0.0), "the w of a Yager negation is 0.0, expected a number > 0"),
        (lambda: fz.LogProduct("total"), "reduction is 'total', expected 'sum' or 'mean'"),
        (lambda: fz.LogForall("total"), "reduction is 'total', expected 'sum' or 'mean'"),
        (lambda: fz.LogDisjunction(0.0), "the α of a log-mean-exp is 0.0, expected a number > 0"),
        (lambda: fz.StableConnective(1.0, fz.Product()), "the squeeze of a stable operator is 1.0"),
        (
            lambda: fz.Learnable(3.0, low=1.0, high=2.0),
            "starts at 3.0, expected a number strictly above 1.0 and below 2.0",
        ),
        (lambda: fz.Learnable(float("inf")), "starts at inf, expected a number strictly finite"),
    ],
)
def test_impossible_parameters(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_an_impossible_cap():
    for operator in (fz.LogProduct(eps=0.0), fz.TNormAggregator(fz.Frank(3.0, eps=2.0))):
        with pytest.raises(ConfigError, match=r"eps is .*, expected a number between 0 and 1"):
            operator(torch.ones(2))
