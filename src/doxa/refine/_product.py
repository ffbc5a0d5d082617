r"""Refinement of the product (errata 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa._numerics import cap, lift
from doxa.fuzzy import Product, TNorm
from doxa.refine._base import Pick, first, one_of
from doxa.refine._junction import Junction

__all__ = ["ProductRefinement"]

_PRODUCT = Product()


@dataclass(frozen=True)
class ProductRefinement(Junction):
    r"""Product, minimal for L₁ (errata 3.4).

    T up: all literals below λ rise to :math:`λ = \min_K (\hat t / (\prod_{j≤K} t^↓_j \prod C))^{1/(n-K)}`; T down: the
    smallest becomes :math:`t_i \hat t / T`, which is a change of :math:`(\hat t - T)/\prod_{j≠i} t_j \prod C`. S is
    dual.

    >>> ProductRefinement()(torch.tensor([0.3, 0.9, 0.5]), torch.tensor(0.4))
    tensor([0.6667, 0.9000, 0.6667])
    >>> ProductRefinement().dual(torch.tensor([0.3, 0.6, 0.1]), torch.tensor(0.9))
    tensor([0.3000, 0.8413, 0.1000])
    """

    tnorm: TNorm = _PRODUCT
    norms = (1.0, 1.0)
    still_down = True

    def up(self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick) -> Tensor:
        n = t.shape[dim]
        floor = cap(t, self.tnorm.eps) ** 2
        logs = t.clamp_min(floor).log()
        wanted = target.clamp_min(floor).log()
        if c is not None:
            wanted = wanted - c.clamp_min(floor).log().sum(dim)
        largest_first = logs.sort(dim, descending=True).values
        kept = largest_first.cumsum(dim) - largest_first
        shape = [1] * t.dim()
        shape[dim] = n
        raised = torch.arange(n, 0, -1, dtype=t.dtype, device=t.device).view(shape)
        level = ((wanted.unsqueeze(dim) - kept) / raised).amin(dim, keepdim=True)
        if c is not None:  # without, the level of K = 0 is not above 0
            level = level.clamp_max(0)
        return torch.relu(level.exp() - t)

    def dual_forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        false = 1 - t
        rest = false.prod(dim) if c is None else false.prod(dim) * (1 - c).prod(dim)
        return 1 - rest, false

    def dual_rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick, c: Tensor | None = None) -> Tensor:
        index = t.max(dim, keepdim=True).indices if pick is first else pick(-t.detach(), dim)
        others = self._others(aux, None if c is None else 1 - c, index, dim)
        whole = aux.gather(dim, index)
        rise = (torch.relu(change) / others).unsqueeze(dim)
        return one_of(t, index, _all_of(rise, whole, (whole - rise) * others.unsqueeze(dim) <= cap(t)), dim)

    def dual_up(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        return self.dual_rise(t, aux, target - value, dim, pick, c)

    def _others(self, t: Tensor, c: Tensor | None, index: Tensor, dim: int) -> Tensor:
        """The product of all but one."""
        others = t.scatter(dim, index, 1.0).prod(dim)
        if c is not None:
            others = others * c.prod(dim)
        low = cap(t, self.tnorm.eps) ** 2
        return lift(others, low) if torch.is_grad_enabled() else others.clamp_min(low)  # the same, the second for less

    def down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        index = pick(t.detach(), dim)
        fall = (torch.relu(value - target) / self._others(t, c, index, dim)).unsqueeze(dim)
        return -one_of(t, index, _all_of(fall, t.gather(dim, index), (target <= 0).unsqueeze(dim)), dim)


def _all_of(step: Tensor, whole: Tensor, certain: Tensor) -> Tensor:
    """The step, in value the whole one where that is meant: a target of 0 or 1 is met without rounding."""
    return step + torch.where(certain & (step > 0), whole - step, 0.0).detach()
