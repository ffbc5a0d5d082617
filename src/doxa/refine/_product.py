r"""Refinement of the product (errata 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa._numerics import cap, lift
from doxa.fuzzy import Product, TNorm
from doxa.refine._base import Pick, before, one_of
from doxa.refine._junction import Junction, joined

__all__ = ["ProductRefinement"]


@dataclass(frozen=True)
class ProductRefinement(Junction):
    r"""Product, minimal for L₁ (errata 3.4).

    T up: all literals below λ rise to :math:`λ = \min_K (\hat t / (\prod_{j≤K} t^↓_j \prod C))^{1/(n-K)}`; T down: the
    smallest becomes :math:`t_i \hat t / T`, which is a change of :math:`(\hat t - T)/\prod_{j≠i} t_j \prod C`. S is dual.

    >>> ProductRefinement()(torch.tensor([0.3, 0.9, 0.5]), torch.tensor(0.4))
    tensor([0.6667, 0.9000, 0.6667])
    >>> ProductRefinement().dual(torch.tensor([0.3, 0.6, 0.1]), torch.tensor(0.9))
    tensor([0.3000, 0.8413, 0.1000])
    """

    tnorm: TNorm = Product()
    norms = (1.0, 1.0)
    still_down = True

    def up(self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick) -> Tensor:
        n = t.shape[dim]
        floor = cap(t, self.tnorm.eps) ** 2
        logs = lift(t, floor).log()
        wanted = lift(target, floor).log()
        if c is not None:
            wanted = wanted - lift(c, floor).log().sum(dim)
        largest_first = logs.sort(dim, descending=True).values
        kept = before(largest_first, dim)
        shape = [1] * t.dim()
        shape[dim] = n
        raised = torch.arange(n, 0, -1, dtype=t.dtype, device=t.device).view(shape)
        level = ((wanted.unsqueeze(dim) - kept) / raised).amin(dim, keepdim=True)
        return torch.relu(level.clamp_max(0).exp() - t)

    def down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        index = pick(t.detach(), dim)
        one = torch.ones((), dtype=t.dtype, device=t.device)
        others = joined(t.scatter(dim, index, one.expand_as(index)), c, dim).prod(dim)
        fall = torch.relu(value - target) / lift(others, cap(t, self.tnorm.eps) ** 2)
        return -one_of(t, index, fall.unsqueeze(dim), dim)
