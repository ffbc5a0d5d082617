"""Graphs of several nodes: all pairs of estimators, chains, diamonds, costs in the middle, and the counter-example."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from stochastic_problems import B2, F2, S2_TRUTH, THETA, W2, coin, derivatives, no_variance, s1, s2, tensor, told
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Normal

from doxa.errors import ConfigError
from doxa.stochastic import (
    ARM,
    ARSM,
    GO,
    LAX,
    MAPO,
    REBAR,
    RELAX,
    VIMCO,
    DisARM,
    Enumerate,
    Estimator,
    FromGradient,
    ImportanceSampling,
    IndeCateR,
    LearnedBaseline,
    LeaveOneOut,
    MeasureValued,
    MovingAverage,
    RaoBlackwell,
    Reparameterise,
    Score,
    ScoreWithoutReplacement,
    SelfCritical,
    StochasticSumAndSample,
    SumAndSample,
    Tape,
    UnorderedSet,
    check_tape,
    magic_box,
)


def used_before() -> MovingAverage:
    estimator = MovingAverage()
    estimator.observe(Score().propose(s1(THETA), 1), tensor([0.6]))
    return estimator


ANY_ORDER: dict[str, Estimator] = {
    "enumerate": Enumerate(),
    "score": Score(baseline=0.7),
    "loo": LeaveOneOut(2),
    "critical": SelfCritical(),
    "importance": ImportanceSampling(Categorical(tensor([0.2, 0.5, 0.3]))),
    "sum A": SumAndSample(3, top=1, form="A"),
    "sum B": SumAndSample(3, top=1, form="B"),
    "random sum": StochasticSumAndSample(2, top=1),
    "memory": MAPO(1, 2),
    "set": UnorderedSet(2),
    "go": GO(),
    "rao-blackwell": RaoBlackwell(),
    "indecater": IndeCateR(),
    "learnt": LearnedBaseline(tensor(0.4)),
    "moving": used_before(),
    "lifted": FromGradient(lambda d, x, f: magic_box(d.log_prob(x)) * f, order=3),
}


@pytest.mark.parametrize("second", ANY_ORDER)
@pytest.mark.parametrize("first", ANY_ORDER)
def test_all_pairs_to_third_order(first: str, second: str) -> None:
    report = check_tape(s2(ANY_ORDER[first], ANY_ORDER[second]), THETA, order=3)
    assert report.enumerated and report.ok, str(report)
    assert report.estimate == pytest.approx(S2_TRUTH, abs=1e-5)


# Their proposals are continuous: tested on replicates.
REPLICATED: dict[str, Estimator] = {
    "relax": RELAX(lambda z: smooth(z).sum(-1)),
    "rebar": REBAR(lambda z: (z * tensor([1.0, -0.5, 2.0])).sum(-1) ** 2),
    "without replacement": ScoreWithoutReplacement(2),
}
BOTH = ANY_ORDER | REPLICATED


def replicated(first: str, second: str) -> None:
    model = s2(BOTH[first], BOTH[second])
    report = told(lambda order: check_tape(model, THETA, order, replicates=10_000), 3)
    assert (report.ok or no_variance(report, first, second)) and not report.enumerated, str(report)


@pytest.mark.parametrize(
    ("first", "second"),
    [*product(REPLICATED, REPLICATED), *product(REPLICATED, ["loo"]), *product(["loo"], REPLICATED)],
)
def test_pairs_with_continuous_proposals(first: str, second: str) -> None:
    replicated(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("first", REPLICATED)
@pytest.mark.parametrize("second", ANY_ORDER)
def test_all_pairs_with_continuous_proposals(first: str, second: str) -> None:
    replicated(first, second)
    replicated(second, first)


A, B = tensor([0.5, -0.8]), tensor([0.2, 0.6])
F = tensor([[1.0, -2.0], [0.7, 3.0]])


def two_coins(first: Estimator, second: Estimator) -> Callable[[Tape, Tensor], None]:
    def model(tape: Tape, theta: Tensor) -> None:
        a = tape.sample(coin(theta), first)
        i = a.long()
        b = tape.sample(Bernoulli(logits=A[i] * theta + B[i]), second)
        tape.cost(F[i, b.long()] * torch.cos(theta * (1 + 0.3 * a) - 0.2 * b) + 0.5 * theta**2 * a)

    return model


def smooth(z: Tensor) -> Tensor:
    return 0.5 * torch.tanh(z) + 0.2 * z**2


BINARY: dict[str, tuple[Estimator, int]] = {
    "relax": (RELAX(smooth), 3),
    "rebar": (REBAR(lambda z: (z - 0.3) ** 2), 3),
    "loo": (LeaveOneOut(2), 3),
    "arm": (ARM(), 1),
    "arsm": (ARSM(), 1),
    "disarm": (DisARM(), 1),
    "measure": (MeasureValued(), 1),
    "enumerate": (Enumerate(), 3),
}


@pytest.mark.parametrize(("first", "second"), list(product(BINARY, BINARY)))
def test_pairs_on_bernoullis(first: str, second: str) -> None:
    """Continuous noise cannot be listed: RELAX, REBAR and ARM are tested on replicates."""
    one, two = BINARY[first], BINARY[second]
    report = check_tape(two_coins(one[0], two[0]), THETA, order=min(one[1], two[1]), replicates=10_000)
    assert report.ok, str(report)
    assert report.enumerated != bool({first, second} & {"relax", "rebar", "arm", "arsm"})


GAUSSIAN: dict[str, Estimator] = {"lax": LAX(smooth), "path": Reparameterise(), "score": Score()}


@pytest.mark.parametrize(("first", "second"), list(product(GAUSSIAN, GAUSSIAN)))
def test_pairs_on_gaussians(first: str, second: str) -> None:
    def model(tape: Tape, theta: Tensor) -> None:
        x = tape.sample(Normal(0.7 * theta, torch.exp(0.3 * theta)), GAUSSIAN[first])
        y = tape.sample(Normal(theta * torch.sin(x), torch.exp(0.2 * theta)), GAUSSIAN[second])
        tape.cost(torch.cos(x - y) * theta + 0.3 * y**2)

    torch.manual_seed(0)
    report = told(lambda order: check_tape(model, THETA, order, replicates=20_000), 3)
    assert report.kind == "no bias found", str(report)


def chain(tape: Tape, theta: Tensor, estimator: Estimator) -> None:
    """Costs before, between and after the nodes; the last node adds no axis."""
    tape.cost(theta**2)
    a = tape.sample(s1(theta), estimator)
    tape.cost(a * torch.cos(theta))
    b = tape.sample(Bernoulli(logits=theta * (1 + a)), Score())
    tape.cost(b * theta + a)
    c = tape.sample(Bernoulli(logits=theta - b), Score(), n=None)
    tape.cost(a * b * c + theta * c)


def meeting(tape: Tape, theta: Tensor, estimator: Estimator) -> None:
    """Independent nodes that meet in a cost."""
    a = tape.sample(s1(theta), estimator)
    b = tape.sample(s1(-theta), LeaveOneOut(2))
    tape.cost(torch.cos(theta * a) * (1 + b))
    tape.cost(theta * b.double())


def fork(tape: Tape, theta: Tensor, estimator: Estimator) -> None:
    """One node, two that depend on it, each with a cost of its own; one of the two has the estimator too."""
    root = tape.sample(coin(theta), LeaveOneOut(2))
    left = tape.sample(s1(theta * (1 + root)), estimator, deps=[root])
    right = tape.sample(Bernoulli(logits=theta * root - 1), Score(baseline=0.3), deps=[root])
    tape.cost(torch.cos(theta * left), deps=[left])
    tape.cost(right * theta**2 + root, deps=[right])


@pytest.mark.parametrize("name", ANY_ORDER)
@pytest.mark.parametrize("shape", [chain, meeting, fork], ids=lambda shape: shape.__name__)
def test_every_estimator_in_every_shape(shape: Callable[[Tape, Tensor, Estimator], None], name: str) -> None:
    report = check_tape(lambda tape, theta: shape(tape, theta, ANY_ORDER[name]), THETA, order=2)
    assert report.enumerated and report.ok, str(report)


def test_a_diamond() -> None:
    def model(tape: Tape, theta: Tensor) -> None:
        root = tape.sample(coin(theta), LeaveOneOut(2))
        left = tape.sample(Bernoulli(logits=theta + root), Score(baseline=0.3))
        right = tape.sample(Bernoulli(logits=theta * root - 1), Score(), n=None, deps=[root])
        tape.cost(left * right * torch.cos(theta) + root, deps=[left, right])
        tape.cost(right * theta**2, deps=[right])

    report = check_tape(model, THETA, order=2)
    assert report.enumerated and report.ok, str(report)


def test_deps_that_leave_out_an_influence_bias_the_gradient() -> None:
    def model(tape: Tape, theta: Tensor) -> None:
        a = tape.sample(coin(theta), LeaveOneOut(2))
        b = tape.sample(coin(-theta), LeaveOneOut(2))
        tape.cost(a * b, deps=[b])

    assert check_tape(model, THETA).order == 0


def test_a_stray_detach_is_found() -> None:
    def model(tape: Tape, theta: Tensor) -> None:
        a = tape.sample(coin(theta), LeaveOneOut(2))
        b = tape.sample(Bernoulli(logits=(theta * (1 + a)).detach()), LeaveOneOut(2))
        tape.cost(a + 2 * b)

    report = check_tape(model, THETA)
    assert report.order == 0 and "BIASED at order 1" in str(report)


def test_baselines_must_see_all_earlier_nodes() -> None:
    """The counter-example to influence-only baselines: two independent nodes, one cost, second derivative.

    With the box of *all* preceding gradient functions the control variate has the cross term −2 ∇l₁ ∇l₂ b₂; with the
    box of the nodes that influence the second one it has none, and the cross term keeps its variance.
    """
    theta = THETA.clone().requires_grad_()
    tape = Tape()
    a = tape.sample(coin(theta), Score())
    b = tape.sample(coin(-0.5 * theta), Score(baseline=2.0))
    tape.cost(torch.zeros(1, 1, dtype=torch.float64) * a * b)  # only the control variate remains
    loss = tape.surrogate(order=2)
    (slope,) = torch.autograd.grad(loss, theta, create_graph=True)
    (second,) = torch.autograd.grad(slope, theta)
    l1, l2 = coin(theta).log_prob(a).sum(), coin(-0.5 * theta).log_prob(b).sum()
    (d1,), (d2,) = (torch.autograd.grad(l, theta, create_graph=True) for l in (l1, l2))
    (dd2,) = torch.autograd.grad(d2, theta, retain_graph=True)
    influence_only = -(dd2 + d2**2) * 2.0
    assert float(second) == pytest.approx(float((influence_only - 2 * d1 * d2 * 2.0).detach()))
    assert abs(float((second - influence_only).detach())) > 1e-3


def test_control_variates_see_no_weights_of_later_nodes() -> None:
    """Multiplying a control variate by the inner weights is wrong when these do not sum to a constant (errata 4.1).

    Score function with a baseline, then the most probable value with its live probability and one draw from the others
    with weight ⊥p(∉S) and l = log p: unbiased, but the derivative of its weights is not zero on average.
    """
    theta = THETA.clone().requires_grad_()
    d1 = s1(theta)
    inside = outside = torch.zeros((), dtype=torch.float64)
    for x in range(3):
        l1 = d1.log_prob(torch.tensor(x))
        p2 = Categorical(logits=theta * W2[x] + B2[x])
        top = int(p2.probs.argmax())
        a1 = (1 - magic_box(l1)) * 0.7
        rest = (1 - p2.probs[top]).detach()
        for y in range(3):
            if y == top:
                continue
            chance = (l1.exp() * p2.probs[y] / rest).detach()
            weighted = torch.zeros((), dtype=torch.float64)
            total = torch.zeros((), dtype=torch.float64)
            for k, w, l2 in [(top, p2.probs[top], 0 * l1), (y, rest, p2.log_prob(torch.tensor(y)))]:
                f = F2[x, k] * torch.cos(theta * (1 + 0.3 * x) - 0.2 * k) + 0.5 * theta**2 * x
                weighted = weighted + w * magic_box(l1 + l2) * f
                total = total + w
            outside = outside + chance * (a1 + weighted)
            inside = inside + chance * (total * a1 + weighted)
    assert derivatives(outside, theta, 2) == pytest.approx(S2_TRUTH[:3], abs=1e-5)
    assert derivatives(inside, theta, 2)[2] != pytest.approx(S2_TRUTH[2], abs=1e-3)


def test_vimco_over_two_layers() -> None:
    """Later nodes without an axis join the joint draw; compared with the expectation over all pairs of paths."""

    def model(tape: Tape, theta: Tensor) -> None:
        a = tape.sample(coin(theta), VIMCO(2))
        b = tape.sample(Bernoulli(logits=theta * (1 - 2 * a)), Score(), n=None)
        tape.cost(a * torch.cos(theta) + 2 * b)

    def expected(theta: Tensor) -> Tensor:
        paths = [(a, b) for a in (0.0, 1.0) for b in (0.0, 1.0)]
        total = torch.zeros((), dtype=torch.float64)
        for one, two in product(paths, paths):
            chance = torch.ones((), dtype=torch.float64)
            costs = []
            for a, b in (one, two):
                x, y = tensor(a), tensor(b)
                chance = (
                    chance * coin(theta).log_prob(x).exp() * Bernoulli(logits=theta * (1 - 2 * x)).log_prob(y).exp()
                )
                costs.append(x * torch.cos(theta) + 2 * y)
            total = total - chance * (torch.logsumexp(-torch.stack(costs), 0) - torch.log(tensor(2.0)))
        return total

    report = check_tape(model, THETA, order=2, expected=expected)
    assert report.enumerated and report.ok, str(report)


def test_after_a_joint_draw_only_plain_nodes() -> None:
    tape = Tape()
    a = tape.sample(coin(THETA), VIMCO(2))
    b = tape.sample(Bernoulli(logits=a), LeaveOneOut(2))
    tape.cost(a + b)
    with pytest.raises(ConfigError, match="comes after the joint draw"):
        tape.surrogate()


def test_one_estimator_over_several_nodes() -> None:
    for estimator in (LeaveOneOut(2), Enumerate(), UnorderedSet(2), SumAndSample(3, top=1)):

        def independent(tape: Tape, theta: Tensor, estimator: Estimator = estimator) -> None:
            a, b = tape.sample_joint([coin(theta), s1(theta)], estimator)
            tape.cost(a * torch.cos(theta * b) + theta * b)

        report = check_tape(independent, THETA, order=2)
        assert report.enumerated and report.ok, f"{estimator}: {report}"
    for estimator in (LeaveOneOut(2), Enumerate()):

        def dependent(tape: Tape, theta: Tensor, estimator: Estimator = estimator) -> None:
            a, b = tape.sample_joint([coin(theta), lambda a: Bernoulli(logits=theta * (1 + a))], estimator)
            tape.cost(a * torch.cos(theta * b) + theta * b)

        report = check_tape(dependent, THETA, order=3)
        assert report.enumerated and report.ok, f"{estimator}: {report}"
