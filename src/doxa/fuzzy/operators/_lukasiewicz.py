"""Łukasiewicz: the t-norm, the bounded sum, and the implication that is both S and R (Chapter 3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims, truth
from doxa.fuzzy.operators._generators import LinearGenerator
from doxa.fuzzy.operators._tnorms import Archimedean

__all__ = ["Lukasiewicz"]


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
