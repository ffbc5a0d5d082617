"""The audit of the judge: estimators × distributions × costs whose truth is known, and no false verdict on any."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Cauchy,
    Chi2,
    Distribution,
    Exponential,
    FisherSnedecor,
    Gamma,
    Geometric,
    Gumbel,
    HalfNormal,
    Independent,
    InverseGamma,
    Kumaraswamy,
    Laplace,
    LogNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    OneHotCategorical,
    Pareto,
    Poisson,
    StudentT,
    Uniform,
    VonMises,
    Weibull,
)

from doxa.errors import ConfigError
from doxa.stochastic import (
    ARM,
    ARMS,
    ARSM,
    GO,
    LAX,
    REBAR,
    RELAX,
    SPSA,
    DisARM,
    Draw,
    Enumerate,
    Estimator,
    FromGradient,
    GumbelSoftmax,
    Implicit,
    ImportanceSampling,
    LeaveOneOut,
    MeasureValued,
    RaoBlackwell,
    Reparameterise,
    Score,
    ScoreWithoutReplacement,
    SelfCritical,
    SelfNormalised,
    StochasticSumAndSample,
    StraightThrough,
    SumAndSample,
    Tape,
    UnorderedSet,
    check_tape,
    check_unbiased,
)

Cost = Callable[[Tensor], Tensor]


def t(*x: float) -> Tensor:
    return torch.tensor(x[0] if len(x) == 1 else x)


def square(x: Tensor) -> Tensor:
    return (x - 0.45) ** 2


def jump(x: Tensor) -> Tensor:
    return (x > 0).double()


def single(x: Tensor) -> Tensor:
    """Computed in float32, whatever came."""
    return torch.sin(x.float() + 0.3)


COSTS: dict[str, Cost] = {
    "square": square,
    "jump": jump,
    "kink": lambda x: x.double().abs(),
    "float32": single,
    "large and flat": lambda x: 1e6 + x.double(),
    "large and flat in float32": lambda x: 1e6 + x.float(),
    "constant": lambda x: 0 * x.double() + 2,
}


class OwnBaseline(Score):
    """The baseline of a sample is its own cost."""

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        return (1 - box) * cost.mean(0, keepdim=True)


class TooHeavy(ImportanceSampling):
    """Weights off by a factor."""

    def weight(self, draw: Draw) -> Tensor:
        return 1.03 * super().weight(draw)


class Cut(Score):
    """No derivative at all."""

    def gradient(self, draw: Draw) -> Tensor:
        return super().gradient(draw).detach()


class Listed(Score):
    """Draws other values than it lists."""

    def propose(self, distribution: Distribution, n: int) -> Draw:
        return Draw(torch.zeros_like(distribution.sample(torch.Size([n]))), distribution)


class Scaled(Score):
    """The derivative times a factor."""

    def __init__(self, n: int, factor: float) -> None:
        super().__init__(n)
        self.factor = factor

    def gradient(self, draw: Draw) -> Tensor:
        l = super().gradient(draw)
        return l.detach() + self.factor * (l - l.detach())


class Unlisted(Scaled):
    """The same, which does not tell what it may draw."""

    def outcomes(self, distribution: Distribution, n: int) -> None:
        return None


class Tails(Score):
    """No derivative beyond 3."""

    def gradient(self, draw: Draw) -> Tensor:
        l = super().gradient(draw)
        return torch.where(draw.value.abs() > 3, l.detach(), l)


class Curved(Score):
    """The right first derivative, but no right second."""

    def __init__(self, n: int, factor: float = -0.5) -> None:
        super().__init__(n)
        self.factor = factor

    def gradient(self, draw: Draw) -> Tensor:
        l = super().gradient(draw)
        return l + self.factor * (l - l.detach()) ** 2


class Highest(Score):
    """The baseline is the highest cost, a sample's own among them."""

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        return (1 - box) * cost.amax(0, keepdim=True)


class SumToOne(ImportanceSampling):
    """Weights that are divided by their sum."""

    def weight(self, draw: Draw) -> Tensor:
        w = super().weight(draw)
        return w / w.sum(0, keepdim=True)


