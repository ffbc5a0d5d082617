"""Mistakes made elsewhere, or printed, each as a wrong estimator that the checks must catch beside the right one."""

from __future__ import annotations

import pytest
import torch
from stochastic_problems import THETA, coin, coin_cost, s1, s1_cost, s2, tensor
from torch import Tensor
from torch.distributions import Bernoulli, Independent

from doxa.stochastic import (
    ARM,
    ARSM,
    GO,
    REBAR,
    RELAX,
    SPSA,
    DisARM,
    Draw,
    Estimator,
    LeaveOneOut,
    MeasureValued,
    RaoBlackwell,
    Score,
    StochasticSumAndSample,
    SumAndSample,
    Tape,
    UnorderedSet,
    check_tape,
    check_unbiased,
    magic_box,
)


def orders(estimator: Estimator, problem: str = "s1", order: int = 2) -> int:
    make, cost = (s1, s1_cost) if problem == "s1" else (coin, coin_cost)
    torch.manual_seed(0)
    report = check_unbiased(estimator, make, cost, order=order, at=THETA, replicates=100_000)
    assert report.kind != "undecided", str(report)
    return report.order


class LiveBaseline(LeaveOneOut):
    """Baselines from costs that are not detached: wrong second derivatives when the cost depends on the parameters."""

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        theta = draw.distribution.logits.mean()  # stands for the pathwise dependence of a live cost
        live = cost * magic_box(theta)
        return (1 - box) * ((cost.sum(0) - live) / (draw.m - 1))


class SamePlace(LeaveOneOut):
    """The printed index: the cost of the sample itself as its baseline."""

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        return (1 - box) * cost


def test_second_derivatives_with_baselines() -> None:
    assert orders(LeaveOneOut(2), order=3) == 3
    assert orders(Score(baseline=1.3), order=3) == 3
    assert orders(LiveBaseline(2)) == 1
    assert orders(SamePlace(2)) == 0
    for estimator in (LeaveOneOut(2), Score(baseline=1.3)):
        assert check_tape(s2(estimator, estimator), THETA, order=2).ok


class PrintedRelax(RELAX):
    """The printed control variate, −c(z̃) + (2 − □(l)) ⊥c(z̃): misses 2 ∇l ∇c(z̃) in the second derivative."""

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        c, given = self.function(draw.notes["z"]), self.function(draw.notes["other"])
        return c - c.detach() - given + (2 - box) * given.detach()


class UnconditionalRelax(RELAX):
    """Relaxed samples of Bernoulli variables that ignore what was drawn."""

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        c = self.function(draw.notes["z"])
        return c - c.detach() - box * c + c.detach()


def smooth(z: Tensor) -> Tensor:
    return 0.5 * torch.tanh(z) + 0.2 * z**2


def test_relax_and_rebar_on_bernoullis() -> None:
    assert orders(RELAX(smooth), "coin", 3) == 3
    assert orders(REBAR(lambda z: (z - 0.3) ** 2), "coin", 3) == 3
    assert orders(PrintedRelax(smooth), "coin") == 1
    assert orders(UnconditionalRelax(smooth), "coin") == 0
    # Far out, where 1 − p and logit lose all digits if computed directly.
    logits = torch.tensor([-40.0, 40.0], requires_grad=True)
    tape = Tape(batch_dims=1)
    b = tape.sample(Bernoulli(logits=logits), RELAX(smooth, n=64))
    tape.cost(b)
    assert b.mean(0).tolist() == [0.0, 1.0]
    notes = tape.nodes[0].draw.notes
    assert (notes["other"][:, 0] < 0).all() and (notes["other"][:, 1] > 0).all()
    assert torch.isfinite(torch.autograd.grad(tape.surrogate(), logits)[0]).all()


class DoublingArm(ARM):
    """The printed control variate □(1 − l) …: doubles the value."""

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        right = super().control(draw, box, cost)
        n = draw.m // 2
        extra = torch.zeros_like(right)
        extra[:n] = 0.5 * (cost[:n] + cost[n:])
        return right + extra


