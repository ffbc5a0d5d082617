r"""The product, Łukasiewicz, and the p-norm families that start from them: Yager, Aczél-Alsina and Dombi.

Each family is :math:`T(x) = k^{-1}(‖k(x_1), …, k(x_n)‖_p)` for the generator k of Łukasiewicz, the product or the
Hamacher product, and goes from the drastic product (p → 0) through that t-norm (p = 1) to the minimum (p → ∞).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims, cap, lift, merge_dims, safe_log, truth
from doxa.fuzzy.operators._generators import LinearGenerator, LogGenerator, OddsGenerator, PowerGenerator
from doxa.fuzzy.operators._norms import norm, norm_pair
from doxa.fuzzy.operators._parameters import Parameter
from doxa.fuzzy.operators._tnorms import Archimedean, TNorm, prepare


@dataclass(frozen=True)
class Product(TNorm):
    """Product: T(a, b) = a·b, S(a, b) = a + b - a·b.

    ∂T/∂a = b and ∂S/∂a = 1 - b; of many arguments the derivative is the product of the others, also at 0 (Eq.
    derivprod).

    >>> x = torch.tensor([0.8, 0.0, 0.9], requires_grad=True)
    >>> Product().reduce(x).backward(); x.grad
    tensor([0.0000, 0.7200, 0.0000])
    """

    eps: float | None = None

    generator = LogGenerator()

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a) * truth(b)

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        x = prepare(x, mask)
        if weight is not None:
            logs = safe_log(x, self.eps) * weight
            dims = tuple(range(logs.dim())) if dim is None else dim
            return torch.exp((logs if mask is None else torch.where(mask, logs, 0.0)).sum(dims))
        x, d = merge_dims(x if mask is None else torch.where(mask, x, 1.0), dim)
        return x.prod(d)

    def _conorm(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.addcmul(a, 1 - a, b)

    def _s_implies(self, a: Tensor, c: Tensor) -> Tensor:
        """Reichenbach: 1 - a + a·c."""
        return torch.addcmul(1 - a, a, c)

    def _residual(self, a: Tensor, c: Tensor) -> Tensor:
        """Goguen: 1 if a ≤ c, else c/a; the derivatives 1/a and -c/a² are those at max(a, ε)."""
        above = a > c
        divisor = torch.where(above, a, 1.0)
        capped = c / lift(divisor, cap(divisor, self.eps))
        return torch.where(above, capped + (c / divisor - capped).detach(), 1.0)


@dataclass(frozen=True)
class Lukasiewicz(Archimedean):
    r"""Łukasiewicz: T(a, b) = max(a + b - 1, 0), S(a, b) = min(a + b, 1).

    Over n arguments :math:`\max(\sum_i x_i - (n - 1), 0)`: every derivative is 1, or all are 0.

    >>> Lukasiewicz().reduce(torch.tensor([0.9, 0.8, 0.95]))
    tensor(0.6500)
    """

    generator = LinearGenerator()

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.relu(truth(a) + truth(b) - 1)

    def _conorm(self, a: Tensor, b: Tensor) -> Tensor:
        return below_one(a + b)

    def _conorm_reduce(self, x: Tensor, dim: Dims, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        x = x if mask is None else torch.where(mask, x, 0.0)
        return below_one(self.generator.total(x, dim, weight))

    def _s_implies(self, a: Tensor, c: Tensor) -> Tensor:
        return self._residual(a, c)

    def _residual(self, a: Tensor, c: Tensor) -> Tensor:
        """min(1 - a + c, 1), with derivative 0 at a = c."""
        return 1 - torch.relu(a - c)


def below_one(x: Tensor) -> Tensor:
    """min(x, 1) with derivative 0 at 1."""
    return torch.where(x < 1, x, 1.0)


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

    @property
    def generator(self) -> PowerGenerator:
        return PowerGenerator(OddsGenerator(), self.lam)
