"""Weak derivatives of families over numbers: unbiased, their scores by autograd, their samplers on their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from stochastic_problems import THETA, bell, tensor
from torch import Tensor, exp
from torch.distributions import (
    Beta,
    Binomial,
    Distribution,
    Exponential,
    Gamma,
    Independent,
    Normal,
    Poisson,
    Weibull,
)

from doxa.stochastic import Estimator, MeasureValued, Score, Tape, check_tape, check_unbiased
from doxa.stochastic.estimators._factors import plain
from doxa.stochastic.estimators._weak import apart, flat, shrinking, weak_derivatives

Make = Callable[[Tensor], Distribution]
Cost = Callable[[Tensor], Tensor]


def like(t: Tensor, x: float) -> Tensor:
    return tensor(x).expand(t.shape)


FAMILIES: dict[str, tuple[Make, Cost]] = {
    "Poisson": (lambda t: Poisson(exp(t)), lambda x: torch.sqrt(x + 1) - 1.5),
    "Binomial": (lambda t: Binomial(3, logits=t), lambda x: torch.sqrt(x + 1) - 1.5),
    "Binomial, many": (lambda t: Binomial(7, probs=t), torch.cos),
    "Binomial, one": (lambda t: Binomial(1, probs=t), torch.cos),
    "Exponential": (lambda t: Exponential(exp(t)), torch.cos),
    "Gamma": (lambda t: Gamma(2 + t, exp(t)), torch.cos),
    "Gamma, rate": (lambda t: Gamma(like(t, 1.6), exp(t)), torch.cos),
    "Beta": (lambda t: Beta(exp(t), 2 - t), lambda x: torch.cos(3 * x)),
    "Beta, first": (lambda t: Beta(exp(t), like(t, 1.4)), lambda x: torch.cos(3 * x)),
    "Beta, second": (lambda t: Beta(like(t, 2.5), exp(t)), lambda x: torch.cos(3 * x)),
    "Weibull": (lambda t: Weibull(exp(t), 1.5 + t), torch.cos),
    "Weibull, scale": (lambda t: Weibull(exp(t), like(t, 1.7)), torch.cos),
    "Weibull, shape": (lambda t: Weibull(like(t, 0.7), 1.5 + t), torch.cos),
    "Normal": (bell, lambda x: torch.cos(x) + 0.1 * x**2),
    "Normal, jump": (bell, lambda x: (x > 0.2).double()),
}


@pytest.mark.parametrize(
    ("name", "second"), [*((name, True) for name in FAMILIES), ("Poisson", False), ("Gamma", False), ("Normal", False)]
)
def test_unbiased_to_second_order(name: str, second: bool) -> None:
    torch.manual_seed(0)
    make, cost = FAMILIES[name]
    heavy = name == "Weibull, shape" or (name, second) == ("Normal", False)  # second derivatives by the score function
    order = 1 if heavy else 2
    report = check_unbiased(MeasureValued(second=second), make, cost, order=order, at=THETA, replicates=10_000)
    assert report.ok, str(report)
    assert all(report.conditions[c] <= 1 for c in (1, 2))


@pytest.mark.parametrize("name", ["Poisson", "Binomial, many", "Normal, jump", "Gamma, rate"])
def test_each_derivative_that_comes_from_differences_varies_less(name: str) -> None:
    torch.manual_seed(0)
    make, cost = FAMILIES[name]

    def variances(estimator: Estimator) -> list[float]:
        theta = THETA.expand(8_000).clone().requires_grad_()
        tape = Tape(batch_dims=1)
        tape.cost(3 + cost(tape.sample(make(theta), estimator)))
        loss, found = tape.surrogate(order=2, reduction="sum"), []
        for _ in range(2):
            (loss,) = torch.autograd.grad(loss.sum(), theta, create_graph=True)
            found.append(float(loss.detach().var()))
        return found

    score, first, both = (variances(e) for e in (Score(), MeasureValued(), MeasureValued(second=True)))
    assert first[0] < score[0] / 3 and both[0] < score[0] / 3
    assert both[1] < first[1] / (3 if name != "Normal, jump" else 1)  # mean and scale together: by the score function


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_derivatives_of_the_density(name: str) -> None:
    torch.manual_seed(0)
    d = FAMILIES[name][0](THETA)
    base = plain(d)[0]
    names = ["logits"] if isinstance(base, Binomial) else list(base.arg_constraints)
    given = {n: getattr(base, n) for n in names}
    x = base.sample((50,))
    for part in weak_derivatives(base, d, flat(x, d, 1)):
        # Which parameter, and in which coordinate: the one whose value or logarithm it is.
        key, log = next(
            (n, log)
            for n, v in given.items()
            for log in (False, True)
            if torch.allclose(part.theta.reshape(()), v.log() if log else v, rtol=1e-12, atol=0)
        )
        theta = part.theta.detach().reshape(()).expand(50).clone().requires_grad_()
        extra = {"total_count": base.total_count} if isinstance(base, Binomial) else {}
        moved = type(base)(**extra, **{n: (theta.exp() if log else theta) if n == key else v for n, v in given.items()})  # type: ignore[arg-type]
        (slope,) = torch.autograd.grad(moved.log_prob(x).sum(), theta, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), theta)
        for mixture, score in ((part.first, slope), (part.second, slope**2 + bend)):
            if mixture is not None:
                torch.testing.assert_close(mixture.score.reshape(50), score.detach(), rtol=1e-8, atol=1e-8)
                total = sum(torch.as_tensor(w, dtype=torch.float64).expand(50, 1) for w in mixture.weights)
                assert float(torch.as_tensor(total).abs().max()) < 1e-9  # nothing is gained or lost


def test_the_jump_away_from_one_has_its_density() -> None:
    """P(Y ≤ c) = ∫₀ᶜ e^{−y} (y−1) log y dy, by the midpoint rule."""
    torch.manual_seed(0)
    y = apart(Exponential(tensor(1.0)).sample((40_000,)))
    grid = (torch.arange(400_000, dtype=torch.float64) + 0.5) * 1e-4
    density = torch.exp(-grid) * (grid - 1) * grid.log()
    assert float(density.sum() * 1e-4) == pytest.approx(1, abs=1e-4)
    for c in (0.05, 0.3, 0.8, 1.0, 1.5, 3.0, 6.0):
        chance = float(density[grid < c].sum() * 1e-4)
        assert abs(float((y <= c).double().mean()) - chance) < 5 * (chance * (1 - chance) / 40_000) ** 0.5 + 1e-4


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.5), (1.0, 4.0), (2.5, 0.01), (6.0, 300.0)])
def test_the_factor_of_a_beta_has_its_moments(a: float, b: float) -> None:
    """E[V^s] = (ψ(α+β+s) − ψ(α+s)) / (ψ(α+β) − ψ(α)) from the density v^{α−1} (1−v^β) / (1−v)."""
    torch.manual_seed(0)
    x, y = tensor(a), tensor(b)
    v = shrinking(x, y, torch.zeros(40_000, dtype=torch.float64))
    for s in (0.5, 1.0, 3.0):
        expected = (torch.digamma(x + y + s) - torch.digamma(x + s)) / (torch.digamma(x + y) - torch.digamma(x))
        sample = v**s
        assert abs(float(sample.mean() - expected)) < 5 * float(sample.std()) / 200


def test_several_dimensions_and_their_cross_derivatives() -> None:
    """Two rates move together: mixed second derivatives come from the score function."""
    torch.manual_seed(0)

    def expected(theta: Tensor) -> Tensor:
        k = torch.arange(60, dtype=torch.float64)
        a, b = (Poisson(r).log_prob(k).exp() for r in (exp(theta), exp(0.5 - theta)))
        return (a.unsqueeze(-1) * b * cost(torch.stack(torch.meshgrid(k, k, indexing="ij"), -1))).sum()

    def cost(x: Tensor) -> Tensor:
        return torch.cos(x[..., 0]) * torch.sqrt(x[..., 1] + 1) + 0.1 * x[..., 0]

    report = check_unbiased(
        MeasureValued(2, second=True),
        lambda t: Independent(Poisson(torch.stack([exp(t), exp(0.5 - t)], -1)), 1),
        cost,
        order=2,
        at=THETA,
        expected=expected,
        replicates=10_000,
    )
    assert report.ok, str(report)


@pytest.mark.parametrize("second", [False, True])
def test_in_a_graph(second: bool) -> None:
    def model(tape: Tape, theta: Tensor) -> None:
        x = tape.sample(Poisson(exp(theta)), MeasureValued(second=second))
        y = tape.sample(Gamma(1 + 0.1 * x, exp(0.3 * theta)), MeasureValued(second=second))
        tape.cost(torch.cos(x - y) * theta + 0.1 * y)

    torch.manual_seed(0)
    report = check_tape(model, THETA, order=2, replicates=20_000)
    assert report.ok, str(report)


EXTREME: dict[str, Callable[[Tensor], Distribution]] = {
    "Poisson": lambda s: Poisson(s, validate_args=False),
    "Exponential": lambda s: Exponential(s),
    "Gamma, rate": lambda s: Gamma(torch.ones_like(s), s),
    "Gamma, concentration": lambda s: Gamma(s, torch.ones_like(s)),
    "Beta": lambda s: Beta(s, torch.ones_like(s)),
    "Beta, both": lambda s: Beta(s, s),
    "Weibull, scale": lambda s: Weibull(s, torch.ones_like(s)),
    "Weibull, shape": lambda s: Weibull(torch.ones_like(s), s),
    "Normal": lambda s: Normal(torch.zeros_like(s), s),
    "Binomial": lambda s: Binomial(4, probs=s.clamp_max(1.0)),
    "Binomial, logits": lambda s: Binomial(4, logits=s.log()),
    "no trials": lambda s: Binomial(0, logits=s),
}


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EXTREME)
def test_finite_at_extreme_parameters(name: str, dtype: torch.dtype, second: bool) -> None:
    torch.manual_seed(0)
    for start in (1e-6, 1e-3, 1.0, 1e3, 1e6):
        s = torch.tensor(start, dtype=dtype, requires_grad=True)
        tape = Tape()
        z = tape.sample(EXTREME[name](s), MeasureValued(3, second))
        tape.cost(torch.cos(z))
        loss = tape.surrogate(order=2)
        (slope,) = torch.autograd.grad(loss, s, create_graph=True)
        (bend,) = torch.autograd.grad(slope, s)
        assert all(bool(t.isfinite()) for t in (loss, slope, bend)), f"{start}: {loss}, {slope}, {bend}"


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("name", [name for name in FAMILIES if "Beta" not in name])  # torch has no empty Beta
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0)])
def test_batches_may_be_empty(name: str, second: bool, shape: tuple[int, ...]) -> None:
    make, cost = FAMILIES[name]
    theta = torch.full(shape, 0.4, dtype=torch.float64, requires_grad=True)
    tape = Tape(batch_dims=len(shape))
    tape.cost(cost(tape.sample(make(theta), MeasureValued(2, second=second))))
    tape.surrogate().sum().backward()
    assert theta.grad is not None and theta.grad.shape == shape and bool(theta.grad.isfinite().all())