def test_disarm_has_a_gradient_and_arm_the_right_value() -> None:
    logits = torch.full((2000, 3), 0.5, dtype=torch.float64, requires_grad=True)
    tape = Tape(batch_dims=1)
    b = tape.sample(Independent(Bernoulli(logits=logits), 1), DisARM())
    tape.cost((b - 0.1).square().sum(-1))
    (slope,) = torch.autograd.grad(tape.surrogate(reduction="sum"), logits)
    p = torch.sigmoid(tensor(0.5))
    assert float(slope.abs().max()) > 0
    assert slope.mean(0).tolist() == pytest.approx([float(p * (1 - p) * 0.8)] * 3, abs=0.04)
    assert orders(DisARM(), "coin", 1) == 1
    assert orders(ARM(), "coin", 1) == 1
    assert orders(DoublingArm(), "coin", 1) == -1


class TwiceTheSame(UnorderedSet):
    """The probability of drawing a value twice read as 0 instead of leaving the ratio at 1."""

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        ratio = draw.notes["log_ratio"].exp()
        own = torch.eye(draw.m, dtype=torch.bool).reshape(draw.m, *(1,) * (ratio.dim() - 2), draw.m)
        b = (torch.where(own, 0.0, ratio) * cost.movedim(0, -1).unsqueeze(0)).sum(-1)
        return (1 - box) * b


def test_unordered_sets() -> None:
    assert orders(UnorderedSet(2), order=3) == 3
    assert orders(TwiceTheSame(2)) == 0


class LiveWithLogP(SumAndSample):
    """Live weights everywhere and l = log p on the draws: counts the derivative of p(∉S) twice."""

    def gradient(self, draw: Draw) -> Tensor:
        log_p = draw.distribution.log_prob(draw.value)
        return torch.cat([torch.zeros_like(log_p[: self.summed]), log_p[self.summed :]])


class SilentEnumerated(SumAndSample):
    """Detached weights and no gradient function on the enumerated values."""

    def gradient(self, draw: Draw) -> Tensor:
        log_p = draw.distribution.log_prob(draw.value)
        return torch.cat([torch.zeros_like(log_p[: self.summed]), log_p[self.summed :]])


class BaselineOnDraws(SumAndSample):
    """Form A with a baseline on the draws only."""

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        right = super().control(draw, box, cost)
        assert right is not None
        return torch.cat([torch.zeros_like(right[: self.summed]), right[self.summed :]])


def test_sum_and_sample() -> None:
    for form in ("A", "B"):
        assert orders(SumAndSample(3, top=1, form=form), order=3) == 3  # type: ignore[arg-type]
    assert orders(LiveWithLogP(3, top=1, form="B", baseline=False)) == 0
    assert orders(SilentEnumerated(3, top=1, form="A", baseline=False)) == 0
    assert orders(BaselineOnDraws(3, top=1, form="A")) == 0
    assert orders(BaselineOnDraws(3, top=1, form="B"), order=3) == 3  # where l = 0 on S anyway


class BoxedCdf(GO):
    """□(P) − 1 instead of P − ⊥P: wrong from the second derivative on."""

    def term(self, draw: Draw, main: Tensor, cost: Tensor, extra: Tensor) -> tuple[Tensor, Tensor | None]:
        h, score = super().term(draw, main, cost, extra)
        return magic_box(h), score


def test_announced_and_missing_estimators_are_here() -> None:
    assert orders(GO(), order=3) == 3
    assert orders(BoxedCdf()) == 1
    assert orders(MeasureValued(), order=1) == 1
    report = check_unbiased(SPSA(step=0.01), s1, s1_cost, order=1, at=THETA)
    assert report.estimate == pytest.approx(report.truth, abs=1e-3)


@pytest.mark.parametrize(
    "estimator", [ARSM(), StochasticSumAndSample(2), SumAndSample(2), RaoBlackwell(), GO(), UnorderedSet(2), Score(2)]
)
@pytest.mark.parametrize("width", [(), (3,)])
def test_batches_may_be_empty(estimator: Estimator, width: tuple[int, ...]) -> None:
    logits = torch.zeros(0, *width, requires_grad=True)
    tape = Tape(batch_dims=1)
    drawn = tape.sample(Independent(Bernoulli(logits=logits), len(width)), estimator)
    tape.cost(drawn.sum(-1) if width else drawn)
    tape.surrogate().sum().backward()
    assert logits.grad is not None and logits.grad.shape == logits.shape
