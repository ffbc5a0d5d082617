"""Every estimator on every distribution it takes, at every order it declares, with the conditions of Theorem 1."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from stochastic_problems import PROBLEMS, THETA, bell, coin, coin_cost, no_variance, s1, s1_cost, tensor, told
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Distribution,
    Gamma,
    Independent,
    LogNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    Poisson,
)

from doxa.errors import ConfigError
from doxa.stochastic import (
    ARM,
    ARMS,
    ARSM,
    IMLE,
    MAPO,
    SPSA,
    VIMCO,
    DisARM,
    Draw,
    Estimator,
    FromGradient,
    GumbelSoftmax,
    Implicit,
    LeaveOneOut,
    MeasureValued,
    PerturbAndMAP,
    Reparameterise,
    Score,
    SelfNormalised,
    StochasticSumAndSample,
    StraightThrough,
    SumAndSample,
    Tape,
    catalogue,
    check_unbiased,
    magic_box,
)
from doxa.stochastic.estimators._catalogue import ESTIMATORS


def cases() -> list[object]:
    found = []
    for name, (make, cost) in PROBLEMS.items():
        for example in ESTIMATORS:
            estimator = example(make(THETA))
            # Solvers change the meaning of a value, and have their own tests below.
            if estimator.biased or not estimator.fits(make(THETA)) or isinstance(estimator, PerturbAndMAP):
                continue
            if isinstance(estimator, VIMCO) and name == "Normal":
                continue  # tested on finite distributions, where the joint expectation can be listed
            found.append(pytest.param(example, make, cost, id=f"{estimator!r}-{name}"))
    return found


@pytest.mark.parametrize(("example", "make", "cost"), cases())
def test_unbiased_at_every_declared_order(
    example: Callable[[Distribution], Estimator],
    make: Callable[[Tensor], Distribution],
    cost: Callable[[Tensor, Tensor], Tensor],
) -> None:
    torch.manual_seed(0)
    used = example(make(THETA))
    order = int(min(used.order_for(make(THETA)), 3))
    report = told(lambda n: check_unbiased(used, make, cost, n, at=THETA, replicates=20_000), order)
    assert report.ok or no_variance(report, repr(used)), str(report)
    assert all(report.conditions[c] <= 1 for c in (1, 2, 4) if c in report.conditions)


@pytest.mark.parametrize(
    ("estimator", "problem"),
    [(ARM(), "Bernoulli"), (DisARM(), "Bernoulli"), (MeasureValued(), "two Bernoullis"), (ARSM(), "categorical")],
    ids=["ARM", "DisARM", "MeasureValued", "ARSM"],
)
def test_declared_order_is_not_understated(estimator: Estimator, problem: str) -> None:
    report = check_unbiased(estimator, *PROBLEMS[problem], order=2, at=THETA)
    assert report.kind == "biased" and report.order == 1


@pytest.mark.parametrize("problem", ["categorical", "two Bernoullis"])
@pytest.mark.parametrize("order", [1, 2])
def test_spsa_is_biased_by_the_square_of_its_step(order: int, problem: str) -> None:
    def biases(step: float) -> Tensor:
        report = check_unbiased(SPSA(step=step, order=order), *PROBLEMS[problem], order=order, at=THETA)
        assert report.enumerated and report.deviation(0) <= 1
        return tensor(report.estimate[1:]) - tensor(report.truth[1:])

    assert (biases(0.2) / biases(0.1)).tolist() == pytest.approx([4.0] * order, rel=0.05)


def test_spsa_on_a_normal_to_second_order() -> None:
    """A square has no fourth derivative in the mean, so there is no bias: E = μ² + σ²."""
    mean = tensor(0.7).expand(20_000).clone().requires_grad_()
    torch.manual_seed(0)
    tape = Tape(batch_dims=1)
    tape.cost(tape.sample(Normal(mean, tensor(1.0).expand(20_000)), SPSA(step=0.5, order=2)) ** 2)
    loss = tape.surrogate(order=2, reduction="sum", allow_biased=True)
    (slope,) = torch.autograd.grad(loss, mean, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), mean)
    for found, truth in ((slope.detach(), 1.4), (bend, 2.0)):
        assert abs(float(found.mean()) - truth) < 5 * float(found.std()) / 20_000**0.5


def test_self_normalised_weights_are_biased_by_the_inverse_of_their_number() -> None:
    """At every order; enumerated, all tuples of n values."""

    def biases(n: int) -> Tensor:
        report = check_unbiased(SelfNormalised(Categorical(tensor([0.3, 0.4, 0.3])), n), s1, s1_cost, 2, at=THETA)
        assert report.enumerated and report.kind == "biased"
        return tensor(report.estimate) - tensor(report.truth)

    four, eight = biases(4), biases(8)
    assert (four / eight).tolist() == pytest.approx([2.0] * 3, rel=0.25)
    # Where p itself is drawn from, nothing is divided by anything but n, and only the derivatives are biased.
    own = check_unbiased(lambda d: SelfNormalised(s1(THETA), 2), s1, s1_cost, 1, at=THETA)
    assert own.order == 0 and own.kind == "biased"


def test_self_normalised_weights_need_no_constants() -> None:
    """p known up to a factor, q too; and samples that are all impossible still give numbers."""

    class Unnormalised(Categorical):
        def log_prob(self, value: Tensor) -> Tensor:
            return super().log_prob(value) + 7.0

    torch.manual_seed(0)
    weights = []
    for q, p in ((Categorical, Categorical), (Unnormalised, Unnormalised), (Categorical, Unnormalised)):
        estimator = SelfNormalised(q(tensor([0.2, 0.5, 0.3])), 3)
        draw = estimator.complete(p(tensor([0.6, 0.3, 0.1])), torch.tensor([0, 2, 1]))
        weights.append(estimator.weight(draw))
    ratios = tensor([0.6 / 0.2, 0.1 / 0.3, 0.3 / 0.5])
    torch.testing.assert_close(weights[0], ratios / ratios.sum())
    for other in weights[1:]:
        torch.testing.assert_close(other, weights[0])
    logits = tensor([0.0, -torch.inf, -torch.inf]).requires_grad_()
    draw = SelfNormalised(Categorical(torch.ones(3)), 2).complete(Categorical(logits=logits), torch.tensor([1, 2]))
    w = SelfNormalised(Categorical(torch.ones(3)), 2).weight(draw)
    assert w.tolist() == [0.5, 0.5] and bool(torch.autograd.grad(w[0], logits)[0].isfinite().all())


@pytest.mark.parametrize("make", [lambda d: GumbelSoftmax(0.7), lambda d: StraightThrough()], ids=["gumbel", "through"])
def test_relaxations_are_refused_unless_allowed(make: Callable[[Distribution], Estimator]) -> None:
    d = Bernoulli(logits=torch.zeros(3, requires_grad=True))
    tape = Tape(batch_dims=1)
    z = tape.sample(d, make(d))
    tape.cost(torch.exp(z))
    with pytest.raises(ConfigError, match=r"is biased.*allow_biased=True.*LeaveOneOut"):
        tape.surrogate()
    assert torch.isfinite(tape.surrogate(allow_biased=True))


def test_straight_through_gumbel_is_discrete() -> None:
    tape = Tape(batch_dims=1)
    z = tape.sample(Bernoulli(logits=torch.randn(50)), GumbelSoftmax(0.7, n=4, hard=True))
    assert set(z.unique().tolist()) <= {0.0, 1.0}


CONTINUOUS: dict[str, tuple[Estimator, Callable[[Tensor], Distribution], Callable[[Tensor], Tensor]]] = {
    "score Poisson": (LeaveOneOut(2), lambda t: Poisson(torch.exp(t)), lambda x: torch.sqrt(x + 1)),
    "implicit mixture": (
        Implicit(order=3),
        lambda t: MixtureSameFamily(
            Categorical(logits=torch.stack([t, -t], -1)),
            Normal(torch.stack([t - 1, t * 2], -1), torch.stack([torch.exp(t), 1 + t**2], -1)),
        ),
        lambda x: torch.cos(x),
    ),
    "score mixture": (
        LeaveOneOut(2),
        lambda t: MixtureSameFamily(Categorical(logits=torch.stack([t, -t], -1)), Normal(t.unsqueeze(-1) + B2, 1.0)),
        lambda x: torch.cos(x),
    ),
    "implicit Gamma by torch": (Reparameterise(), lambda t: Gamma(2 + t, torch.exp(t)), lambda x: torch.cos(x)),
    "score log-normal": (LeaveOneOut(2), lambda t: LogNormal(0.3 * t, 0.5 + 0.1 * t), lambda x: torch.exp(-x)),
    "score binomial": (LeaveOneOut(2), lambda t: Binomial(3, logits=t), lambda x: torch.sqrt(x + 1)),
}
B2 = tensor([-1.0, 1.0])


@pytest.mark.parametrize("name", CONTINUOUS)
def test_other_distributions(name: str) -> None:
    estimator, make, cost = CONTINUOUS[name]
    torch.manual_seed(0)
    order = int(min(estimator.order_for(make(THETA)), 3))
    report = told(lambda n: check_unbiased(estimator, make, cost, n, at=THETA, replicates=6_000), order)
    assert report.ok, str(report)


def test_torch_knows_one_derivative_of_a_gamma() -> None:
    assert Reparameterise().order_for(Gamma(torch.ones(2), torch.ones(2))) == 1
    assert Reparameterise().order_for(Independent(Beta(torch.ones(2), torch.ones(2)), 1)) == 1
    tape = Tape()
    z = tape.sample(Gamma(torch.tensor(2.0, requires_grad=True), torch.tensor(1.0)), Reparameterise())
    tape.cost(z)
    with pytest.raises(ConfigError, match=r"unbiased up to order 1 only.*LeaveOneOut"):
        tape.surrogate(order=2)


def test_a_multivariate_normal() -> None:
    mean = tensor([0.3, -0.2]).requires_grad_()
    spread = tensor([[1.0, 0.2], [0.2, 0.7]])
    for estimator in (LeaveOneOut(400), Reparameterise(400)):
        tape = Tape(batch_dims=1)
        z = tape.sample(MultivariateNormal(mean.expand(500, 2), spread), estimator)
        assert z.shape == (400, 500, 2)
        tape.cost(z.square().sum(-1))
        (slope,) = torch.autograd.grad(tape.surrogate(), mean)
        assert slope.tolist() == pytest.approx([0.6, -0.4], abs=0.05)


def test_arms_agrees_with_disarm_for_two() -> None:
    """For n = 2 the copula is u and 1 − u, and dividing by 1 − ρ is what DisARM does."""
    from doxa.stochastic.estimators._noise import correlation

    for alpha in (-2.0, -0.3, 0.0, 0.8, 3.0):
        p = torch.sigmoid(tensor(alpha))
        rho = correlation(p, 2)
        both = (2 * p - 1).clamp_min(0)
        assert float(rho) == pytest.approx(float((both - p * p) / (p * (1 - p))))
        # b = 1, twin 0: DisARM has ½ σ(|α|), ARMS (b − b̃)/2 / (1 − ρ).
        assert float(0.5 / (1 - rho)) == pytest.approx(0.5 * float(torch.sigmoid(tensor(abs(alpha)))))
    for n in (2, 3, 7):
        p = torch.linspace(0.02, 0.98, 40, dtype=torch.float64)
        tape = Tape(batch_dims=1)
        z = tape.sample(Bernoulli(p.expand(8_000, 40).reshape(-1)), ARMS(n)).reshape(n, 8_000, 40)
        assert torch.allclose(z.mean((0, 1)), p, atol=0.03)
        together = (z[0] * z[1]).mean(0)
        expected = correlation(p, n) * p * (1 - p) + p * p
        assert torch.allclose(together, expected, atol=0.03)


def solver(u: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(u.argmax(-1), u.shape[-1]).to(u.dtype)


def test_perturb_and_map_is_unbiased() -> None:
    """For two choices and Gaussian noise the probability of the first is Φ((θ₁ − θ₂)/√2)."""
    f = tensor([1.0, 3.0])

    def expected(theta: Tensor) -> Tensor:
        first = 0.5 * (1 + torch.erf((theta[..., 0] - theta[..., 1]) / 2))
        return first * f[0] + (1 - first) * f[1]

    report = check_unbiased(
        PerturbAndMAP(solver, 2),
        lambda t: Independent(Normal(t, torch.ones_like(t)), 1),
        lambda z: z @ f,
        order=2,
        at=tensor([0.3, -0.2]),
        expected=expected,
    )
    assert report.ok, str(report)


def test_imle_points_downhill_and_solves_twice() -> None:
    calls = []

    def counted(u: Tensor) -> Tensor:
        calls.append(u)
        return solver(u)

    theta = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    tape = Tape()
    z = tape.sample(Independent(Normal(theta, torch.ones(3, dtype=torch.float64)), 1), IMLE(counted, n=200, step=5.0))
    tape.cost(z @ tensor([1.0, 2.0, 4.0]))
    (slope,) = torch.autograd.grad(tape.surrogate(allow_biased=True), theta)
    assert len(calls) == 2
    assert slope[0] < 0 < slope[2]
    with pytest.raises(ConfigError, match="shape"):
        Tape().sample(Independent(Normal(theta, 1.0), 1), IMLE(lambda u: u.argmax(-1)))


def test_memory_fills_with_the_best_values_and_is_saved() -> None:
    cost = tensor([5.0, 1.0, 4.0, 2.0, 3.0])
    estimator = MAPO(capacity=2, draws=3)
    logits = torch.zeros(6, 5, dtype=torch.float64)
    for _ in range(40):
        tape = Tape(batch_dims=1)
        z = tape.sample(Categorical(logits=logits), estimator)
        tape.cost(cost[z])
        tape.surrogate()
    assert estimator.values is not None
    assert estimator.values.tolist() == [[1] * 6, [3] * 6]
    copy = MAPO(capacity=2, draws=3)
    copy.load_state_dict(estimator.state_dict())
    assert torch.equal(copy.values, estimator.values)
    report = check_unbiased(_trained_memory(), s1, s1_cost, order=3, at=THETA)
    assert report.ok and report.enumerated, str(report)
    with pytest.raises(Exception, match="memory belongs to a batch of 6"):
        Tape(batch_dims=1).sample(Categorical(logits=logits[:2]), estimator)


def _trained_memory() -> MAPO:
    estimator = MAPO(1, 2)
    tape = Tape()
    z = tape.sample(s1(THETA), estimator)
    tape.cost(s1_cost(z, THETA))
    tape.surrogate()
    assert estimator.values is not None
    return estimator


def test_catalogue_lists_every_estimator() -> None:
    rows = {row["name"]: row for row in catalogue()}
    assert len(rows) >= 33
    assert rows["SelfNormalised"]["biased"] == "yes" and rows["MeasureValued"]["order"] == "1 or any"
    assert (
        rows["ARM"]["order"] == "1" and rows["GumbelSoftmax"]["biased"] == "yes" and rows["RELAX"]["learnable"] == "yes"
    )
    assert {frozenset(row) for row in rows.values()} == {
        frozenset({"name", "order", "distributions", "evaluations", "learnable", "biased"})
    }


def test_your_own_estimator_in_a_dozen_lines_is_checked() -> None:
    class Antithetic(Estimator):
        def propose(self, distribution: Distribution, n: int) -> Draw:
            x = distribution.sample(torch.Size([n]))
            return Draw(torch.cat([x, 2 * distribution.mean.detach() - x]), distribution)

        def gradient(self, draw: Draw) -> Tensor:
            return draw.distribution.log_prob(draw.value)

    assert check_unbiased(Antithetic(), bell, lambda x: torch.cos(x), order=3, at=THETA).ok

    class Forgotten(Antithetic):
        def gradient(self, draw: Draw) -> None:  # type: ignore[override]
            return None

    assert check_unbiased(Forgotten(), bell, lambda x: torch.cos(x), order=1, at=THETA).order == 0


def test_a_gradient_of_your_own_with_further_points() -> None:
    """Both values of a coin as further points: h = Σ_v p_v f_v is exact for the first derivative, and at any order."""

    def both(distribution: Distribution, x: Tensor) -> Tensor:
        return torch.stack([torch.zeros_like(x), torch.ones_like(x)])

    def expectation(distribution: Bernoulli, x: Tensor, cost: Tensor, extra: Tensor) -> Tensor:
        return (1 - distribution.probs) * extra[0] + distribution.probs * extra[1]

    lifted = FromGradient(expectation, order=3, n=2, points=both, extra=2)
    report = check_unbiased(lifted, coin, coin_cost, at=THETA)
    assert report.enumerated and report.ok and report.order == 3, str(report)
    with pytest.raises(ConfigError, match="belong together"):
        FromGradient(expectation, extra=2)
    # A claim that is too high is found: the plain score function is right for one derivative.
    plain = FromGradient(lambda d, x, f: d.log_prob(x) * f, order=2)
    assert check_unbiased(plain, coin, coin_cost, at=THETA).order == 1


class Doubled(Score):
    """Twice the gradient, and a control variate that takes half of it back: right as a whole, wrong in its parts."""

    def gradient(self, draw: Draw) -> Tensor:
        return 2 * draw.distribution.log_prob(draw.value)

    @property
    def controls(self) -> bool:
        return True

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        return (1 - magic_box(draw.distribution.log_prob(draw.value))) * cost


class Elsewhere(Score):
    """Draws from another distribution than the one it lists."""

    def propose(self, distribution: Distribution, n: int) -> Draw:
        return Draw(torch.zeros(n, *distribution.batch_shape, dtype=torch.long), distribution)


class HalfLive(SumAndSample):
    """Live weights on the summed values, detached ones on the draws, with l = log p there (errata 4.1)."""

    def weight(self, draw: Draw) -> Tensor:
        weight = super().weight(draw)
        return torch.cat([weight[: self.summed], weight[self.summed :].detach()])

    def gradient(self, draw: Draw) -> Tensor:
        log_p = draw.distribution.log_prob(draw.value)
        return torch.cat([torch.zeros_like(log_p[: self.summed]), log_p[self.summed :]])


def test_conditions_of_the_theorem_one_by_one() -> None:
    doubled = check_unbiased(Doubled(), s1, s1_cost, order=1, at=THETA)
    assert doubled.order == 1 and not doubled.ok
    assert doubled.conditions[1] > 1 and doubled.conditions[2] > 1 and doubled.conditions[4] <= 1
    elsewhere = check_unbiased(Elsewhere(), s1, s1_cost, order=1, at=THETA)
    assert elsewhere.order == 1 and not elsewhere.ok and elsewhere.conditions[4] > 1
    # The third one is not needed: its violation is reported, and nothing is wrong.
    half = check_unbiased(HalfLive(2, top=1, form="B", baseline=False), s1, s1_cost, order=3, at=THETA)
    assert half.ok and half.enumerated and half.conditions[3] > 1, str(half)
    assert check_unbiased(SumAndSample(2, top=1, form="B"), s1, s1_cost, order=3, at=THETA).conditions[3] <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["categorical", "two Bernoullis", "Normal"])
def test_finite_with_saturated_parameters(name: str, dtype: torch.dtype) -> None:
    for example in ESTIMATORS:
        big = torch.full((), 30.0, dtype=dtype, requires_grad=True)
        if name == "Normal":
            d: Distribution = Normal(big, torch.full((), 1e-3, dtype=dtype))
        elif name == "categorical":
            d = Categorical(logits=torch.stack([big, -big, big * 0, -big]))
        else:
            d = Independent(Bernoulli(logits=torch.stack([big, -big])), 1)
        estimator = example(d)
        if not estimator.fits(d):
            continue
        tape = Tape()
        z = tape.sample(d, estimator)
        tape.cost((z if name != "two Bernoullis" else z.sum(-1)).to(dtype) + 1)
        loss = tape.surrogate(allow_biased=True)
        (slope,) = torch.autograd.grad(loss, big, allow_unused=True)
        assert torch.isfinite(loss), estimator
        assert slope is None or torch.isfinite(slope), estimator


def test_wrong_use_is_explained() -> None:
    d = Categorical(logits=torch.zeros(3))
    for make, match in [
        (lambda: Score(0), "n >= 1"),
        (lambda: LeaveOneOut(1), "n >= 2"),
        (lambda: SumAndSample(2, top=2), "n > top"),
        (lambda: SumAndSample(3, form="C"), "expected 'A' or 'B'"),  # type: ignore[arg-type]
        (lambda: GumbelSoftmax(0.0), "positive"),
        (lambda: SPSA(order=3), r"expected 1 .* or 2"),
        (lambda: SelfNormalised(d, 1), "n >= 2"),
        (lambda: StochasticSumAndSample(2, top=2), "n > top"),
        (lambda: Tape().sample(Normal(0.0, 1.0), ARSM()), "ARSM needs"),
        (lambda: Tape().sample(d, Reparameterise()), "cannot be reparameterised"),
        (lambda: Tape().sample(d, ARM()), "Bernoulli variables"),
        (lambda: Tape().sample(d, GumbelSoftmax()), "OneHotCategorical"),
        (lambda: Tape().sample(d, SumAndSample(4, top=3)), "use Enumerate"),
        (
            lambda: Tape().sample(MultivariateNormal(torch.zeros(2), torch.eye(2)), MeasureValued()),
            "MeasureValued knows",
        ),
    ]:
        with pytest.raises(ConfigError, match=match):
            make()
