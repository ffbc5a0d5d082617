r"""Aggregators: what ∀ and ∃ compute (Chapter 2, "Aggregation operators"; Chapter 3, "Aggregation").

Each is called as ``A(x, dim, mask, weight)``. Over nothing, ∀ is 1 and ∃ is 0 (in log space: 0, and log ε).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from doxa._numerics import Dims, cap, lift, safe_log, size_of
from doxa.errors import ConfigError
from doxa.fuzzy.operators._connectives import TConorm, TNorm, prepare
from doxa.fuzzy.operators._generators import norm
from doxa.fuzzy.operators._parameters import Parameter, require


class Aggregator(ABC):
    """An aggregator: ``A(x, dim, mask, weight)``, with ``kind`` "forall" or "exists".

    ``is_log`` says that the value is a logarithm of a truth value, ``bounded`` that it lies in [0, 1].

    >>> A = GeneralizedMeanError(2.0)
    >>> A.kind, A.is_log, A.bounded, A(torch.tensor([0.8, 0.7, 0.9]))
    ('forall', False, True, tensor(0.7840))
    """

    kind: ClassVar[Literal["forall", "exists"]]
    is_log: ClassVar[bool] = False
    bounded: ClassVar[bool] = True

    @abstractmethod
    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """Aggregate truth values; arguments as in :meth:`TNorm.reduce`, but each aggregator says what weights mean."""


@dataclass(frozen=True)
class TNormAggregator(Aggregator):
    """∀ as the t-norm of all instances, :math:`A_T(x_1, …, x_n) = T(x_1, A_T(x_2, …, x_n))` (Eq. aggtnorm).

    A weight is that of :meth:`TNorm.reduce`: so many copies, or for Gödel, nilpotent and drastic an importance.

    >>> from doxa.fuzzy import Godel, Product
    >>> x = torch.tensor([[0.8, 0.7, 0.9], [0.5, 0.5, 0.5]])
    >>> TNormAggregator(Product())(x, dim=1), TNormAggregator(Godel())(x, mask=x > 0.6)
    (tensor([0.5040, 0.1250]), tensor(0.7000))
    """

    tnorm: TNorm
    kind = "forall"

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return self.tnorm.reduce(x, dim, mask, weight)


@dataclass(frozen=True)
class TConormAggregator(Aggregator):
    """∃ as the t-conorm of all instances, :math:`E_S(x_1, …, x_n) = S(x_1, E_S(x_2, …, x_n))` (errata 1.2).

    A weight is that of :meth:`TNorm.reduce`.

    >>> from doxa.fuzzy import Product
    >>> TConormAggregator(Product().dual)(torch.tensor([0.2, 0.3, 0.1]))
    tensor(0.4960)
    """

    tconorm: TConorm
    kind = "exists"

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return self.tconorm.reduce(x, dim, mask, weight)


@dataclass(frozen=True)
class LogSum(Aggregator):
    """∀ as a sum or mean of logarithms."""

    reduction: Literal["sum", "mean"] = "sum"
    eps: float | None = None
    kind = "forall"
    is_log = True
    bounded = False

    def __post_init__(self) -> None:
        if self.reduction not in ("sum", "mean"):
            raise ConfigError(f"reduction is {self.reduction!r}, expected 'sum' or 'mean'")

    @abstractmethod
    def logs(self, x: Tensor) -> Tensor:
        """The logarithm of each instance."""

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        x = prepare(x, mask)
        logs = total(self.logs(x), dim, mask, weight)
        return logs if self.reduction == "sum" else logs / count(x, dim, mask, weight)


@dataclass(frozen=True)
class LogProduct(LogSum):
    r"""The log-product :math:`\sum_i \log \max(x_i, ε)`, a log-likelihood (Chapter 3, "Product Aggregator").

    The derivative is :math:`1/\max(x_i, ε)`, whatever the other inputs are. A weight multiplies its summand; with
    ``reduction="mean"`` the sum is divided by the number of instances, or by the sum of their weights.

    >>> LogProduct()(torch.tensor([0.8, 0.7, 0.9])), LogProduct("mean")(torch.tensor([0.8, 0.7, 0.9]))
    (tensor(-0.6852), tensor(-0.2284))
    """

    def logs(self, x: Tensor) -> Tensor:
        return safe_log(x, self.eps)


@dataclass(frozen=True)
class LogProbabilisticSum(Aggregator):
    r"""The logarithm of the probabilistic sum, :math:`\log \max(1 - \prod_i (1 - x_i), ε)`.

    Computed as :math:`\log(1 - e^L)`, :math:`L = \sum_i \log(1 - x_i)`, without losing small truth values to rounding.
    A weight w counts an instance w times.

    >>> LogProbabilisticSum()(torch.tensor([0.2, 0.3, 0.1])), LogProbabilisticSum()(torch.tensor([1e-6, 2e-6]))
    (tensor(-0.7012), tensor(-12.7169))
    """

    eps: float | None = None
    kind = "exists"
    is_log = True
    bounded = False

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return self.of_sum(total(self.logs(prepare(x, mask)), dim, mask, weight))

    def logs(self, x: Tensor) -> Tensor:
        """log(1 - x) of each instance."""
        # At x = 1 the factor is ε/2 instead of 0; it cancels from the derivatives of the others and of x itself.
        return torch.log1p(lift(-x, cap(x, self.eps) / 2 - 1))

    def of_sum(self, logs: Tensor) -> Tensor:
        """The value, from the sum of these."""
        return safe_log(-torch.expm1(logs), self.eps)


@dataclass(frozen=True)
class PowerAggregator(Aggregator):
    """A p-norm, or a mean of p-th powers: of truths for ∃, of what they lack of 1 for ∀, and then taken from 1."""

    p: Parameter = 2.0
    eps: float | None = None
    mean: ClassVar[bool]

    def __post_init__(self) -> None:
        require(f"the p of {type(self).__name__}", self.p, 0, one_side=1)

    def turn(self, x: Tensor) -> Tensor:
        """From truths to what is measured, and back."""
        return 1 - x if self.kind == "forall" else x

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        z = self.turn(prepare(x, mask))
        n = count(z, dim, mask, weight) if self.mean else None
        z = z if mask is None else torch.where(mask, z, 0.0)
        return self.turn(norm(z, self.p, dim, weight=weight, count=n, eps=self.eps))


@dataclass(frozen=True)
class UnboundedYager(PowerAggregator):
    r"""The unbounded Yager aggregator :math:`1 - (\sum_i (1 - x_i)^p)^{1/p}` (Appendix, "p-Error Aggregators").

    Yager's without the bound at 0, so that its derivative never vanishes; it goes down to :math:`1 - n^{1/p}`. A weight
    multiplies :math:`(1 - x_i)^p`.

    >>> UnboundedYager(1.0)(torch.tensor([0.1, 0.2]))
    tensor(-0.7000)
    """

    kind = "forall"
    mean = bounded = False


@dataclass(frozen=True)
class UnboundedYagerSum(PowerAggregator):
    r"""The unbounded Yager sum :math:`(\sum_i x_i^p)^{1/p}` for ∃; a weight multiplies :math:`x_i^p`.

    >>> UnboundedYagerSum(2.0)(torch.tensor([0.9, 1.2 / 2]))
    tensor(1.0817)
    """

    kind = "exists"
    mean = bounded = False


@dataclass(frozen=True)
class GeneralizedMeanError(PowerAggregator):
    r"""The generalised mean error :math:`1 - (\frac1n \sum_i (1 - x_i)^p)^{1/p}`, p > 0 (Chapter 3, Def. p-mean-error).

    p = 1 is one minus the mean absolute error, p = 2 one minus the root mean square error; a larger p attends more to
    the worst instances. Weights make it a weighted mean.

    >>> x = torch.tensor([0.8, 0.7, 0.9])
    >>> GeneralizedMeanError(1.0)(x), GeneralizedMeanError(2.0)(x)
    (tensor(0.8000), tensor(0.7840))
    """

    kind = "forall"
    mean = True


@dataclass(frozen=True)
class GeneralizedMean(PowerAggregator):
    r"""The generalised mean :math:`(\frac1n \sum_i x_i^p)^{1/p}`, p > 0, for ∃ (Chapter 3, Def. p-mean).

    p = 1 is the arithmetic, p = 2 the quadratic mean (errata 2.9). Weights make it a weighted mean.

    >>> GeneralizedMean(1.5)(torch.tensor([0.2, 0.3, 0.1]))
    tensor(0.2084)
    """

    kind = "exists"
    mean = True


def total(x: Tensor, dim: Dims, mask: Tensor | None, weight: Tensor | None) -> Tensor:
    """The weighted sum of what the mask lets through."""
    x = x if weight is None else x * weight
    return (x if mask is None else torch.where(mask, x, 0.0)).sum(tuple(range(x.dim())) if dim is None else dim)


def count(x: Tensor, dim: Dims, mask: Tensor | None, weight: Tensor | None) -> float | Tensor:
    """What a mean divides by: the number of instances or the sum of their weights; 1 if there are none."""
    if mask is None and weight is None:
        return max(size_of(x, dim), 1)
    n = total(torch.ones_like(x), dim, mask, weight)
    return torch.where(n > 0, n, 1.0)
