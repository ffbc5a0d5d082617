"""The basic t-norms: the product, Łukasiewicz, the p-norm families that start from them, and the order-based ones.

A p-norm family is :math:`T(x) = k^{-1}(‖k(x_1), …, k(x_n)‖_p)` for the generator k of Łukasiewicz, the product or the
Hamacher product. Order-based ones have no generator and keep or drop the minimum by the two lowest values.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims, cap, lift, merge_dims, safe_log, truth
from doxa.fuzzy.operators._connectives import Archimedean, TNorm, prepare
from doxa.fuzzy.operators._generators import LinearGenerator, LogGenerator, OddsGenerator, PowerGenerator
from doxa.fuzzy.operators._parameters import Parameter


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


class _Bounded(Archimedean):
    """T with the levels of 1 - x: the dual joins the truth values themselves, below 1; its derivative at 1 is 0."""

    def _conorm(self, a: Tensor, b: Tensor) -> Tensor:
        return _below_one(self.generator.join(a, b, self.eps))

    def _conorm_reduce(self, x: Tensor, dim: Dims, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        x = x if mask is None else torch.where(mask, x, 0.0)
        return _below_one(self.generator.total(x, dim, weight, self.eps))


def _below_one(x: Tensor) -> Tensor:
    return torch.where(x < 1, x, 1.0)


@dataclass(frozen=True)
class Lukasiewicz(_Bounded):
    r"""Łukasiewicz: T(a, b) = max(a + b - 1, 0), S(a, b) = min(a + b, 1).

    Over n arguments :math:`\max(\sum_i x_i - (n - 1), 0)`: every derivative is 1, or all are 0.

    >>> Lukasiewicz().reduce(torch.tensor([0.9, 0.8, 0.95]))
    tensor(0.6500)
    """

    generator = LinearGenerator()

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.relu(truth(a) + truth(b) - 1)

    def _s_implies(self, a: Tensor, c: Tensor) -> Tensor:
        return self._residual(a, c)

    def _residual(self, a: Tensor, c: Tensor) -> Tensor:
        """min(1 - a + c, 1), with derivative 0 at a = c."""
        return 1 - torch.relu(a - c)


@dataclass(frozen=True)
class Yager(_Bounded):
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


def _lower(a: Tensor, b: Tensor) -> Tensor:
    # Not torch.minimum: at a tie it halves the derivative, which neither side has.
    return torch.where(a <= b, a, b)


def _higher(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a >= b, a, b)


def _relevant(x: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
    """What takes part in a minimum: masked elements are 1, an element of weight w is max(x, 1 - w)."""
    if weight is not None:
        x = _higher(x, 1 - weight)
    return x if mask is None else torch.where(mask, x, 1.0)


def _relevant_dual(x: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
    """What takes part in a maximum: masked elements are 0, an element of weight w is min(x, w)."""
    if weight is not None:
        x = _lower(x, weight)
    return x if mask is None else torch.where(mask, x, 0.0)


@dataclass(frozen=True)
class Godel(TNorm):
    """Gödel: T(a, b) = min(a, b), S(a, b) = max(a, b). Single-passing: one argument has the whole derivative.

    >>> x = torch.tensor([0.4, 0.4, 0.9], requires_grad=True)
    >>> Godel().reduce(x).backward(); x.grad
    tensor([1., 0., 0.])
    """

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return _lower(truth(a), truth(b))

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        x, d = merge_dims(_relevant(prepare(x, mask), mask, weight), dim)
        return x.min(d).values if x.shape[d] else x.sum(d) + 1

    def _conorm(self, a: Tensor, b: Tensor) -> Tensor:
        return _higher(a, b)

    def _conorm_reduce(self, x: Tensor, dim: Dims, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        x, d = merge_dims(_relevant_dual(x, mask, weight), dim)
        return x.max(d).values if x.shape[d] else x.sum(d)

    def _s_implies(self, a: Tensor, c: Tensor) -> Tensor:
        """Kleene-Dienes: max(1 - a, c)."""
        return _higher(1 - a, c)

    def _residual(self, a: Tensor, c: Tensor) -> Tensor:
        """Gödel implication: 1 if a ≤ c, else c."""
        return torch.where(a <= c, 1.0, c)


class _TwoLowest(TNorm):
    """The lowest value if a condition on the two lowest holds, else 0; dually the highest, else 1."""

    @abstractmethod
    def _keeps_low(self, low: Tensor, second: Tensor) -> Tensor: ...

    @abstractmethod
    def _keeps_high(self, high: Tensor, second: Tensor) -> Tensor: ...

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        a, b = truth(a), truth(b)
        low = _lower(a, b)
        return torch.where(self._keeps_low(low, torch.maximum(a, b)), low, 0.0)

    def _conorm(self, a: Tensor, b: Tensor) -> Tensor:
        high = _higher(a, b)
        return torch.where(self._keeps_high(high, torch.minimum(a, b)), high, 1.0)

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        x, d = merge_dims(_relevant(prepare(x, mask), mask, weight), dim)
        n = x.shape[d]
        if n < 2:
            return x.sum(d) + (1 - n)
        # Only min always takes the first of equal elements, so it gives the value, and kthvalue the condition.
        low, second = x.min(d).values, x.detach().kthvalue(2, d).values
        return torch.where(self._keeps_low(low, second), low, 0.0)

    def _conorm_reduce(self, x: Tensor, dim: Dims, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        x, d = merge_dims(_relevant_dual(x, mask, weight), dim)
        n = x.shape[d]
        if n < 2:
            return x.sum(d)
        high, second = x.max(d).values, x.detach().kthvalue(n - 1, d).values
        return torch.where(self._keeps_high(high, second), high, 1.0)


@dataclass(frozen=True)
class NilpotentMinimum(_TwoLowest):
    """Nilpotent minimum: T(a, b) = min(a, b) if a + b > 1, else 0; S(a, b) = max(a, b) if a + b < 1, else 1.

    Over n arguments the condition is on the two lowest (for S: the two largest) values (errata 1.10).

    >>> NilpotentMinimum().reduce(torch.tensor([[0.9, 0.45, 0.7], [0.9, 0.45, 0.5]]), dim=1)
    tensor([0.4500, 0.0000])
    """

    # The sum is compared with 1 without rounding: 1 - x is exact for x >= 1/2, and if both are below, so is the answer.

    def _keeps_low(self, low: Tensor, second: Tensor) -> Tensor:
        return low > 1 - second

    def _keeps_high(self, high: Tensor, second: Tensor) -> Tensor:
        return second < 1 - high

    def _s_implies(self, a: Tensor, c: Tensor) -> Tensor:
        return self._residual(a, c)

    def _residual(self, a: Tensor, c: Tensor) -> Tensor:
        """Fodor, both the S- and the R-implication: 1 if a ≤ c, else max(1 - a, c)."""
        return torch.where(a <= c, 1.0, _higher(1 - a, c))


@dataclass(frozen=True)
class Drastic(_TwoLowest):
    """Drastic product: T(a, b) = min(a, b) if a = 1 or b = 1, else 0; S(a, b) = max(a, b) if a = 0 or b = 0, else 1.

    The smallest t-norm. Its derivatives vanish almost everywhere.

    >>> Drastic()(torch.tensor([1.0, 0.9]), torch.tensor([0.3, 0.3]))
    tensor([0.3000, 0.0000])
    """

    def _keeps_low(self, low: Tensor, second: Tensor) -> Tensor:
        return second >= 1

    def _keeps_high(self, high: Tensor, second: Tensor) -> Tensor:
        return second <= 0

    def _s_implies(self, a: Tensor, c: Tensor) -> Tensor:
        """Dubois-Prade: c if a = 1, 1 - a if c = 0, else 1."""
        return torch.where(a >= 1, c, torch.where(c <= 0, 1 - a, 1.0))

    def _residual(self, a: Tensor, c: Tensor) -> Tensor:
        """Weber: 1 if a < 1, else c."""
        return torch.where(a < 1, 1.0, c)
