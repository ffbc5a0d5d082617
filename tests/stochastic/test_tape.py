"""The tape: guards, credit, claims, errors, transforms, and no state anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from stochastic_problems import THETA, coin, derivatives, tensor
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Normal, OneHotCategorical

from doxa.errors import ConfigError, ProblemError
from doxa.stochastic import (
    ARM,
    GO,
    Draw,
    Enumerate,
    Estimator,
    LeaveOneOut,
    MovingAverage,
    PerturbAndMAP,
    Reparameterise,
    Score,
    SelfCritical,
    Tape,
    UnorderedSet,
)
from doxa.stochastic.estimators._catalogue import ESTIMATORS


def simple(estimator: Estimator, order: int = 1, at: float = 0.3) -> tuple[Tensor, Tensor]:
    theta = tensor(at).requires_grad_()
    tape = Tape()
    z = tape.sample(coin(theta), estimator)
    tape.cost(z * theta)
    return tape.surrogate(order=order), theta


@pytest.mark.parametrize("estimator", [LeaveOneOut(2), Enumerate(), GO(), SelfCritical()], ids=repr)
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_differentiating_more_often_than_declared_raises(estimator: Estimator, order: int) -> None:
    loss, theta = simple(estimator, order)
    for _ in range(order):
        (loss,) = torch.autograd.grad(loss, theta, create_graph=True)
    with pytest.raises(ConfigError, match=r"more often than declared.*order=n"):
        torch.autograd.grad(loss, theta, create_graph=True)


def test_the_guard_also_watches_pathwise_gradients() -> None:
    mean = tensor(0.5).requires_grad_()
    tape = Tape()
    z = tape.sample(Normal(mean, tensor(1.0)), Reparameterise())
    tape.cost(3 * z)  # the first derivative is constant, and yet the second one was not declared
    (slope,) = torch.autograd.grad(tape.surrogate(order=1), mean, create_graph=True)
    with pytest.raises(ConfigError, match="more often than declared"):
        torch.autograd.grad(slope, mean)


def test_an_order_that_an_estimator_cannot_give_is_refused() -> None:
    tape = Tape()
    z = tape.sample(coin(THETA), ARM(), name="coin")
    tape.cost(z)
    with pytest.raises(ConfigError, match=r"ARM@1 at coin is unbiased up to order 1 only.*LeaveOneOut"):
        tape.surrogate(order=2)
    free = Tape()
    free.sample(coin(THETA), ARM())
    free.cost(torch.ones(()), deps=[])  # not on the path to any cost
    assert free.surrogate(order=5).item() == 1.0


def test_axes_and_shapes() -> None:
    tape = Tape(batch_dims=1)
    a = tape.sample(OneHotCategorical(logits=torch.zeros(4, 3)), LeaveOneOut(5))
    b = tape.sample(Normal(a.sum(-1), 1.0), Score(2))
    c = tape.sample(Normal(torch.zeros(4), 1.0), Score(6))
    d = tape.sample(Normal(b, 1.0), Score(), n=None)
    assert a.shape == (5, 4, 3) and b.shape == (2, 5, 4) and c.shape == (6, 1, 1, 4) and d.shape == (1, 2, 5, 4)
    assert type(a) is Tensor
    tape.cost(b + c)
    assert tape.surrogate(reduction="none").shape == (4,)
    assert float(tape.surrogate(reduction="sum")) == pytest.approx(4 * float(tape.surrogate()), rel=1e-5)


def test_two_batch_dimensions() -> None:
    """A grid of coins, each with its own logit and price: value and slope in closed form."""
    logits = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
    price = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    tape = Tape(batch_dims=2)
    z = tape.sample(Bernoulli(logits=logits), LeaveOneOut(4000))
    assert z.shape == (4000, 2, 3)
    tape.cost(price * z)
    tape.cost(tensor([1.0, 2.0, 3.0]))  # broadcasts over the batch
    loss = tape.surrogate(reduction="none")
    p = torch.sigmoid(logits)
    assert torch.allclose(loss, price * p + tensor([1.0, 2.0, 3.0]), atol=0.3)
    (slope,) = torch.autograd.grad(loss.sum(), logits)
    assert torch.allclose(slope, price * p * (1 - p), rtol=0.1)


def test_costs_are_credited_to_those_that_can_influence_them() -> None:
    tape = Tape(batch_dims=1)
    d = Bernoulli(logits=torch.zeros(4))
    a = tape.sample(d, LeaveOneOut(3), name="a")
    b = tape.sample(d, LeaveOneOut(2), name="b")
    c = tape.sample(Bernoulli(logits=a), Score(), n=None, name="c")
    tape.cost(torch.ones(4), name="free")
    tape.cost(a * 1.0, name="from a")
    tape.cost(b * 1.0, name="from b")
    tape.cost(c * b, name="from all")
    tape.cost(c + a, deps=[c], name="claimed")
    credited = dict(re.findall(r"^(.*?) +cost of .* credited to (.*)$", tape.explain(), re.MULTILINE))
    assert credited["free"] == "nobody"
    assert credited["from all"] == "a, b, c"
    assert credited["claimed"] == "a, c"
    assert credited["from b"] == "b"
    assert "axis 0 of size 3" in tape.explain() and "no axis" in tape.explain()


@pytest.mark.parametrize("as_function", [True, False])
def test_claims_are_verified_by_perturbation(as_function: bool) -> None:
    tape = Tape(check_deps=True)
    a = tape.sample(Normal(torch.zeros(()), 1.0), LeaveOneOut(4), name="a")
    b = tape.sample(Normal(torch.zeros(()), 1.0), LeaveOneOut(4), name="b")
    before = a.clone(), b.clone()

    def cost(value: Callable[[], Tensor]) -> Callable[[], Tensor] | Tensor:
        return value if as_function else value()

    tape.cost(cost(lambda: b * 2), deps=[b])
    with pytest.raises(ConfigError, match="deps leaves out a, but the cost changes with it"):
        tape.cost(cost(lambda: a * b), deps=[b])
    assert torch.equal(a, before[0]) and torch.equal(b, before[1])
    single = Tape(check_deps=True)
    x = single.sample(coin(THETA), Score(), name="x")
    with pytest.raises(ConfigError, match="give the cost as a function"):
        single.cost(x * 0.0, deps=[])
    single.cost(lambda: torch.ones((), dtype=torch.float64), deps=[])


def test_an_exception_in_a_cost_leaves_nothing_behind() -> None:
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(1)
    tape = Tape(check_deps=True, generator=generator)
    a = tape.sample(Normal(tensor(0.0), 1.0), Score())
    kept, calls = a.clone(), []

    def breaks() -> Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("user code")
        return torch.zeros(())

    with pytest.raises(RuntimeError, match="user code"):
        tape.cost(breaks, deps=[])
    assert torch.equal(a, kept)
    assert torch.equal(torch.get_rng_state(), before)
    tape.cost(a * 2)
    assert float(tape.surrogate()) == pytest.approx(2 * float(kept))

    class Breaks(Estimator):
        def propose(self, distribution: Distribution, n: int) -> Draw:
            torch.rand(3)
            raise RuntimeError("estimator code")

    with pytest.raises(RuntimeError, match="estimator code"):
        tape.sample(Normal(tensor(0.0), 1.0), Breaks())
    assert torch.equal(torch.get_rng_state(), before)
    assert len(tape.nodes) == 1 and not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def test_a_generator_makes_samples_repeatable_and_leaves_the_global_one_alone() -> None:
    def run(seed: int) -> Tensor:
        tape = Tape(generator=torch.Generator().manual_seed(seed))
        return tape.sample(Categorical(torch.ones(1000)), UnorderedSet(5))

    before = torch.get_rng_state()
    assert torch.equal(run(3), run(3)) and not torch.equal(run(3), run(4))
    assert torch.equal(torch.get_rng_state(), before)


def test_wrong_shapes_are_explained() -> None:
    tape = Tape(batch_dims=1)
    with pytest.raises(ProblemError, match=r"batch shape \(4, 20\).*Independent\(d, 1\)"):
        tape.sample(Bernoulli(logits=torch.zeros(4, 20)), Score())
    tape.sample(Independent(Bernoulli(logits=torch.zeros(4, 20)), 1), LeaveOneOut(3))
    with pytest.raises(ProblemError, match=r"shape \(2, 4\); axis 0 should have size 3 or 1, not 2"):
        tape.cost(torch.zeros(2, 4))
    with pytest.raises(ProblemError, match=r"batch dimension -1 should have size 4 or 1, not 5"):
        tape.cost(torch.zeros(5))
    with pytest.raises(ProblemError, match="floating-point"):
        tape.cost(torch.zeros(4, dtype=torch.long))
    with pytest.raises(ConfigError, match="no cost"):
        tape.surrogate()
    with pytest.raises(ConfigError, match="no sample of this tape"):
        tape.cost(torch.zeros(4), deps=[torch.zeros(4)])
    with pytest.raises(ConfigError, match="expected an Estimator"):
        tape.sample(Normal(0.0, 1.0), 5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"torch\.distributions"):
        tape.sample(5, Score())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot be used with n=None"):
        tape.sample(Bernoulli(logits=torch.zeros(4)), SelfCritical(), n=None)
    tape.cost(torch.zeros(4))
    with pytest.raises(ConfigError, match="'mean', 'sum' or 'none'"):
        tape.surrogate(reduction="max")  # type: ignore[arg-type]


def test_a_name_is_given_once() -> None:
    tape = Tape()
    tape.sample(Bernoulli(torch.tensor(0.5)), LeaveOneOut(2), name="coin")
    tape.sample(Bernoulli(torch.tensor(0.5)), LeaveOneOut(2))
    with pytest.raises(ConfigError, match="there is a node named 'coin' on this tape already"):
        tape.sample(Bernoulli(torch.tensor(0.5)), LeaveOneOut(2), name="coin")


def test_a_cost_that_is_no_number_is_named() -> None:
    tape = Tape(batch_dims=1)
    z = tape.sample(Bernoulli(logits=torch.zeros(4, requires_grad=True)), LeaveOneOut(3), name="coin")
    tape.cost(z, name="fine")
    tape.cost(torch.where(torch.arange(4) == 2, torch.nan, z), name="price")
    with pytest.raises(ProblemError, match=r"the cost 'price' is NaN in 3 of 12 rows \(shape \(3, 4\)\)"):
        tape.surrogate()


def test_long_chains_need_no_recursion() -> None:
    theta = torch.tensor(0.1, requires_grad=True)
    tape = Tape(batch_dims=1)
    x = tape.sample(Bernoulli(logits=theta.expand(2)), LeaveOneOut(3))
    for _ in range(1000):
        x = tape.sample(Bernoulli(logits=theta * (2 * x - 1)), Score(), n=None)
        tape.cost(x * 0.01)
    loss = tape.surrogate(order=2)
    (slope,) = torch.autograd.grad(loss, theta, create_graph=True)
    (second,) = torch.autograd.grad(slope, theta)
    assert torch.isfinite(loss) and torch.isfinite(slope) and torch.isfinite(second)
    with pytest.raises(ConfigError, match="n=None in long chains"):
        wide = Tape()
        for _ in range(60):
            wide.sample(coin(THETA), Score())


def test_claimed_independence_of_many_nodes() -> None:
    """Ten independent coins, each with its cost: value and derivatives in closed form, by many particles."""
    theta = tensor(0.2).requires_grad_()
    tape = Tape(batch_dims=1)
    for _ in range(10):
        step = tape.sample(Bernoulli(logits=theta.expand(20_000)), Score(baseline=0.5), n=None, deps=[])
        tape.cost(step, deps=[step])
    assert all("depends on nothing" in line for line in tape.explain().splitlines()[:10])
    found = derivatives(tape.surrogate(order=2), theta, 2)
    p = torch.sigmoid(theta.detach())
    expected = [10 * p, 10 * p * (1 - p), 10 * p * (1 - p) * (1 - 2 * p)]
    assert found == pytest.approx([float(e) for e in expected], abs=0.06)


def test_a_state_sees_the_total_cost_once() -> None:
    estimator = MovingAverage(n=2, decay=0.5)
    for expected in (3.0, 3.0):
        tape = Tape()
        a = tape.sample(coin(THETA), estimator)
        tape.cost(torch.ones(2))
        b = tape.sample(coin(THETA), LeaveOneOut(2))
        tape.cost(2 + 0 * a * b)  # another dependency set: a with b
        tape.surrogate()
        tape.surrogate()
        assert float(estimator.average) == pytest.approx(expected)
    assert int(estimator.steps) == 2


def loss_of(logits: Tensor, estimator: Estimator | None = None, order: int = 2) -> Tensor:
    tape = Tape(batch_dims=0)
    d = Independent(Bernoulli(logits=logits, validate_args=False), 1, validate_args=False)
    z = tape.sample(d, estimator or LeaveOneOut(4))
    tape.cost((z - 0.2).square().sum(-1))
    return tape.surrogate(order=order, allow_biased=True)


TWO_COINS = Independent(Bernoulli(logits=tensor([0.3, -0.5])), 1)


def exact_loss(logits: Tensor) -> Tensor:
    return loss_of(logits, Enumerate())


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_torch_func() -> None:
    logits = tensor([[0.1, -0.3], [0.5, 0.2], [0.0, 1.0]])
    p = torch.sigmoid(logits)
    slope = p * (1 - p) * 0.6  # d/dp of p·0.64 + (1−p)·0.04
    assert torch.allclose(torch.func.grad(exact_loss)(logits[0]), slope[0])
    assert torch.allclose(torch.func.vmap(torch.func.grad(exact_loss))(logits), slope)
    curvature = torch.diag_embed(p * (1 - p) * (1 - 2 * p) * 0.6)
    assert torch.allclose(torch.func.vmap(torch.func.hessian(exact_loss))(logits), curvature)
    many = torch.func.vmap(torch.func.grad(loss_of), randomness="different")(logits[0].expand(20_000, 2))
    assert torch.allclose(many.mean(0), slope[0], atol=0.02) and float(many.std()) > 0
    with pytest.raises(ConfigError, match="more often than declared"):
        torch.func.grad(lambda x: torch.func.grad(lambda y: torch.func.grad(exact_loss)(y).sum())(x).sum())(logits[0])
    with pytest.raises(ConfigError, match=r"keeps a state.*LeaveOneOut"):
        torch.func.grad(lambda x: loss_of(x, MovingAverage()))(logits[0])


def compiled_slope(estimator: Estimator) -> Tensor:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: loss_of(x, estimator, order=1), fullgraph=True, backend="aot_eager")
    logits = tensor([0.3, -0.5]).requires_grad_()
    return torch.autograd.grad(compiled(logits), logits)[0]


@pytest.mark.parametrize("estimator", [LeaveOneOut(4), Score(2), Enumerate(), UnorderedSet(2)], ids=repr)
def test_compile_in_one_graph(estimator: Estimator) -> None:
    slope = compiled_slope(estimator)
    assert torch.isfinite(slope).all()
    if isinstance(estimator, Enumerate):
        logits = tensor([0.3, -0.5]).requires_grad_()
        (plain,) = torch.autograd.grad(exact_loss(logits), logits)
        assert torch.allclose(slope, plain)


@pytest.mark.slow
@pytest.mark.parametrize("example", ESTIMATORS, ids=lambda make: type(make(TWO_COINS)).__name__)
def test_compile_every_estimator(example: Callable[[Distribution], Estimator]) -> None:
    estimator = example(TWO_COINS)
    if not estimator.fits(TWO_COINS) or isinstance(estimator, PerturbAndMAP):
        return
    if estimator.stateful:
        with pytest.raises(Exception, match=r"keeps a state.*LeaveOneOut"):
            compiled_slope(estimator)
    else:
        assert torch.isfinite(compiled_slope(estimator)).all()


def test_large_sets_cannot_be_traced() -> None:
    d = Independent(Bernoulli(logits=torch.zeros(20)), 1)
    with pytest.raises(ConfigError, match="take at most 9 values there"):
        torch.func.vmap(
            lambda x: UnorderedSet(12).propose(Independent(Bernoulli(logits=x), 1), 12).value, randomness="same"
        )(torch.zeros(3, 20))
    assert UnorderedSet(12).propose(d, 12).m == 12


def test_networks_of_all_kinds() -> None:
    """A convolutional encoder, a recurrent decoder, one step of an optimiser."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 6))
    cell, head = nn.GRUCell(1, 8), nn.Linear(8, 1)
    images = torch.rand(5, 1, 8, 8)
    optimiser = torch.optim.SGD([*encoder.parameters(), *cell.parameters(), *head.parameters()], lr=0.1)
    tape = Tape(batch_dims=1)
    z = tape.sample(Independent(Bernoulli(logits=encoder(images)), 1), LeaveOneOut(3))
    state = torch.zeros(15, 8)
    for t in range(6):
        state = cell(z[..., t].reshape(15, 1), state)
    tape.cost((head(state).reshape(3, 5) - 1).square())
    tape.surrogate().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in optimiser.param_groups[0]["params"])
    optimiser.step()


