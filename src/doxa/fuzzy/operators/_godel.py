r"""The order-based t-norms, which have no additive generator: Gödel, nilpotent minimum, drastic product.

All three look at the smallest arguments only (Chapter 2, Table tnorms; Chapter 3, "Minimum and Maximum Aggregators",
"Nilpotent Aggregators"): the minimum, kept or dropped by a condition on the two lowest values.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims, merge_dims, truth
from doxa.fuzzy.operators._tnorms import TNorm, prepare


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
