"""Every estimator at the ends of its parameters: infinite and subnormal, ties, both precisions; nothing but numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Normal, OneHotCategorical, Poisson

from doxa.errors import ConfigError, ProblemError
from doxa.stochastic import (
    REBAR,
    RELAX,
    SPSA,
    Estimator,
    LeaveOneOut,
    MeasureValued,
    Reparameterise,
    Score,
    SelfCritical,
    Tape,
    check_unbiased,
)
from doxa.stochastic.estimators._catalogue import ESTIMATORS

INF = math.inf
LOGITS: dict[str, list[float]] = {
    "tie": [0.0, 0.0, 0.0, 0.0],
    "infinite": [0.0, -INF, 0.3, 1.0],
    "two infinite": [0.0, -INF, -INF, 1.0],
    "certain": [1e4, 0.0, -1e4, 1.0],
    "subnormal in float32": [0.0, -100.0, -103.0, 1.0],
    "subnormal in float64": [0.0, -740.0, -744.0, 1.0],
    "all but one": [90.0, 0.0, 1.0, -1.0],
}
BINARY = [-INF, INF, -1e4, 1e4, -100.0, 100.0, -740.0, 0.0]
SHAPES: dict[str, Callable[[Tensor], Distribution]] = {
    "Categorical": lambda l: Categorical(logits=l),
    "OneHotCategorical": lambda l: OneHotCategorical(logits=l),
    "pair": lambda l: Independent(Categorical(logits=torch.stack([l, l.flip(-1)])), 1),
}


def cost(value: Tensor, d: Distribution) -> Tensor:
    value = value.to(torch.float64 if value.dtype == torch.int64 else value.dtype)
    return (value - 0.3).square().flatten(1).sum(-1) if d.event_shape else (value - 0.3).square()


def check(example: Callable[[Distribution], Estimator], make: Callable[[Tensor], Distribution], start: Tensor) -> None:
    logits = start.clone().requires_grad_()
    d = make(logits)
    estimator = example(make(start))
    if not estimator.fits(d):
        return
    for _ in range(5):
        tape = Tape()
        try:
            z = tape.sample(d, estimator)
        except ConfigError as error:
            assert "there are fewer" in str(error)  # different values than there are
            return
        tape.cost(cost(z, d))
        loss = tape.surrogate(order=0 if estimator.order_for(d) < 1 else 1, allow_biased=True)
        assert bool(loss.isfinite()), f"{estimator!r} on {start.tolist()}: {loss}"
        (slope,) = torch.autograd.grad(loss, logits, retain_graph=True, allow_unused=True)
        assert slope is None or bool(slope.isfinite().all()), f"{estimator!r} on {start.tolist()}: {slope}"


NAMES = [f"{i}-{type(make(Bernoulli(torch.tensor(0.5)))).__name__}" for i, make in enumerate(ESTIMATORS)]
every = pytest.mark.parametrize("example", ESTIMATORS, ids=NAMES)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_at_extreme_logits(example: Callable[[Distribution], Estimator], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for logits in LOGITS.values():
        for make in SHAPES.values():
            check(example, make, torch.tensor(logits, dtype=dtype))
    for logit in BINARY:
        check(example, lambda l: Bernoulli(logits=l), torch.tensor(logit, dtype=dtype))
        check(example, lambda l: Independent(Bernoulli(logits=l), 1), torch.tensor([logit, 0.0, -logit], dtype=dtype))


@every
@pytest.mark.parametrize("extreme", ["0", "almost 1"])
def test_finite_where_uniform_noise_is_at_its_end(
    example: Callable[[Distribution], Estimator], extreme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(like: Tensor, **options: object) -> Tensor:
        return torch.full_like(like, 0.0 if extreme == "0" else 1 - torch.finfo(like.dtype).eps / 2)

    monkeypatch.setattr(torch, "rand_like", ends)
    for dtype in (torch.float32, torch.float64):
        for logit in (-1e4, -90.0, 0.0, 0.7, 90.0, 1e4):
            check(example, lambda l: Bernoulli(logits=l), torch.tensor(logit, dtype=dtype))
        check(example, lambda l: OneHotCategorical(logits=l), torch.tensor([90.0, 0.0, 0.3, -INF], dtype=dtype))


@pytest.mark.parametrize("rate", [0.0, 1e-320, 1e-300, 1e-5, 3.0])
def test_counts_with_subnormal_rates(rate: float) -> None:
    torch.manual_seed(0)
    check(
        lambda d: MeasureValued(2), lambda r: Poisson(r, validate_args=False), torch.tensor(rate, dtype=torch.float64)
    )


def test_the_greedy_value_of_a_fair_coin_exists() -> None:
    z = Tape(batch_dims=1).sample(Bernoulli(torch.tensor([0.5, 0.2, 0.9])), SelfCritical(2))
    assert z[-1].tolist() == [0.0, 0.0, 1.0]
    assert check_unbiased(SelfCritical(1), Bernoulli(torch.tensor(0.5)), lambda x: (x - 0.3) ** 2).ok


@every
def test_weights_are_made_in_the_precision_of_the_distribution(example: Callable[[Distribution], Estimator]) -> None:
    """1/3 in float32 is not 1/3: weights of equal samples must sum to 1 in float64."""
    torch.manual_seed(0)
    d = Bernoulli(torch.tensor(0.3, dtype=torch.float64))
    estimator = example(d)
    if not estimator.fits(d) or estimator.biased or type(estimator).__name__ == "ImportanceSampling":
        return
    n = max(3, estimator.n) if estimator.n > 1 else 3
    try:
        draw = estimator.propose(d, estimator.checked(n))
    except ConfigError:
        return
    weight = estimator.weight(draw)
    if weight is not None and type(estimator).__name__ != "ScoreWithoutReplacement":
        assert weight.dtype == torch.float64
        assert float(weight.sum(0)) == pytest.approx(1, abs=1e-14)


def test_spsa_on_joint_draws() -> None:
    logits = torch.tensor([0.4, -0.3], requires_grad=True)
    tape = Tape()
    a, b = tape.sample_joint([Bernoulli(logits=logits[0]), Categorical(logits=logits)], SPSA(200))
    tape.cost(a + 2 * b)
    (slope,) = torch.autograd.grad(tape.surrogate(allow_biased=True), logits)
    assert bool(slope.isfinite().all()) and bool((slope != 0).all())
    with pytest.raises(ConfigError, match="functions of earlier ones"):
        Tape().sample_joint([Bernoulli(logits=logits[0]), lambda a: Bernoulli(logits=a)], SPSA())


@pytest.mark.parametrize("estimator", [LeaveOneOut(2), RELAX(torch.tanh), SelfCritical(1)], ids=repr)
def test_beliefs_that_are_not_numbers_are_named(estimator: Estimator) -> None:
    for d in (
        Bernoulli(logits=torch.tensor([0.1, math.nan]), validate_args=False),
        Bernoulli(probs=torch.tensor([0.1, math.nan]), validate_args=False),
        Categorical(logits=torch.tensor([[0.0, math.nan], [0.0, 1.0]]), validate_args=False),
        Independent(Categorical(logits=torch.tensor([[INF, 0.0]]), validate_args=False), 1),
    ):
        with pytest.raises(ProblemError, match=r"has NaN, expected numbers"):
            Tape(batch_dims=len(d.batch_shape)).sample(d, estimator)


def surrogate(logits: Tensor, estimator: Estimator, make: Callable[[Tensor], Distribution]) -> Tensor:
    tape = Tape()
    z = tape.sample(make(logits), estimator)
    tape.cost((z.to(logits.dtype) - 0.3).square())
    return tape.surrogate(allow_biased=True)


VMAPPED: list[tuple[Estimator, Callable[[Tensor], Distribution]]] = [
    (LeaveOneOut(200), lambda l: Bernoulli(logits=l, validate_args=False)),
    (Score(200), lambda l: Normal(l, 1.0, validate_args=False)),
    (Reparameterise(200), lambda l: Normal(l, 1.0, validate_args=False)),
    (REBAR(lambda z: (z - 0.3) ** 2, n=200), lambda l: Bernoulli(logits=l, validate_args=False)),
    (LeaveOneOut(200), lambda l: Categorical(logits=torch.stack([l, -l], -1), validate_args=False)),
]


@pytest.mark.parametrize(("estimator", "make"), VMAPPED)
def test_vmap_and_grad_over_sampling(estimator: Estimator, make: Callable[[Tensor], Distribution]) -> None:
    torch.manual_seed(0)
    logits = torch.full((3,), 0.4)
    slopes = torch.func.vmap(torch.func.grad(lambda l: surrogate(l, estimator, make)), randomness="different")(logits)
    assert slopes.shape == (3,) and bool(slopes.isfinite().all()) and len(set(slopes.tolist())) == 3
    with pytest.raises(ConfigError, match="randomness='different'"):
        torch.func.vmap(lambda l: surrogate(l, estimator, make))(logits)
