"""The Bernoulli toy, E[Σ (x − t)²] over three variables of logit 0.5: the variances of the gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from stochastic_problems import THETA, s2, tensor
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Independent

from doxa.errors import ConfigError
from doxa.stochastic import (
    ARM,
    ARMS,
    GO,
    REBAR,
    DisARM,
    Enumerate,
    Estimator,
    GumbelSoftmax,
    IndeCateR,
    LeaveOneOut,
    MeasureValued,
    MovingAverage,
    RaoBlackwell,
    Reparameterise,
    Score,
    SumAndSample,
    Tape,
    UnorderedSet,
    magic_box,
    profile_variance,
)
from doxa.stochastic._truth import WorldTape

COUNT = 40_000


def gradients(make: Callable[[Callable[[Tensor], Tensor]], Estimator], t: float) -> Tensor:
    def cost(x: Tensor) -> Tensor:
        return (x - t).square().sum(-1)

    logits = torch.full((COUNT, 3), 0.5, dtype=torch.float64, requires_grad=True)
    tape = Tape(batch_dims=1)
    x = tape.sample(Independent(Bernoulli(logits=logits), 1), make(cost))
    tape.cost(cost(x))
    (found,) = torch.autograd.grad(tape.surrogate(reduction="sum"), logits)
    return found


TABLE: dict[str, tuple[Callable[[Callable[[Tensor], Tensor]], Estimator], float, float]] = {
    "score": (lambda f: Score(), 1.3e-1, 4.8e-1),
    "loo@2": (lambda f: LeaveOneOut(2), 7.2e-7, 1.1e-1),
    "loo@5": (lambda f: LeaveOneOut(5), 1.5e-7, 2.3e-2),
    "arm": (lambda f: ARM(), 6.1e-7, 9.6e-2),
    "disarm": (lambda f: DisARM(), 5.1e-7, 8.1e-2),
    "rebar": (lambda f: REBAR(f, temperature=0.5), 5.8e-2, 8.5e-2),
    "unordered@5": (lambda f: UnorderedSet(5), 5.6e-8, 8.9e-3),
}


@pytest.mark.parametrize("name", TABLE)
def test_variance_table(name: str) -> None:
    make, near, far = TABLE[name]
    p = torch.sigmoid(tensor(0.5))
    for t, expected in ((0.499, near), (0.1, far)):
        found = gradients(make, t)
        # Two digits are printed: 5 % of rounding, and a few per cent of sampling error in a variance.
        assert float(found.var(0).mean()) == pytest.approx(expected, rel=0.1)
        truth = float(p * (1 - p) * (1 - 2 * t))
        assert abs(float(found.mean()) - truth) < 5 * float(found.std()) / (3 * COUNT) ** 0.5 + 1e-12


@pytest.mark.parametrize("make", [MeasureValued, RaoBlackwell, IndeCateR])
def test_no_variance_where_the_cost_is_a_sum(make: Callable[[], Estimator]) -> None:
    """0 in the table: measure-valued derivatives, and GO with each factor's own value summed out (RaoBlackwell)."""
    p = torch.sigmoid(tensor(0.5))
    for t in (0.499, 0.1):
        found = gradients(lambda f: make(), t)
        assert float(found.var(0).max()) < 1e-20
        torch.testing.assert_close(found[0], (p * (1 - p) * (1 - 2 * t)).expand(3))


def test_go_has_the_variance_of_its_one_random_bit() -> None:
    """Only x = 0 has a successor: the gradient is (f(0) − f(1)) ∇P(0) / p(0) with probability p(0), and 0 otherwise."""
    p0 = torch.sigmoid(tensor(-0.5))
    for t in (0.499, 0.1):
        size = (1 - 2 * t) * p0 * (1 - p0) / p0
        expected = float(size**2 * p0 * (1 - p0))
        assert float(gradients(lambda f: GO(), t).var(0).mean()) == pytest.approx(expected, rel=0.1)


def test_go_averaged_over_a_factor_is_rao_blackwell() -> None:
    """Two factors of three values and a cost that does not separate, for all nine samples."""
    logits = tensor([[0.3, -0.6, 0.2], [0.9, 0.1, -0.4]])
    table = tensor([[1.0, -2.0, 0.5], [0.7, 3.0, -1.2], [2.2, -0.4, 1.6]])
    index = torch.cartesian_prod(torch.arange(3), torch.arange(3))

    def gradients_of(estimator: GO | RaoBlackwell) -> Tensor:
        wide = logits.expand(9, 2, 3).clone().requires_grad_()
        draw = estimator.complete(Independent(Categorical(logits=wide), 1), index.unsqueeze(0))
        cost, box = table[draw.value[..., 0], draw.value[..., 1]], magic_box(estimator.gradient(draw))
        weight = estimator.weight(draw)
        assert weight is not None
        surrogate = (weight * (box * cost + estimator.control(draw, box, cost))).sum()
        return torch.autograd.grad(surrogate, wide)[0].reshape(3, 3, 2, 3)  # values of both factors, factor, logit

    go, whole = gradients_of(GO()), gradients_of(RaoBlackwell())
    p = logits.softmax(-1)
    torch.testing.assert_close(torch.einsum("a,abl->bl", p[0], go[:, :, 0]), whole[0, :, 0])
    torch.testing.assert_close(torch.einsum("b,abl->al", p[1], go[:, :, 1]), whole[:, 0, 1])
    assert not torch.allclose(go, whole)


def test_more_antithetic_samples_are_better_than_independent_ones() -> None:
    loo, arms = (float(gradients(lambda f, e=e: e, 0.1).var(0).mean()) for e in (LeaveOneOut(4), ARMS(4)))
    assert arms < loo


