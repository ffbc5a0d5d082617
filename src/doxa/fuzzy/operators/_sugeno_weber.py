"""Sugeno-Weber: nilpotent t-norms between the drastic product and the product."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import lower
from doxa.errors import ConfigError
from doxa.fuzzy.operators._generators import Generator, LinearGenerator
from doxa.fuzzy.operators._parameters import Parameter, bounds, current, function, require
from doxa.fuzzy.operators._tnorms import Archimedean

__all__ = ["SugenoWeber", "SugenoWeberGenerator"]


@dataclass(frozen=True)
class SugenoWeberGenerator(Generator):
    """g(x) = 1 - log(1 + λx)/log(1 + λ), λ > -1, λ ≠ 0; convex for λ ≥ 0.

    >>> g = SugenoWeberGenerator(2.0)
    >>> g.inverse(g(torch.tensor([0.2, 0.9]))), g.zero
    (tensor([0.2000, 0.9000]), 1.0)
    """

    lam: Parameter

    zero = 1.0

    def __post_init__(self) -> None:
        require("the λ of a Sugeno-Weber generator", self.lam, -1)
        low, high = bounds(self.lam)
        if low <= 0 <= high and not low == 0 < high and not low < high == 0:
            raise ConfigError(
                f"the λ of a Sugeno-Weber generator is {self.lam}, expected a number other than 0 (that is "
                "LinearGenerator's), of one sign if it learns: give Learnable low=0, or low=-1 and high=0"
            )

    @property
    def convex(self) -> bool:
        return bounds(self.lam)[0] >= 0

    def __call__(self, x: Tensor) -> Tensor:
        return self._log_ratio(x) / self._log_ratio(x.new_zeros(()))

    def _log_ratio(self, x: Tensor) -> Tensor:
        """log(1 + λ) - log(1 + λx) in one logarithm, exactly 0 at 1."""
        lam, below = current(self.lam), self._one_plus(x)
        ratio = (1 + lam) / below
        far = ratio < 0.5  # only for λ near -1
        near = torch.log1p(torch.where(far, 0.0, lam * (1 - x) / below))
        return torch.where(far, torch.log(torch.where(far, ratio, 1.0)), near)

    def _one_plus(self, x: Tensor) -> Tensor:
        """1 + λx, not rounded to 0 for λ near -1."""
        return (1 - x) + (1 + current(self.lam)) * x

    def inverse(self, y: Tensor) -> Tensor:
        lam = current(self.lam)
        log = function("log1p", lam)
        high = 1 + (1 + lam) / lam * torch.expm1(-log * y.clamp_max(0.5))  # exactly 1 at 0, the other 0 at 1
        return lower(torch.where(y < 0.5, high, torch.expm1(log * torch.relu(1 - y)) / lam), 1)

    def floor(self, x: Tensor, eps: float) -> float:
        return 0.0

    def log_slope(self, x: Tensor) -> Tensor:
        return -torch.log(self._one_plus(x))


@dataclass(frozen=True)
class SugenoWeber(Archimedean):
    """Sugeno-Weber: T(a, b) = max((a + b - 1 + λ·a·b)/(1 + λ), 0), λ > -1; λ = 0 is Łukasiewicz, ∞ the product.

    >>> SugenoWeber(2.0)(torch.tensor(0.8), torch.tensor(0.6))
    tensor(0.4533)
    """

    lam: Parameter = 2.0
    eps: float | None = None

    def __post_init__(self) -> None:
        _ = self.generator

    @property
    def generator(self) -> Generator:
        return LinearGenerator() if self.lam == 0 else SugenoWeberGenerator(self.lam)
