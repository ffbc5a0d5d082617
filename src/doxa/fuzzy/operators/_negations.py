"""Fuzzy negations: decreasing functions N with N(1) = 0 and N(N(x)) ≥ x (Chapter 2, "Fuzzy Negation")."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import root, truth
from doxa.fuzzy.operators._parameters import Parameter, bounds, current, one_side, require


class Negation(ABC):
    """A fuzzy negation: ``N(a)`` elementwise.

    ``strong`` (N(N(a)) = a) and ``strict`` (strictly decreasing and continuous) are found out by trying, so a
    negation of your own has them too.

    >>> [(type(n).__name__, n.strict, n.strong) for n in (StandardNegation(), IntuitionisticNegation())]
    [('StandardNegation', True, True), ('IntuitionisticNegation', False, False)]
    """

    @abstractmethod
    def __call__(self, a: Tensor) -> Tensor:
        """The truth of ¬a."""

    @property
    def strong(self) -> bool:
        """Whether N(N(a)) = a, tried on 65 points."""
        with torch.no_grad():
            grid = torch.linspace(0, 1, 65, dtype=torch.float64)
            # A root near 0 doubles the digits lost, hence the tolerance.
            return bool(torch.allclose(self(self(grid)), grid, atol=1e-6))

    @property
    def strict(self) -> bool:
        """Whether N decreases strictly and has no jump, tried on 65 points.

        A strong negation is a decreasing bijection, hence continuous; otherwise a jump is looked for by bisection.
        """
        with torch.enable_grad():
            grid = torch.linspace(0, 1, 65, dtype=torch.float64)[1:-1].requires_grad_()
            value = self(grid)
            slope = torch.autograd.grad(value.sum(), grid)[0] if value.requires_grad else torch.zeros_like(grid)
        ends = torch.linspace(0, 1, 65, dtype=torch.float64)
        return bool((slope < 0).all()) and (self.strong or largest_jump(self, ends[:-1], ends[1:]) < 0.05)


@dataclass(frozen=True)
class StandardNegation(Negation):
    """N(a) = 1 - a, the classical negation that the dissertation uses throughout.

    >>> StandardNegation()(torch.tensor([0.0, 0.25]))
    tensor([1.0000, 0.7500])
    """

    def __call__(self, a: Tensor) -> Tensor:
        return 1 - truth(a)


@dataclass(frozen=True)
class SugenoNegation(Negation):
    """N(a) = (1 - a)/(1 + λ a), λ > -1; λ = 0 is the standard negation.

    >>> SugenoNegation(1.0)(torch.tensor(0.5))
    tensor(0.3333)
    """

    lam: Parameter

    def __post_init__(self) -> None:
        require("the λ of a Sugeno negation", self.lam, -1)

    def __call__(self, a: Tensor) -> Tensor:
        a = truth(a)
        return (1 - a) / ((1 - a) + (1 + current(self.lam)) * a)


@dataclass(frozen=True)
class YagerNegation(Negation):
    """N(a) = (1 - a^w)^(1/w), w > 0; w = 1 is the standard negation.

    Its derivative is singular at 1 (w > 1) or at 0 (w < 1) and capped there.

    >>> YagerNegation(2.0)(torch.tensor(0.6))
    tensor(0.8000)
    """

    w: Parameter
    eps: float | None = None

    def __post_init__(self) -> None:
        require("the w of a Yager negation", self.w, 0)
        one_side("the w of a Yager negation", self.w)

    def __call__(self, a: Tensor) -> Tensor:
        a, w = truth(a), current(self.w)
        if bounds(self.w)[0] >= 1:
            return root((1 - a.pow(w)).clamp_min(0), 1 / w, self.eps)
        return (1 - root(a, w, self.eps)).clamp_min(0).pow(1 / w)


@dataclass(frozen=True)
class IntuitionisticNegation(Negation):
    """N(0) = 1 and N(a) = 0 for a > 0: the residuum of Gödel and of the product with 0. Its derivative is 0.

    >>> IntuitionisticNegation()(torch.tensor([0.0, 0.25]))
    tensor([1., 0.])
    """

    def __call__(self, a: Tensor) -> Tensor:
        a = truth(a)
        # a * 0 keeps the result in the graph, so that a loss made of it alone can still be differentiated.
        return (a <= 0) + a * 0


STANDARD = StandardNegation()


@torch.no_grad()
def largest_jump(f: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> float:
    """The largest change of f between neighbouring floats, looked for in every interval [low, high] at once.

    Each interval is halved towards the half over which f changes more, until it can be halved no further.
    """
    for _ in range(60):
        middle = (low + high) / 2
        left = (f(middle) - f(low)).abs() > (f(high) - f(middle)).abs()
        low, high = torch.where(left, low, middle), torch.where(left, middle, high)
    return float((f(high) - f(low)).abs().max())