def test_profile_recommends_and_plots(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    logits = torch.full((20, 3), 0.5, requires_grad=True)

    def model(tape: Tape, estimator: Estimator) -> None:
        x = tape.sample(Independent(Bernoulli(logits=logits), 1), estimator)
        tape.cost((x - 0.1).square().sum(-1) + 10)

    candidates = {
        "score": Score(4),
        "loo": LeaveOneOut(4),
        "gumbel": GumbelSoftmax(0.5),
        "path": Reparameterise(),
    }
    profile = profile_variance(model, candidates, [logits], batch_dims=1, replicates=40)
    assert profile.recommendation == "loo"
    text = str(profile)
    assert "recommended" in text and "biased" in text and "refused: Independent cannot be reparameterised" in text
    figure = profile.plot(tmp_path / "profile.png")
    assert (tmp_path / "profile.png").stat().st_size > 1000
    assert len(figure.axes[0].texts) == 3
    with pytest.raises(ConfigError, match="at least 2"):
        profile_variance(model, candidates, [logits], batch_dims=1, replicates=1)
    with pytest.raises(ConfigError, match="at least 3"):
        profile_variance(model, candidates, [logits], batch_dims=1, replicates=2, by_node=True)
    with pytest.raises(ConfigError, match="no unbiased estimator"):
        _ = profile_variance(model, [GumbelSoftmax()], [logits], batch_dims=1, replicates=2).recommendation


BATCH = 100


def enumerated_shares(first: Estimator, second: Estimator) -> list[float]:
    """E Var(E[g | z_1..z_i] | z_1..z_{i−1}) of both nodes of S2, over everything that they can draw."""
    theta = THETA.clone().requires_grad_()
    worlds = WorldTape(2)
    s2(first, second)(worlds, theta)
    total = worlds._assembly().total()
    assert worlds.probability is not None
    p = worlds.probability.detach()  # (draws of the second node, draws of the first)
    total = total.expand(p.shape)
    g = torch.stack([torch.autograd.grad(x, theta, retain_graph=True)[0] for x in total.reshape(-1)]).reshape(p.shape)
    chance = p.sum(0)
    given = (p * g).sum(0) / chance
    mean = (chance * given).sum()
    return [float((chance * (given - mean).square()).sum()), float((p * (g - given).square()).sum())]


PAIRS: dict[str, tuple[Estimator, Estimator]] = {
    "scores": (Score(), Score()),
    "leave one out, then a score": (LeaveOneOut(2), Score()),
    "a baseline, then two": (Score(baseline=0.7), LeaveOneOut(2)),
    "sum and sample": (SumAndSample(2, top=1), Score()),
    "nothing, then a score": (Enumerate(), Score()),
    "a score, then nothing": (Score(), Enumerate()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_shares_of_the_nodes_against_enumeration(name: str) -> None:
    pair = PAIRS[name]
    expected = enumerated_shares(*pair)
    theta = THETA.expand(BATCH).clone().requires_grad_()  # the loss is a mean: each has 1/BATCH of the gradient
    torch.manual_seed(0)
    profile = profile_variance(
        lambda tape, _: s2(*pair)(tape, theta), [Score()], [theta], batch_dims=1, replicates=25, by_node=True
    )
    (row,) = profile.rows
    for share, truth in zip(row.nodes, expected, strict=True):
        assert abs(BATCH * share.variance - truth) <= 5 * BATCH * share.error + 1e-12, f"{share}, expected {truth}"
        assert BATCH * share.error <= 0.1 * sum(expected)
    if name.startswith("nothing"):
        assert abs(expected[0]) < 1e-20 and abs(row.nodes[0].variance) < 5 * row.nodes[0].error
    if name.endswith("nothing"):
        assert row.nodes[1].variance < 1e-20 and str(row.nodes[1]) in str(profile)
    # All of the variance is somebody's.
    assert BATCH * row.variance == pytest.approx(sum(expected), rel=0.15)


def test_shares_of_three_coins_in_closed_form() -> None:
    """Separate costs c_i z_i with one logit each: g_i = c_i z_i (z_i − p_i), whatever the others do."""
    start, weights = tensor([0.3, -0.8, 1.2]), (1.0, 4.0, 2.0)
    logits = start.unsqueeze(-1).expand(3, BATCH).clone().requires_grad_()

    def model(tape: Tape, estimator: Estimator) -> None:
        for i, c in enumerate(weights):
            z = tape.sample(Bernoulli(logits=logits[i]), estimator, deps=[])
            tape.cost(c * z, deps=[z])

    torch.manual_seed(0)
    state = torch.get_rng_state()
    (row,) = profile_variance(model, [Score()], [logits], batch_dims=1, replicates=20, by_node=True).rows
    assert not torch.equal(state, torch.get_rng_state())  # other calls have other samples
    for share, c, q in zip(row.nodes, weights, torch.sigmoid(start), strict=True):
        truth = float(c**2 * (1 - q) ** 2 * q * (1 - q)) / BATCH
        assert abs(share.variance - truth) <= 5 * share.error, f"{share}, expected {truth}"
    average = MovingAverage()
    profile_variance(model, [average], [logits], batch_dims=1, replicates=5, by_node=True)
    assert int(average.steps) == 5 * 3  # what is drawn again is not learnt from


def test_shares_need_the_same_graph_every_time() -> None:
    logit, sizes = tensor(0.3).requires_grad_(), iter(range(1, 9))

    def growing(tape: Tape, estimator: Estimator) -> None:
        for _ in range(next(sizes)):
            tape.cost(tape.sample(Bernoulli(logits=logit), estimator))

    with pytest.raises(ConfigError, match="sampled 1 nodes and then 2"):
        profile_variance(growing, [Score()], [logit], replicates=3, by_node=True)
