r"""The product t-norm, the probabilistic sum, Reichenbach and Goguen (Chapter 3, "Product T-Norm")."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims, cap, lift, merge_dims, safe_log, truth
from doxa.fuzzy.operators._generators import LogGenerator
from doxa.fuzzy.operators._tnorms import TNorm, prepare

__all__ = ["Product"]


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
