r"""Refinement of Łukasiewicz: everything moves alike (errata 3.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.fuzzy import Lukasiewicz, TNorm
from doxa.refine._base import Pick
from doxa.refine._junction import Junction

__all__ = ["LukasiewiczRefinement"]

_LUKASIEWICZ = Lukasiewicz()


def fill(room: Tensor, need: Tensor, dim: int) -> Tensor:
    r"""The δ with :math:`δ_i = \min(λ, \mathrm{room}_i)` and :math:`\sum_i δ_i = \mathrm{need}`.

    With the rooms sorted downwards, :math:`λ_K = (\mathrm{need} - \sum_{i>K} \mathrm{room}_i)/K`. For every K,
    :math:`\sum_i
    \min(λ, \mathrm{room}_i) ≤ Kλ + \sum_{i>K} \mathrm{room}_i`, so λ ≥ λ_K, with equality at the K* of errata 3.2: λ is
    the largest of them, and no K has to be searched.
    """
    n = room.shape[dim]
    largest_first = room.sort(dim, descending=True).values
    inside = largest_first.cumsum(dim)
    shape = [1] * room.dim()
    shape[dim] = n
    count = torch.arange(1, n + 1, dtype=room.dtype, device=room.device).view(shape)
    outside = inside.narrow(dim, n - 1, 1) - inside
    level = ((need.unsqueeze(dim) - outside) / count).amax(dim, keepdim=True)
    return torch.minimum(torch.relu(level), room)


@dataclass(frozen=True)
class LukasiewiczRefinement(Junction):
    r"""Łukasiewicz: the unique minimiser for p > 1, and minimal for p = 1 too (errata 3.2).

    With σ = Σt + ΣC. T up: equal rises, stopped at 1; T down: :math:`t_i - (σ - (n + m - 1) - \hat t)/n`; S up:
    :math:`t_i + (\hat t - σ)/n`; S down: equal falls, stopped at 0.

    >>> LukasiewiczRefinement()(torch.tensor([0.7, 0.6, 0.9]), 0.5)
    tensor([0.8000, 0.7000, 1.0000])
    >>> LukasiewiczRefinement().dual(torch.tensor([0.5, 0.3, 0.1]), 0.6)
    tensor([0.4000, 0.2000, 0.0000])
    """

    tnorm: TNorm = _LUKASIEWICZ
    norms = (1.0, math.inf)
    still_down = True

    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        room = 1 - t
        missing = room.sum(dim) if c is None else room.sum(dim) + (1 - c).sum(dim)
        return torch.relu(1 - missing), (room, missing)

    def dual_forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        total = t.sum(dim) if c is None else t.sum(dim) + c.sum(dim)
        return total.clamp_max(1), total

    def up(self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick) -> Tensor:
        room, missing = aux
        return fill(room, missing - (1 - target), dim)

    def down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        each = -torch.relu(value - target) / t.shape[dim]
        return each.unsqueeze(dim).expand_as(t)

    def dual_rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick) -> Tensor:
        each = torch.relu(change) / t.shape[dim]
        return each.unsqueeze(dim).expand_as(t)

    def dual_up(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        return self.dual_rise(t, aux, target - value, dim, pick)

    def dual_down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        return -fill(t, aux - target, dim)
