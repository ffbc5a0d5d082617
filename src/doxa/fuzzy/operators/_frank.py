r"""Frank: the only family whose members also satisfy T(a, b) + S(a, b) = a + b."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from doxa._numerics import Dims, lift, log1mexp, lower, truth
from doxa.errors import ConfigError
from doxa.fuzzy.operators._generators import Generator, LogGenerator
from doxa.fuzzy.operators._parameters import Learnable, Parameter, bounds, current, function, require
from doxa.fuzzy.operators._tnorms import Archimedean

__all__ = ["Frank", "FrankGenerator"]


@dataclass(frozen=True)
class FrankGenerator(Generator):
    r"""g(x) = -log((λ^x - 1)/(λ - 1)), λ > 0, λ ≠ 1; always convex.

    With κ = log λ, :math:`|e^{κx} - 1|` is :math:`e^{\max(κx, 0)} (1 - e^{-|κ|x})`, whose logarithm never overflows.

    >>> g = FrankGenerator(3.0)
    >>> g.inverse(g(torch.tensor([0.2, 0.9])))
    tensor([0.2000, 0.9000])
    """

    lam: Parameter

    zero = math.inf
    convex = True

    def __post_init__(self) -> None:
        require("the λ of a Frank generator", self.lam, 0)
        low, high = bounds(self.lam)
        if low <= 1 <= high and not low == 1 < high and not low < high == 1:
            raise ConfigError(
                f"the λ of a Frank generator is {self.lam}, expected a number other than 1 (that is LogGenerator's), "
                "on one side of it if it learns: give Learnable low=1, or low=0 and high=1"
            )

    def _kappa(self, x: Tensor) -> tuple[bool, Tensor]:
        """Whether κ > 0, and its absolute value."""
        positive = bounds(self.lam)[0] >= 1
        lam = current(self.lam) if isinstance(self.lam, Learnable) else self.lam
        kappa = torch.as_tensor(function("log", lam), dtype=x.dtype, device=x.device)
        return positive, kappa if positive else -kappa.clamp_min(-700)

    def __call__(self, x: Tensor) -> Tensor:
        positive, kappa = self._kappa(x)
        fall = log1mexp(kappa) - log1mexp(kappa * x)
        return fall + kappa * (1 - x) if positive else fall

    def inverse(self, y: Tensor) -> Tensor:
        positive, kappa = self._kappa(y)
        if positive:  # log(1 + (e^κ - 1) e^-y)/κ
            x = softplus(kappa + log1mexp(kappa) - y, threshold=50) / kappa
        else:  # the same with 1 - (1 - e^κ) e^-y
            x = -log1mexp(lift(y - log1mexp(kappa), torch.finfo(y.dtype).tiny)) / kappa
        return lower(x, 1)

    def log_slope(self, x: Tensor) -> Tensor:
        positive, kappa = self._kappa(x)
        return -log1mexp(kappa * x) - (0 if positive else kappa * x)


@dataclass(frozen=True)
class Frank(Archimedean):
    r"""Frank: :math:`T(x) = \log_λ(1 + \prod_i (λ^{x_i} - 1)/(λ - 1)^{n-1})`, λ > 0.

    λ = 1 is the product, 0 the minimum, ∞ Łukasiewicz.

    >>> Frank(3.0)(torch.tensor(0.8), torch.tensor(0.6))
    tensor(0.4597)
    """

    lam: Parameter = 3.0
    eps: float | None = None

    def __post_init__(self) -> None:
        _ = self.generator

    @property
    def generator(self) -> Generator:
        return LogGenerator() if self.lam == 1 else FrankGenerator(self.lam)

    # For λ < e^-80 a level is e^(-80x) and less, which float32 does not hold.

    def _wide(self, x: Tensor) -> Tensor:
        return x.double() if bounds(self.lam)[0] < math.exp(-80) else x

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        a, b = truth(a), truth(b)
        return super().__call__(self._wide(a), self._wide(b)).to(torch.promote_types(a.dtype, b.dtype))

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        x = truth(x)
        return super().reduce(self._wide(x), dim, mask, weight).to(x.dtype)

    def _residual(self, a: Tensor, c: Tensor) -> Tensor:
        return super()._residual(self._wide(a), self._wide(c)).to(torch.promote_types(a.dtype, c.dtype))