FINITE: dict[str, Distribution] = {
    "coin": Bernoulli(t(0.3)),
    "fair coin": Bernoulli(t(0.5)),
    "sure coin": Bernoulli(logits=t(60.0)),
    "impossible coin": Bernoulli(logits=t(-110.0)),
    "die": Categorical(logits=t(0.3, -0.2, 1.0)),
    "loaded die": Categorical(logits=t(60.0, 0.0, 1.0)),
    "die with a missing side": Categorical(logits=t(0.0, float("-inf"), 1.0, 0.4)),
    "fair die": Categorical(torch.ones(4)),
}
ON_FINITE: dict[str, Callable[[], Estimator]] = {
    "enumerate": Enumerate,
    "score": lambda: Score(1),
    "score with a baseline": lambda: Score(2, baseline=0.7),
    "leave one out": lambda: LeaveOneOut(2),
    "self-critical": lambda: SelfCritical(1),
    "go": GO,
    "rao-blackwell": RaoBlackwell,
    "measure-valued": MeasureValued,
    "unordered set": lambda: UnorderedSet(2),
    "without replacement": lambda: ScoreWithoutReplacement(2),
    "sum and sample": lambda: SumAndSample(2, top=1),
    "sum and sample, live": lambda: SumAndSample(2, top=1, form="B"),
    "sum and sample, random": lambda: StochasticSumAndSample(2, top=1),
}


SATURATED = ("sure coin", "impossible coin", "loaded die")
FITTING = [(d, name) for d in FINITE for name, make in ON_FINITE.items() if make().fits(FINITE[d])]


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize(("distribution", "name"), FITTING)
def test_unbiased_on_finite_distributions(distribution: str, name: str, cost: str) -> None:
    torch.manual_seed(0)
    d, estimator = FINITE[distribution], ON_FINITE[name]()
    verdict = check_unbiased(estimator, d, COSTS[cost], order=min(2, int(min(estimator.order_for(d), 2))))
    # Weights 1 / q of a variance that is not finite, so that no number of samples tells.
    assert verdict.ok or (name == "without replacement" and verdict.kind == "undecided"), str(verdict)