def test_learnt_control_variates_reduce_the_variance() -> None:
    from doxa.stochastic import REBAR

    torch.manual_seed(1)
    estimator = REBAR(lambda z: (z - 0.45).square().sum(-1), temperature=0.5, scale=0.1)
    logits = torch.full((500, 3), 0.5, requires_grad=True)

    def objective() -> Tensor:
        tape = Tape(batch_dims=1)
        z = tape.sample(Independent(Bernoulli(logits=logits), 1), estimator)
        tape.cost((z - 0.45).square().sum(-1) + 3 * z[..., 0])
        return tape.variance_objective([logits])

    optimiser = torch.optim.Adam(estimator.parameters(), lr=0.05)
    before = float(torch.stack([objective().detach() for _ in range(20)]).mean())
    for _ in range(60):
        found = torch.autograd.grad(objective(), list(estimator.parameters()))
        for p, g in zip(estimator.parameters(), found, strict=True):
            p.grad = g
        optimiser.step()
    after = float(torch.stack([objective().detach() for _ in range(20)]).mean())
    assert after < 0.9 * before
    with pytest.raises(ConfigError, match="does not depend on these parameters"):
        tape = Tape()
        tape.cost(tape.sample(Bernoulli(logits=torch.zeros((), requires_grad=True)), Score()))
        tape.variance_objective([torch.zeros(3, requires_grad=True)])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_an_empty_batch_costs_nothing(reduction: Literal["mean", "sum"]) -> None:
    logits = torch.zeros(0, requires_grad=True)
    tape = Tape(batch_dims=1)
    tape.cost(tape.sample(Bernoulli(logits=logits), LeaveOneOut(3)))
    loss = tape.surrogate(reduction=reduction)
    loss.backward()
    assert loss.item() == 0 and logits.grad is not None and logits.grad.shape == (0,)
