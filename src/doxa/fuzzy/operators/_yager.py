r"""The p-norm families: Yager, Aczél-Alsina and Dombi.

Each is :math:`T(x) = k^{-1}(‖k(x_1), …, k(x_n)‖_p)` for the generator k of Łukasiewicz, the product or the Hamacher
product, and goes from the drastic product (p → 0) through that t-norm (p = 1) to the minimum (p → ∞).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims
from doxa.fuzzy.operators._generators import LinearGenerator, LogGenerator, OddsGenerator, PowerGenerator
from doxa.fuzzy.operators._lukasiewicz import below_one
from doxa.fuzzy.operators._norms import norm, norm_pair
from doxa.fuzzy.operators._parameters import Parameter
from doxa.fuzzy.operators._tnorms import Archimedean

__all__ = ["AczelAlsina", "Dombi", "Yager"]


@dataclass(frozen=True)
class Yager(Archimedean):
    r"""Yager: :math:`T(x) = \max(1 - (\sum_i (1 - x_i)^p)^{1/p}, 0)`, p > 0.

    The dual is :math:`S(x) = \min((\sum_i x_i^p)^{1/p}, 1)`.

    Convex generator, hence Schur-concave, for p ≥ 1 (errata 1.4). The derivative is
    :math:`(\sum_j (1 - x_j)^p)^{1/p - 1} (1 - x_i)^{p-1}`, or 0 where T = 0 (errata 2.5).

    >>> Yager(2.0).reduce(torch.tensor([0.8, 0.7, 0.9]))
    tensor(0.6258)
    """

    p: Parameter = 2.0
    eps: float | None = None

    def __post_init__(self) -> None:
        _ = self.generator  # checks p

    @property
    def generator(self) -> PowerGenerator:
        return PowerGenerator(LinearGenerator(), self.p)

    def _conorm(self, a: Tensor, b: Tensor) -> Tensor:
        return below_one(norm_pair(a, b, self.p, self.eps))

    def _conorm_reduce(self, x: Tensor, dim: Dims, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        x = x if mask is None else torch.where(mask, x, 0.0)
        return below_one(norm(x, self.p, dim, weight=weight, eps=self.eps))


@dataclass(frozen=True)
class AczelAlsina(Archimedean):
    r"""Aczél-Alsina: :math:`T(x) = \exp(-(\sum_i (-\log x_i)^λ)^{1/λ})`, λ > 0; λ = 1 is the product.

    >>> AczelAlsina(2.0)(torch.tensor(0.8), torch.tensor(0.6))
    tensor(0.5727)
    """

    lam: Parameter = 2.0
    eps: float | None = None

    def __post_init__(self) -> None:
        _ = self.generator

    @property
    def generator(self) -> PowerGenerator:
        return PowerGenerator(LogGenerator(), self.lam)


@dataclass(frozen=True)
class Dombi(Archimedean):
    r"""Dombi: :math:`T(x) = 1/(1 + (\sum_i ((1 - x_i)/x_i)^λ)^{1/λ})`, λ > 0; λ = 1 is the Hamacher product.

    >>> Dombi(2.0)(torch.tensor(0.8), torch.tensor(0.6))
    tensor(0.5841)
    """

    lam: Parameter = 2.0
    eps: float | None = None

    def __post_init__(self) -> None:
        _ = self.generator

    @property
    def generator(self) -> PowerGenerator:
        return PowerGenerator(OddsGenerator(), self.lam)
