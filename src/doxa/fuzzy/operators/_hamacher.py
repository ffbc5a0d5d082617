"""Hamacher: the t-norms that are quotients of polynomials."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import log1mexp
from doxa.fuzzy.operators._generators import Generator, OddsGenerator
from doxa.fuzzy.operators._parameters import Parameter, bounds, current, function, require
from doxa.fuzzy.operators._tnorms import Archimedean

__all__ = ["Hamacher", "HamacherGenerator"]


@dataclass(frozen=True)
class HamacherGenerator(Generator):
    """g(x) = log((λ + (1 - λ) x)/x) = log(1 + λ (1 - x)/x), λ > 0; convex for λ ≤ 2.

    >>> g = HamacherGenerator(2.0)
    >>> g.inverse(g(torch.tensor([0.2, 0.9])))
    tensor([0.2000, 0.9000])
    """

    lam: Parameter

    zero = math.inf

    def __post_init__(self) -> None:
        require("the λ of a Hamacher generator", self.lam, 0)

    @property
    def convex(self) -> bool:
        return bounds(self.lam)[1] <= 2

    def __call__(self, x: Tensor) -> Tensor:
        lam = current(self.lam)
        if bounds(self.lam)[0] >= 1:  # the other form has a derivative that overflows on the way
            return torch.log1p((lam - 1) * (1 - x)) - torch.log(x)
        return torch.log1p(lam * (1 - x) / x)

    def inverse(self, y: Tensor) -> Tensor:
        # λ/(λ + e^y - 1), for large y as a sigmoid of logarithms
        lam, near = current(self.lam), y < 1
        small, large = torch.where(near, y, 0.0), torch.where(near, 1.0, y)
        odds = function("log", lam) - large - log1mexp(large)
        return torch.where(near, 1 / (1 + torch.expm1(small) / lam), torch.sigmoid(odds))

    def log_slope(self, x: Tensor) -> Tensor:
        return -torch.log(x) - torch.log(x + current(self.lam) * (1 - x))


@dataclass(frozen=True)
class Hamacher(Archimedean):
    """Hamacher: T(a, b) = a·b/(λ + (1 - λ)(a + b - a·b)), λ ≥ 0; λ = 0 is the Hamacher product, 1 the product.

    >>> Hamacher(2.0)(torch.tensor(0.8), torch.tensor(0.6))
    tensor(0.4444)
    """

    lam: Parameter = 2.0
    eps: float | None = None

    def __post_init__(self) -> None:
        require("the λ of a Hamacher t-norm", self.lam, 0, closed=True)

    @property
    def generator(self) -> Generator:
        return OddsGenerator() if self.lam == 0 else HamacherGenerator(self.lam)
