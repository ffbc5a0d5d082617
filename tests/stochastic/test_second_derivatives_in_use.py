"""The two examples that need second derivatives, held against enumeration and finite differences."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest
import torch
from stochastic_problems import tensor
from torch import Tensor

from doxa.stochastic import Enumerate, LeaveOneOut

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with torch.random.fork_rng(devices=[]):
        spec.loader.exec_module(module)
    return module


NEWTON, META = load("newton"), load("meta_learning")


def central(function: Callable[[Tensor], Tensor], at: Tensor, step: float = 1e-4) -> Tensor:
    """Derivatives with respect to each entry, the new axis last, by central differences."""
    moves = step * torch.eye(len(at), dtype=at.dtype)
    return torch.stack([(function(at + m) - function(at - m)) / (2 * step) for m in moves], -1)


THETA = tensor([0.3, -0.8, 0.5, 0.1, -0.2, 0.9])


def summed(theta: Tensor) -> Tensor:
    """J by a loop over the 64 settings."""
    total = NEWTON.PRICE / 2 * theta.square().sum()
    p = torch.sigmoid(theta)
    for setting in product((0.0, 1.0), repeat=6):
        x = tensor(setting)
        total = total + torch.where(x > 0, p, 1 - p).prod() * (x @ NEWTON.Q @ x + NEWTON.B @ x)
    return total


def test_newton_sees_the_true_gradient_and_hessian() -> None:
    gradient, hessian = NEWTON.derivatives(THETA, Enumerate())
    torch.testing.assert_close(gradient, central(summed, THETA), atol=1e-7, rtol=0)
    slopes = central(lambda t: NEWTON.derivatives(t, Enumerate())[0], THETA)
    torch.testing.assert_close(hessian, slopes, atol=1e-6, rtol=0)
    drawn = [NEWTON.derivatives(THETA, LeaveOneOut(500)) for _ in range(40)]
    for found, truth in zip(zip(*drawn, strict=True), (gradient, hessian), strict=True):
        values = torch.stack(found)
        error = values.std(0) / len(values) ** 0.5
        assert ((values.mean(0) - truth).abs() < 5 * error).all()


def test_newton_finds_the_minimum_sooner() -> None:
    best = NEWTON.minimum()
    gradient, hessian = NEWTON.derivatives(best, Enumerate())
    assert float(gradient.abs().max()) < 1e-9 and float(torch.linalg.eigvalsh(hessian).min()) > 0
    samples = LeaveOneOut(5000)
    one = two = torch.zeros(6, dtype=torch.float64)
    for _ in range(4):
        one, two = NEWTON.newton(one, samples), NEWTON.descent(two, samples)
    assert float((one - best).norm()) < 0.2 < 0.35 < float((two - best).norm())


START = tensor([0.5, -0.5, 0.0, 0.2])


def adapted(theta: Tensor) -> Tensor:
    """Σ J(θ'), with the inner gradient written out: ∇J = p (c − p·c)."""
    p = theta.softmax(-1)
    slope = p * (META.COSTS - (META.COSTS @ p).unsqueeze(-1))
    return ((theta - META.RATE * slope).softmax(-1) * META.COSTS).sum()


def test_only_the_any_order_surrogate_has_the_right_meta_gradient() -> None:
    truth = central(adapted, START)
    torch.testing.assert_close(META.meta_gradient(START, META.exact), truth, atol=1e-6, rtol=0)

    def mean_and_error(loss: Callable[[Tensor, int], Tensor]) -> tuple[Tensor, Tensor]:
        found = torch.stack([META.meta_gradient(START, lambda theta: loss(theta, 4000)) for _ in range(60)])
        return found.mean(0), found.std(0) / 60**0.5

    right, error = mean_and_error(META.any_order)
    assert ((right - truth).abs() < 5 * error + 0.01).all()  # the inner step is an average: a bias of O(1/n) remains
    wrong, error = mean_and_error(META.first_order_only)
    assert float(((wrong - truth).abs() / error).max()) > 50


def test_the_wrong_surrogate_misses_one_term_of_the_hessian() -> None:
    """Its second derivative is E[c ∇² log p] = −(diag p − p pᵀ) E[c]; the truth has E[c ∇log p ∇log pᵀ] more."""
    theta = START.expand(3, 4).clone().requires_grad_()

    def second(loss: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(loss, theta, create_graph=True)
        return torch.stack([torch.autograd.grad(slope[:, i].sum(), theta, retain_graph=True)[0] for i in range(4)], 1)

    p = START.softmax(-1)
    fisher = torch.diag(p) - torch.outer(p, p)
    lacking = torch.einsum("x,tx,xi,xj->tij", p, META.COSTS, torch.eye(4) - p, torch.eye(4) - p)
    wrong = -fisher * (META.COSTS @ p).reshape(3, 1, 1)
    torch.testing.assert_close(second(META.exact(theta)), wrong + lacking)
    n = 100_000
    torch.testing.assert_close(second(META.first_order_only(theta, n)), wrong, atol=0.05, rtol=0)
    torch.testing.assert_close(second(META.any_order(theta, n)), wrong + lacking, atol=0.1, rtol=0)


def test_learning_with_the_wrong_one_makes_it_worse() -> None:
    def learn(loss: Callable[[Tensor], Tensor]) -> float:
        theta = START
        for _ in range(60):
            theta = theta - 0.1 * META.meta_gradient(theta, loss)
        return float(META.after_adapting(theta))

    before, truth = META.after_adapting(START), learn(META.exact)
    assert truth < before - 0.3
    assert learn(lambda theta: META.any_order(theta, 500)) == pytest.approx(truth, abs=0.05)
    assert learn(lambda theta: META.first_order_only(theta, 500)) > before