COIN: dict[str, Callable[[], Estimator]] = {
    "arm": ARM,
    "disarm": DisARM,
    "arms": lambda: ARMS(3),
    "arsm": ARSM,
    "rebar": lambda: REBAR(square),
    "rebar, cold": lambda: REBAR(square, temperature=0.1),
    "relax": lambda: RELAX(torch.tanh),
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("logit", [-110.0, -30.0, -1.0, 0.0, 0.3, 60.0])
@pytest.mark.parametrize("name", COIN)
def test_unbiased_on_coins(name: str, logit: float, order: int) -> None:
    estimator, coin = COIN[name](), Bernoulli(logits=t(logit))
    torch.manual_seed(0)
    verdict = check_unbiased(estimator, coin, square, order=int(min(order, estimator.order_for(coin))))
    noisy = name == "rebar, cold" and order > 1
    rare = abs(logit) >= 30  # draws of probability 1e-13: nothing differs on any number of samples
    assert verdict.ok or ((noisy or rare) and verdict.kind == "undecided"), str(verdict)
    assert not rare or verdict.enumerated or verdict.kind == "undecided", str(verdict)


REAL: dict[str, tuple[Callable[[], Estimator], Distribution, Cost]] = {
    "score, jump": (lambda: Score(1), Normal(t(0.25), t(1.0)), jump),
    "score, kink": (lambda: Score(1), Normal(t(0.25), t(1.0)), torch.abs),
    "score, far jump": (lambda: LeaveOneOut(2), Normal(t(0.25), t(1.0)), lambda x: (x > 3).double()),
    "score, many jumps": (lambda: Score(2), Normal(t(0.25), t(1.0)), lambda x: torch.floor(3 * x)),
    "pathwise, kink": (Reparameterise, Normal(t(0.25), t(1.0)), torch.abs),
    "pathwise, float32": (Reparameterise, Normal(t(0.25), t(1.0)), single),
    "pathwise, narrow": (Reparameterise, Normal(t(3.0), t(1e-3)), square),
    "pathwise, wide": (Reparameterise, Normal(t(3.0), t(1e3)), lambda x: (x / 1e3).cos()),
    "lax": (lambda: LAX(torch.tanh), Normal(t(0.25), t(1.0)), square),
    "implicit": (Implicit, Laplace(t(0.2), t(0.7)), square),
    "measure-valued": (MeasureValued, Normal(t(0.25), t(1.0)), square),
    "measure-valued, jump": (MeasureValued, Normal(t(0.25), t(1.0)), jump),
    "measure-valued counts": (MeasureValued, Poisson(t(2.5)), square),
    "measure-valued waits": (MeasureValued, Exponential(t(0.7)), torch.cos),
    "measure-valued gamma": (MeasureValued, Gamma(t(2.0), t(3.0)), square),
    "measure-valued beta, jump": (MeasureValued, Beta(t(2.0), t(3.0)), lambda x: (x > 0.4).double()),
    "measure-valued weibull": (MeasureValued, Weibull(t(0.8), t(1.5)), square),
    "importance": (lambda: ImportanceSampling(Normal(t(0.0), t(2.0)), n=2), Normal(t(0.25), t(1.0)), square),
    "beta": (Reparameterise, Beta(t(2.0), t(3.0)), square),
    "beta, score": (lambda: LeaveOneOut(2), Beta(t(0.5), t(0.7)), square),
    "gamma": (Reparameterise, Gamma(t(2.0), t(3.0)), square),
    "gamma, jump": (lambda: Score(2), Gamma(t(0.6), t(1.0)), lambda x: (x > 1).double()),
    "log-normal": (Reparameterise, LogNormal(t(0.1), t(0.5)), torch.cos),
    "cauchy": (lambda: Score(2), Cauchy(t(0.2), t(1.0)), torch.sigmoid),
    "poisson": (lambda: LeaveOneOut(2), Poisson(t(2.5)), square),
    "many counts": (lambda: LeaveOneOut(2), Poisson(t(400.0)), lambda x: (x / 50).cos()),
    "nearly no counts": (lambda: Score(2), Poisson(t(0.02)), square),
    "weibull": (lambda: LeaveOneOut(2), Weibull(t(1.5), t(2.0)), square),
    "student": (lambda: LeaveOneOut(2), StudentT(t(5.0), t(0.2), t(1.0)), torch.tanh),
    "gumbel, twice": (Reparameterise, Gumbel(t(0.2), t(1.0)), torch.tanh),
    "half-normal": (lambda: LeaveOneOut(2), HalfNormal(t(1.0)), square),
    "kumaraswamy": (Reparameterise, Kumaraswamy(t(2.0), t(3.0)), square),
    "inverse gamma": (lambda: LeaveOneOut(2), InverseGamma(t(4.0), t(2.0)), torch.sqrt),
    "chi-squared": (lambda: LeaveOneOut(2), Chi2(t(3.0)), square),
    "fisher-snedecor": (lambda: LeaveOneOut(2), FisherSnedecor(t(5.0), t(8.0)), torch.log),
    "von mises": (lambda: LeaveOneOut(2), VonMises(t(0.2), t(1.5)), torch.cos),
    "pareto": (Reparameterise, Pareto(t(1.0), t(3.0)), torch.log),
    "narrow proposal": (lambda: ImportanceSampling(Normal(t(0.0), t(0.8)), n=4), Normal(t(0.25), t(1.0)), torch.cos),
}


@pytest.mark.parametrize("name", REAL)
def test_unbiased_on_numbers(name: str) -> None:
    torch.manual_seed(0)
    make, distribution, cost = REAL[name]
    verdict = check_unbiased(make(), distribution, cost, order=1)
    assert verdict.kind == "no bias found", str(verdict)
    assert verdict.resolution <= 0.2 and f"to ± {100 * verdict.resolution:.2g} % of the scale" in str(verdict)


def test_the_truth_of_a_jump_is_the_normal_distribution_function() -> None:
    verdict = check_unbiased(Score(1), lambda m: Normal(m, 1.0), jump, order=2, at=t(0.25))
    density = Normal(0.0, 1.0).log_prob(t(0.25)).exp()
    exact = (Normal(0.0, 1.0).cdf(t(0.25)), density, -0.25 * density)
    assert verdict.truth == pytest.approx([float(x) for x in exact], abs=1e-7)


BIASED: dict[str, tuple[Callable[[], Estimator], Distribution, Cost, int]] = {
    "straight-through": (StraightThrough, FINITE["coin"], torch.exp, 1),
    "gumbel-softmax": (lambda: GumbelSoftmax(1.0), FINITE["coin"], square, 0),
    "gumbel-softmax, cold": (lambda: GumbelSoftmax(0.3), FINITE["coin"], square, 0),
    "straight-through gumbel": (lambda: GumbelSoftmax(0.7, hard=True), FINITE["coin"], torch.exp, 1),
    "spsa with large steps": (lambda: SPSA(step=0.5), FINITE["die"], square, 1),
    "spsa with large steps, second": (lambda: SPSA(step=0.5, order=2), FINITE["die"], square, 1),
    "self-normalised": (lambda: SelfNormalised(Categorical(torch.ones(3)), 2), FINITE["die"], square, 0),
    "self-normalised, numbers": (lambda: SelfNormalised(Normal(t(0.0), t(2.0)), 2), Normal(t(0.25), t(1.0)), square, 0),
    "arsm to second order": (ARSM, FINITE["die"], lambda x: (x == 1).double() + 1, 2),
    "own baseline": (lambda: OwnBaseline(2), FINITE["die"], square, 1),
    "own baseline, numbers": (lambda: OwnBaseline(2), Normal(t(0.25), t(1.0)), square, 1),
    "heavy weights": (lambda: TooHeavy(Categorical(torch.ones(3)), n=2), FINITE["die"], lambda x: 2 + x.double(), 0),
    "heavy weights, numbers": (
        lambda: TooHeavy(Normal(t(0.0), t(2.0)), n=2),
        Normal(t(0.25), t(1.0)),
        lambda x: 2 + 0.1 * x,
        0,
    ),
    "no derivative": (lambda: Cut(2), FINITE["die"], square, 1),
    "no derivative, numbers": (lambda: Cut(2), Normal(t(0.25), t(1.0)), square, 1),
    "no derivative, float32": (lambda: Cut(2), FINITE["die"], single, 1),
    "pathwise over a jump": (Reparameterise, Normal(t(0.25), t(1.0)), lambda x: jump(x) + 0 * x, 1),
    "twice the score": (lambda: FromGradient(lambda d, x, f: 2 * d.log_prob(x) * f), FINITE["coin"], square, 1),
    "arm to second order": (ARM, FINITE["coin"], lambda x: x + 1, 2),
    "disarm to second order": (DisARM, FINITE["coin"], lambda x: x + 1, 2),
    "no derivative in the tails": (lambda: Tails(1), Normal(t(0.25), t(1.0)), square, 1),
    "half of the second derivative": (lambda: Curved(2), Normal(t(0.25), t(1.0)), square, 2),
    "a little of the second derivative": (lambda: Curved(2, 0.02), FINITE["coin"], square, 2),
    "own highest": (lambda: Highest(3), Laplace(t(0.2), t(0.7)), square, 1),
    "weights that sum to 1": (lambda: SumToOne(Normal(t(0.0), t(2.0)), n=4), Normal(t(0.25), t(1.0)), square, 0),
    "98 %": (lambda: Scaled(2, 0.98), FINITE["coin"], square, 1),
    "pathwise over steps": (Reparameterise, Weibull(t(1.5), t(2.0)), lambda x: x.floor() + 0 * x, 1),
    "straight-through, constant": (
        StraightThrough,
        OneHotCategorical(t(0.2, 0.3, 0.5)),
        lambda x: x[..., 0] * x[..., 1],
        1,
    ),
    "score where the support moves": (lambda: LeaveOneOut(2), Pareto(t(1.0), t(3.0)), torch.log, 1),
    "own baseline, counts": (lambda: OwnBaseline(2), Poisson(t(2.5)), square, 1),
}


@pytest.mark.parametrize("name", BIASED)
def test_a_bias_is_found_where_it_begins(name: str) -> None:
    torch.manual_seed(0)
    make, distribution, cost, first = BIASED[name]
    verdict = check_unbiased(make(), distribution, cost, order=max(first, 1))
    assert verdict.kind == "biased" and verdict.order == first - 1, str(verdict)
    assert f"BIASED at order {first} by" in str(verdict)


UNDECIDED: dict[str, tuple[Estimator, Distribution | Callable[[Tensor], Distribution], Cost, str]] = {
    "vectors": (
        Score(1),
        lambda m: MultivariateNormal(m.unsqueeze(-1).expand(*m.shape, 2), torch.eye(2, dtype=torch.float64)),
        lambda x: x.sum(-1),
        "pass expected=",
    ),
    "no expectation": (Score(1), lambda m: Cauchy(m, 1.0), lambda x: x.square(), "could not decide"),
    "too rare": (Score(1), lambda m: Normal(m, 1.0), lambda x: 1e9 * (x > 6), "too rare"),
    "too few": (LeaveOneOut(2), lambda m: Normal(m, 1.0), lambda x: (x > 4).double(), "too much beside"),
    "not finite": (Score(1), lambda m: Normal(m, 1.0), lambda x: x.log(), "not finite"),
    "too many values": (
        Score(1),
        lambda m: Independent(Bernoulli(logits=m.unsqueeze(-1).expand(*m.shape, 20)), 1),
        lambda x: x.sum(-1),
        "1,048,576 values",
    ),
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_cannot_be_decided_is_not(name: str) -> None:
    torch.manual_seed(0)
    estimator, distribution, cost, why = UNDECIDED[name]
    verdict = check_unbiased(estimator, distribution, cost, order=1, at=t(0.3))
    assert verdict.kind == "undecided" and not verdict.ok and not verdict.enumerated, str(verdict)
    assert "could not decide" in str(verdict) and why in str(verdict)


def test_a_proposal_that_draws_other_values_than_it_lists_is_no_proof() -> None:
    verdict = check_unbiased(Listed(1), FINITE["die"], square, order=1)
    assert verdict.kind == "undecided" and "condition 4" in str(verdict)


def test_the_word_enumerated_is_for_enumeration() -> None:
    assert "(enumerated)" in str(check_unbiased(LeaveOneOut(2), FINITE["die"], square, order=1))
    sampled = check_unbiased(LeaveOneOut(2), Normal(t(0.25), t(1.0)), square, order=1)
    assert "20,000 samples" in str(sampled) and "enumerated" not in str(sampled) and not sampled.enumerated


@pytest.mark.parametrize("wrong", [False, True])
def test_tapes_with_numbers(wrong: bool) -> None:
    def model(tape: Tape, theta: Tensor) -> None:
        x = tape.sample(Normal(theta, 1.0), LeaveOneOut(2))
        b = tape.sample(Bernoulli(logits=x.detach() if not wrong else (x * theta).detach()), Score())
        tape.cost((b - 0.3) * (1 + x.detach()))

    torch.manual_seed(0)
    verdict = check_tape(model, t(0.4))
    assert verdict.kind == ("biased" if wrong else "no bias found"), str(verdict)


NEAR_THE_END: list[tuple[Estimator, Callable[[Tensor], Distribution]]] = [
    (Score(1), lambda p: Bernoulli(probs=p)),
    (LeaveOneOut(64), lambda p: Geometric(probs=p)),
]


@pytest.mark.parametrize("validated", [True, False])  # torch.compile turns torch's own checks off for good
@pytest.mark.parametrize(("estimator", "make"), NEAR_THE_END)
def test_parameters_near_the_end_of_their_range(
    estimator: Estimator,
    make: Callable[[Tensor], Distribution],
    validated: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Distribution, "_validate_args", validated)
    verdict = check_unbiased(estimator, make, torch.cos, order=1, at=t(0.02))
    assert verdict.ok, str(verdict)


# What is judged does not change with the unit of the cost; an offset may hide it in noise, and then nothing is decided.

DIE = Categorical(logits=t(0.3, -0.2, 1.0))
BELL = Normal(t(0.25), t(1.0))
SCALED: dict[str, tuple[Callable[[], Estimator], Distribution, Cost, str]] = {
    "score": (lambda: Score(2), DIE, square, "unbiased"),
    "leave one out": (lambda: LeaveOneOut(2), DIE, square, "unbiased"),
    "enumerate": (Enumerate, DIE, square, "unbiased"),
    "cut": (lambda: Cut(2), DIE, square, "biased"),
    "cut, rare": (lambda: Cut(1), Bernoulli(logits=t(-14.0)), square, "biased"),
    "own baseline": (lambda: OwnBaseline(2), DIE, square, "biased"),
    "leave one out, numbers": (lambda: LeaveOneOut(2), BELL, square, "no bias found"),
    "pathwise, numbers": (lambda: Reparameterise(2), BELL, square, "no bias found"),
    "pathwise over a jump": (lambda: Reparameterise(2), BELL, lambda x: jump(x) + 0 * x, "biased"),
    "cut, numbers": (lambda: Cut(2), BELL, square, "biased"),
}


@pytest.mark.parametrize("scale", [1e-8, 1e-5, 1.0, 1e8])
@pytest.mark.parametrize("name", SCALED)
def test_the_verdict_does_not_depend_on_the_unit_of_the_cost(name: str, scale: float) -> None:
    make, distribution, cost, kind = SCALED[name]
    torch.manual_seed(0)
    verdict = check_unbiased(make(), distribution, lambda x: scale * cost(x.double()), order=1)
    assert verdict.kind == kind, str(verdict)
    for offset in (-1.0, 1e3, 1e5, 1e10):
        moved = check_unbiased(make(), distribution, lambda x, o=offset: scale * (cost(x.double()) + o), order=1)  # type: ignore[misc]
        assert moved.kind in (kind, "undecided"), f"{offset}: {moved}"


@pytest.mark.parametrize("offset", [1e3, 1e5])
@pytest.mark.parametrize("name", [name for name, case in SCALED.items() if case[3] == "biased" and case[1] is BELL])
def test_an_offset_does_not_hide_a_missing_gradient(name: str, offset: float) -> None:
    make, distribution, cost, _ = SCALED[name]
    torch.manual_seed(0)
    verdict = check_unbiased(make(), distribution, lambda x: cost(x) + offset, order=1)
    assert verdict.kind == "biased" and "inf" in str(verdict), str(verdict)


def test_a_cost_in_float32_with_an_offset() -> None:
    def cost(x: Tensor) -> Tensor:
        return x.float() + 1e5

    assert check_unbiased(Cut(2), DIE, cost, order=1).kind == "biased"
    assert check_unbiased(Score(2), DIE, cost, order=1).tolerance[1] < 1e-3


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("width", [0.3, 0.45])
@pytest.mark.parametrize("replicates", [8_000, 20_000])
def test_weights_with_heavy_tails_are_not_misjudged(factor: float, width: float, replicates: int) -> None:
    class Heavy(ImportanceSampling):
        def weight(self, draw: Draw) -> Tensor:
            return factor * super().weight(draw)

    torch.manual_seed(0)
    estimator = Heavy(Normal(t(0.0), t(width)), n=4)
    verdict = check_unbiased(estimator, BELL, torch.cos, order=1, replicates=replicates)
    assert verdict.kind == "undecided" or (verdict.ok and factor == 1), str(verdict)
    assert not verdict.ok or all(verdict.deviation(n) <= 1 for n in (0, 1))


@pytest.mark.parametrize("factor", [0.9, 0.98, 1.02, 1.1, 1.3])
@pytest.mark.parametrize("distribution", [BELL, Poisson(t(2.5)), Gamma(t(2.0), t(3.0))])
def test_a_bias_is_found_or_smaller_than_what_is_said(factor: float, distribution: Distribution) -> None:
    torch.manual_seed(0)
    verdict = check_unbiased(Scaled(2, factor), distribution, square, order=1)
    bias = abs(factor - 1) * abs(verdict.truth[1])
    assert verdict.kind == "biased" or (verdict.ok and bias <= verdict.resolution * verdict.scale[1]), str(verdict)


@pytest.mark.parametrize("seed", range(8))
def test_what_might_be_a_bias_is_looked_at_with_more_replicates(seed: int) -> None:
    # A tenth of this derivative is 4 to 5 standard errors of the first round: neither chance nor a bias for certain.
    torch.manual_seed(seed)
    three = Categorical(logits=t(0.1, 0.7, -0.4))
    found = check_unbiased(Unlisted(4, 1.1), three, lambda x: torch.cos(x.double()), order=1)
    assert found.kind == "biased", str(found)
    torch.manual_seed(seed)
    right = check_unbiased(Unlisted(4, 1.0), three, lambda x: torch.cos(x.double()), order=1)
    assert right.ok, str(right)


@pytest.mark.parametrize(
    ("estimator", "distribution", "cost", "why"),
    [
        (LeaveOneOut(2), LogNormal(t(0.0), t(2.0)), lambda x: x, "carry all of the variance"),
        (ImportanceSampling(Normal(t(0.0), t(0.6)), n=4), BELL, torch.cos, "carry all of the variance"),
        (ScoreWithoutReplacement(2), Categorical(torch.ones(4)), square, "carry all of the variance"),
        (Reparameterise(), StudentT(t(5.0), t(0.2), t(1.0)), torch.tanh, "no derivatives up to order 2"),
    ],
)
def test_heavy_tails_and_missing_derivatives_are_not_judged(
    estimator: Estimator, distribution: Distribution, cost: Cost, why: str
) -> None:
    torch.manual_seed(1)
    verdict = check_unbiased(estimator, distribution, cost, order=2)
    assert verdict.kind == "undecided" and why in str(verdict), str(verdict)


def test_distributions_that_cannot_be_moved_are_named() -> None:
    mixture = MixtureSameFamily(Categorical(t(0.3, 0.7)), Normal(t(0.0, 1.0), t(1.0, 0.5)))
    for distribution in (mixture, Uniform(t(0.0), t(1.5)), Geometric(t(0.3))):
        with pytest.raises(ConfigError, match=r"no parameters that can be moved; pass a function .* at="):
            check_unbiased(Score(1), distribution, square)


@pytest.mark.parametrize(("share", "kind"), [(1.0, "no bias found"), (1.5, "biased")])
def test_what_an_estimator_draws_for_itself_is_not_called_enumerated(share: float, kind: str) -> None:
    torch.manual_seed(0)
    at, values = torch.tensor([[0.2, 0.3, 0.5], [1.0, -2.0, 4.0]]).double()
    at = at.log()

    def gradient(d: Distribution, x: Tensor, cost: Tensor) -> Tensor:
        return 2 * share * (torch.rand_like(cost) < 0.5) * d.log_prob(x) * cost

    found = check_unbiased(FromGradient(gradient), lambda t: Categorical(logits=t), lambda z: values[z], order=1, at=at)
    assert found.kind == kind and not found.enumerated, str(found)


@pytest.mark.parametrize(
    ("distribution", "rare"),
    [(Normal(torch.zeros(()).double(), 1.0), 6), (Poisson(torch.ones(()).double()), 11)],
)
@pytest.mark.parametrize("estimator", [Score(), LeaveOneOut(2)])
def test_values_that_no_replicate_meets_are_no_bias(
    estimator: Estimator, distribution: Distribution, rare: int
) -> None:
    torch.manual_seed(0)
    found = check_unbiased(estimator, distribution, lambda z: z + 1e8 * (z > rare).double(), order=1)
    assert found.kind == "undecided", str(found)


@pytest.mark.parametrize(
    "cost", [lambda z: z - z.mean(0), lambda z: z.mean(), lambda z: z.softmax(0)], ids=["baseline", "mean", "softmax"]
)
@pytest.mark.parametrize("distribution", [Bernoulli(torch.tensor(0.3)), Normal(torch.tensor(0.3), torch.tensor(1.0))])
def test_a_cost_that_mixes_samples_is_not_judged(cost: Callable[[Tensor], Tensor], distribution: Distribution) -> None:
    verdict = check_unbiased(LeaveOneOut(4), distribution, cost, order=1, replicates=2000)
    assert verdict.kind == "undecided" and "the cost mixes samples" in str(verdict)
    alone = check_unbiased(LeaveOneOut(4), distribution, lambda z: z**2 - 0.3, order=1, replicates=2000)
    assert "mixes" not in str(alone)


GRAPH_COSTS = {
    "mean of first": (lambda x, y: x.mean() * 7 + 0 * y, True),
    "mean beside second": (lambda x, y: x.mean() + y, True),
    "over its axis": (lambda x, y: x.mean(-2, keepdim=True) * y if x.dim() > 1 else x.mean() * y, True),
    "over the axis of the second": (lambda x, y: x + y.mean(0), True),
    "each alone": (lambda x, y: (x - 0.3) ** 2 * y + x, False),
    "of the first": (lambda x, y: x.exp(), False),
}


@pytest.mark.parametrize("name", GRAPH_COSTS)
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_a_graph_whose_cost_mixes_samples_is_not_judged(name: str, samples: int) -> None:
    cost, mixing = GRAPH_COSTS[name]

    def model(tape: Tape, theta: Tensor) -> None:
        x = tape.sample(Bernoulli(logits=theta), Score(samples))
        y = tape.sample(Bernoulli(logits=theta * x), Score(samples))
        tape.cost(cost(x, y))

    verdict = check_tape(model, torch.tensor(0.7))
    if not mixing:
        assert verdict.ok, verdict
    elif samples > 1 or "axis" not in name:  # of one sample the mean is itself
        assert verdict.kind == "undecided" and "the cost mixes samples" in str(verdict)


@pytest.mark.parametrize("own", [False, True])
def test_a_random_cost_is_not_judged(own: bool) -> None:
    generator = torch.Generator().manual_seed(0) if own else None

    def cost(x: Tensor) -> Tensor:
        return x.double() + torch.randn(x.shape, generator=generator)

    def model(tape: Tape, theta: Tensor) -> None:
        tape.cost(cost(tape.sample(Categorical(logits=theta), LeaveOneOut(2))))

    at = t([0.1, 0.7, -0.4])
    found = [check_unbiased(LeaveOneOut(2), Categorical(logits=at), cost, 1), check_tape(model, at)]
    assert [verdict.kind for verdict in found] == ["undecided"] * 2
    assert all("the cost is random" in str(verdict) for verdict in found)
    told = check_tape(model, at, expected=lambda x: (x.softmax(-1) * torch.arange(3)).sum(-1))
    assert told.kind == "no bias found" and not told.enumerated


@pytest.mark.parametrize("probs", [[0.5, 0.5, 0.0, 0.0], [0.4, 0.2, 0.2, 0.2]])
def test_a_proposal_that_never_draws_a_value_is_biased(probs: list[float]) -> None:
    p, costs = Categorical(logits=t([0.1, 0.7, -0.4, 0.2])), t([3.0, -1.0, 0.5, 7.0])
    verdict = check_unbiased(ImportanceSampling(Categorical(t(probs)), 3), p, lambda x: costs[x], 1)
    assert verdict.kind == ("unbiased" if all(probs) else "biased") and verdict.enumerated


def test_what_is_no_point_or_order_is_told() -> None:
    def model(tape: Tape, theta: Tensor) -> None:
        tape.cost(tape.sample(Bernoulli(logits=theta), Score()).double())

    with pytest.raises(ConfigError, match=r"at is 0\.3, expected a tensor"):
        check_tape(model, 0.3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"order is 1\.5, expected a whole number"):
        check_tape(model, torch.tensor(0.3), 1.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"order is -1, expected"):
        check_unbiased(Score(), Bernoulli(torch.tensor(0.3)), torch.exp, -1)


def test_a_graph_without_a_cost_is_told() -> None:
    def model(tape: Tape, theta: Tensor) -> None:
        tape.sample(Bernoulli(logits=theta), Score())

    with pytest.raises(ConfigError, match="the tape has no cost"):
        check_tape(model, torch.tensor(0.3))
