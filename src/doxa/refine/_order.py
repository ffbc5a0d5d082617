r"""Refinement of the order-based t-norms: Gödel, nilpotent minimum, drastic product (errata 3.1).

For all three, T(z) = t̂ > 0 means that the smallest argument is t̂ and every other one lies above a threshold: t̂
itself for the minimum, 1 - t̂ for the nilpotent minimum, 1 for the drastic product. So the nearest vector is known in
closed form: the smallest literal becomes t̂, and whatever is below the threshold rises to it. Exchanging the smallest
literal for another one never helps, in any p-norm.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa._numerics import lower
from doxa.fuzzy import Drastic, Godel, NilpotentMinimum, TNorm
from doxa.refine._base import Pick, first, one_of
from doxa.refine._junction import Junction, joined

__all__ = ["DrasticRefinement", "GodelRefinement", "NilpotentRefinement"]

_GODEL, _NILPOTENT, _DRASTIC = Godel(), NilpotentMinimum(), Drastic()


@dataclass(frozen=True)
class GodelRefinement(Junction):
    r"""Gödel, minimal for every p-norm (errata 3.1).

    T up: :math:`t_i ← \max(t_i, \hat t)`; T down: the smallest ← t̂; S up: the largest ← t̂; S down:
    :math:`t_i ← \min(t_i, \hat t)`.

    >>> GodelRefinement()(torch.tensor([0.2, 0.9]), 0.8, torch.tensor([0.6]))      # more than 0.6 is out of reach
    tensor([0.6000, 0.9000])
    """

    tnorm: TNorm = _GODEL
    norms = (1.0, math.inf)
    still_up = still_down = True

    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        return joined(t, c, dim).amin(dim), None

    def dual_forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        value, index = t.max(dim, keepdim=True)
        if c is not None:
            value = torch.maximum(value, c.amax(dim, keepdim=True))
        return value.squeeze(dim), index

    def up(self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick) -> Tensor:
        return torch.relu(target.unsqueeze(dim) - t)

    def down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        index = pick(t.detach(), dim)
        amount = -torch.relu(t.gather(dim, index) - target.unsqueeze(dim))
        if c is not None:  # a smaller constant may have met the target already
            amount = torch.where((target < value).unsqueeze(dim), amount, 0.0)
        return one_of(t, index, amount, dim)

    def dual_rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick) -> Tensor:
        index = aux if pick is first else pick(-t.detach(), dim)
        return one_of(t, index, torch.relu(change).unsqueeze(dim), dim)

    def dual_up(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        if c is None:
            return self.dual_rise(t, aux, target - value, dim, pick)
        index = aux if pick is first else pick(-t.detach(), dim)
        amount = torch.relu(target.unsqueeze(dim) - t.gather(dim, index))
        return one_of(t, index, torch.where((target > value).unsqueeze(dim), amount, 0.0), dim)

    def dual_down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        return -torch.relu(t - target.unsqueeze(dim))


class _Lowest(Junction):
    """T(z) = t̂ > 0: the smallest is t̂, the others are at or above a threshold."""

    turns = True

    @abstractmethod
    def _threshold(self, target: Tensor) -> Tensor:
        """What the others must reach."""

    @abstractmethod
    def _reachable(self, target: Tensor, low: Tensor) -> Tensor:
        """The target, or the next one that can be reached when the smallest constant is ``low``."""

    @abstractmethod
    def _to_zero(self, t: Tensor, c: Tensor | None, dim: int, pick: Pick) -> Tensor:
        """The change that makes a positive value 0."""

    def clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        target = super().clamp(target, c, dim)
        if c is None:
            return target
        return torch.where(target > 0, torch.minimum(self._reachable(target, c.amin(dim)), c.amin(dim)), target)

    def dual_clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        target = target.clamp(0, 1)
        if c is None:
            return target
        reached = self.clamp(1 - target, self._complement(c), dim)
        return torch.where(reached == 1 - target, target, 1 - reached)

    def up(self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick) -> Tensor:
        index = pick(t.detach(), dim)
        goal = target.unsqueeze(dim)
        alone = t.shape[dim] == 1 and c is None
        raised = torch.relu((goal if alone else torch.maximum(goal, self._threshold(goal))) - t)
        lowest = goal - t.gather(dim, index)
        if c is not None:  # the smallest constant may be the minimum; then nothing has to come down to it
            lowest = torch.where(goal < c.amin(dim, keepdim=True), lowest, raised.gather(dim, index))
        return raised.scatter(dim, index, lowest)

    def down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        zero = (target <= 0).unsqueeze(dim)
        return torch.where(zero, self._to_zero(t, c, dim, pick), self.up(t, c, value, aux, target, dim, pick))


@dataclass(frozen=True)
class NilpotentRefinement(_Lowest):
    r"""Nilpotent minimum, T = min if the two lowest sum to more than 1, else 0.

    For a target in (0, 1/2] all others must exceed 1 - t̂, by as little as the dtype can say: an infimum. Towards 0
    it is enough to lower the smallest until the two lowest sum to 1; that is minimal for L₁ only.

    >>> NilpotentRefinement()(torch.tensor([0.2, 0.5, 0.9]), 0.3)
    tensor([0.3000, 0.7000, 0.9000])
    >>> NilpotentRefinement()(torch.tensor([0.7, 0.8]), 0.0)
    tensor([0.2000, 0.8000])
    """

    tnorm: TNorm = _NILPOTENT
    norms = (1.0, 1.0)

    def _threshold(self, target: Tensor) -> Tensor:
        return torch.where(target > 0.5, target, 1 - target + 2 * torch.finfo(target.dtype).eps)

    def _reachable(self, target: Tensor, low: Tensor) -> Tensor:
        return torch.maximum(target, 1 - low + 2 * torch.finfo(target.dtype).eps)

    def _to_zero(self, t: Tensor, c: Tensor | None, dim: int, pick: Pick) -> Tensor:
        index = pick(t.detach(), dim)
        others = joined(t.scatter(dim, index, 1.0), c, dim)
        if others.shape[dim] == 1:
            return -t
        low = torch.relu(1 - 2 * torch.finfo(t.dtype).eps - others.amin(dim, keepdim=True))
        return one_of(t, index, low - t.gather(dim, index), dim)


@dataclass(frozen=True)
class DrasticRefinement(_Lowest):
    """Drastic product, T = min if all others are 1, else 0.

    Towards a positive target all but the smallest become 1, for every p-norm. Towards 0 it is enough that two arguments
    are below 1, by as little as the dtype can say: an infimum.

    >>> DrasticRefinement()(torch.tensor([0.2, 0.5, 0.9]), 0.3)
    tensor([0.3000, 1.0000, 1.0000])
    """

    tnorm: TNorm = _DRASTIC
    norms = (1.0, math.inf)

    def _threshold(self, target: Tensor) -> Tensor:
        return torch.ones_like(target)

    def _complement(self, x: Tensor) -> Tensor:
        return lower(1 - x, torch.where(x > 0, 1 - torch.finfo(x.dtype).eps / 2, 1.0))

    def _reachable(self, target: Tensor, low: Tensor) -> Tensor:
        return torch.where(low < 1, low, target)

    def _to_zero(self, t: Tensor, c: Tensor | None, dim: int, pick: Pick) -> Tensor:
        below = torch.zeros_like(t.sum(dim, keepdim=True)) if c is None else (c < 1).sum(dim, keepdim=True)
        wanted = 2 - below
        # the first two places of the smallest literals
        rank = t.detach().argsort(dim=dim, stable=True).argsort(dim)
        slightly = torch.where(rank < wanted, torch.relu(t - (1 - torch.finfo(t.dtype).eps)), 0.0)
        return torch.where(wanted > t.shape[dim], -t, -slightly)
