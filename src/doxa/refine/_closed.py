r"""Closed forms of minimal refinement for every family of t-norms (errata 3.1-3.4).

*Order-based* ones set the smallest literal to t̂ and raise the others to a threshold; *Łukasiewicz* moves all alike.
*Any generator g*, with :math:`B = g(\hat t) - \sum g(C)`: T up, all literals below λ rise to λ, :math:`g(λ) = \max_K (B
- \sum_{i≤K} g(t^↓_i))/(n - K)`; T down, the smallest becomes :math:`g^{-1}(B - \sum_{j≠i} g(t_j))`. Either way r
literals are set to one λ with :math:`∂λ/∂x = ± g'(x)/(r\,g'(λ))`: found in float64, with that derivative, which is
finite.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from doxa._numerics import cap, lift, lower, with_derivatives
from doxa.fuzzy import Archimedean, Generator, Product
from doxa.refine._base import NEVER, ONE, Case, Junction, Pick, before, first, joined, one_of

_LARGEST = 1e290
"""Levels beyond it (strict families with large parameters) count as this: sums of them stay finite."""


class GodelRefinement(Junction):
    r"""Gödel, minimal for every p-norm (errata 3.1).

    T up: :math:`t_i ← \max(t_i, \hat t)`; T down: the smallest ← t̂; S up: the largest ← t̂; S down:
    :math:`t_i ← \min(t_i, \hat t)`.
    """

    norms = (1.0, math.inf)
    still_up = still_down = True

    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        return joined(t, c, dim).amin(dim, keepdim=True), None

    def dual_forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        value, index = t.max(dim, keepdim=True)
        if c is not None:
            value = torch.maximum(value, c.amax(dim, keepdim=True))
        return value, index

    def up(self, case: Case) -> Tensor:
        return torch.relu(case.target - case.t)

    def down(self, case: Case) -> Tensor:
        t, c, value, target, dim, pick = case.t, case.c, case.value, case.target, case.dim, case.pick
        index = pick(t.detach(), dim)
        amount = -torch.relu(t.gather(dim, index) - target)
        if c is not None:  # a smaller constant may have met the target already
            amount = torch.where(target < value, amount, 0.0)
        return one_of(t, index, amount, dim)

    def dual_rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick) -> Tensor:
        index = aux if pick is first else pick(-t.detach(), dim)
        return one_of(t, index, change, dim)

    def dual_up(self, case: Case) -> Tensor:
        t, c, value, aux, target, dim, pick, *_ = case
        if c is None:
            return self.dual_rise(t, aux, torch.relu(target - value), dim, pick)
        index = aux if pick is first else pick(-t.detach(), dim)
        amount = torch.relu(target - t.gather(dim, index))
        return one_of(t, index, torch.where(target > value, amount, 0.0), dim)

    def dual_down(self, case: Case) -> Tensor:
        return -torch.relu(case.t - case.target)


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
        low = c.amin(dim, keepdim=True)
        return torch.where(target > 0, torch.minimum(self._reachable(target, low), low), target)

    def dual_clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        target = target.clamp(0, 1)
        if c is None:
            return target
        reached = self.clamp(1 - target, self._complement(c), dim)
        return torch.where(reached == 1 - target, target, 1 - reached)

    def up(self, case: Case) -> Tensor:
        t, c, goal, dim, pick = case.t, case.c, case.target, case.dim, case.pick
        index = pick(t.detach(), dim)
        alone = t.shape[dim] == 1 and c is None
        raised = torch.relu((goal if alone else torch.maximum(goal, self._threshold(goal))) - t)
        lowest = goal - t.gather(dim, index)
        if c is not None:  # the smallest constant may be the minimum; then nothing has to come down to it
            lowest = torch.where(goal < c.amin(dim, keepdim=True), lowest, raised.gather(dim, index))
        return raised.scatter(dim, index, lowest)

    def down(self, case: Case) -> Tensor:
        return torch.where(case.target <= 0, self._to_zero(case.t, case.c, case.dim, case.pick), self.up(case))


class NilpotentRefinement(_Lowest):
    r"""Nilpotent minimum, T = min if the two lowest sum to more than 1, else 0.

    For a target in (0, 1/2] all others must exceed 1 - t̂, by as little as the dtype can say: an infimum. Towards 0
    it is enough to lower the smallest until the two lowest sum to 1; that is minimal for L₁ only.
    """

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


class DrasticRefinement(_Lowest):
    """Drastic product, T = min if all others are 1, else 0.

    Towards a positive target all but the smallest become 1, for every p-norm. Towards 0 it is enough that two arguments
    are below 1, by as little as the dtype can say: an infimum.
    """

    norms = (1.0, math.inf)

    def _threshold(self, target: Tensor) -> Tensor:
        return torch.ones_like(target)

    def _complement(self, x: Tensor) -> Tensor:
        return lower(1 - x, torch.where(x > 0, torch.full_like(x, 1 - torch.finfo(x.dtype).eps / 2), 1.0))

    def _reachable(self, target: Tensor, low: Tensor) -> Tensor:
        return torch.where(low < 1, low, target)

    def _to_zero(self, t: Tensor, c: Tensor | None, dim: int, pick: Pick) -> Tensor:
        below = torch.zeros_like(t.sum(dim, keepdim=True)) if c is None else (c < 1).sum(dim, keepdim=True)
        wanted = 2 - below
        # the first two places of the smallest literals
        rank = t.detach().argsort(dim=dim, stable=True).argsort(dim)
        slightly = torch.where(rank < wanted, torch.relu(t - (1 - torch.finfo(t.dtype).eps)), 0.0)
        return torch.where(wanted > t.shape[dim], -t, -slightly)


def fill(room: Tensor, need: Tensor, case: Case) -> Tensor:
    r"""The δ with :math:`δ_i = \min(λ, \mathrm{room}_i)` and :math:`\sum_i δ_i = \mathrm{need}`.

    With the rooms sorted upwards, :math:`λ_K = (\mathrm{need} - \sum_{i<K} \mathrm{room}_i)/(n - K + 1)`. For every K
    the need is at most :math:`(n - K + 1)λ + \sum_{i<K} \mathrm{room}_i`, so λ ≥ λ_K, with equality at the K* of
    errata 3.2.
    """
    dim = case.dim
    smallest_first = room.sort(dim).values
    full = smallest_first.cumsum(dim) - smallest_first
    level = ((need - full) / case.countdown()).amax(dim, keepdim=True)
    return torch.minimum(torch.relu(level), room)


class LukasiewiczRefinement(Junction):
    r"""Łukasiewicz: the unique minimiser for p > 1, and minimal for p = 1 too (errata 3.2).

    With σ = Σt + ΣC. T up: equal rises, stopped at 1; T down: :math:`t_i - (σ - (n + m - 1) - \hat t)/n`; S up:
    :math:`t_i + (\hat t - σ)/n`; S down: equal falls, stopped at 0.
    """

    norms = (1.0, math.inf)
    still_down = True

    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        room = ONE - t
        missing = room.sum(dim, keepdim=True)
        if c is not None:
            missing = missing + (1 - c).sum(dim, keepdim=True)
        surplus = ONE - missing
        return torch.relu(surplus), (room, surplus)

    def dual_forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        total = t.sum(dim, keepdim=True)
        if c is not None:
            total = total + c.sum(dim, keepdim=True)
        return total.clamp_max(1), total

    def up(self, case: Case) -> Tensor:
        room, surplus = case.aux
        return fill(room, case.target - surplus, case)

    def down(self, case: Case) -> Tensor:
        fall = case.value - case.target
        each = -torch.relu(fall + self._slack(case, (case.target <= 0) & (fall > 0))) / case.t.shape[case.dim]
        return each.expand_as(case.t)

    def _slack(self, case: Case, ends: Tensor) -> Tensor:
        """What rounding may take from the sum of all arguments; beyond 0 and 1 there is room for it."""
        many = case.t.shape[case.dim] + (0 if case.c is None else case.c.shape[case.dim])
        return ends * (2 * many * torch.finfo(case.t.dtype).eps)

    def dual_rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick) -> Tensor:
        return (change / t.shape[dim]).expand_as(t)

    def dual_up(self, case: Case) -> Tensor:
        rise = case.target - case.value
        rise = torch.relu(rise + self._slack(case, (case.target >= 1) & (rise > 0)))
        return self.dual_rise(case.t, case.aux, rise, case.dim, case.pick)

    def dual_down(self, case: Case) -> Tensor:
        return -fill(case.t, case.aux - case.target, case)


class ProductRefinement(Junction):
    r"""Product, minimal for L₁ (errata 3.4).

    T up: all literals below λ rise to :math:`λ = \min_K (\hat t / (\prod_{j≤K} t^↓_j \prod C))^{1/(n-K)}`; T down: the
    smallest becomes :math:`t_i \hat t / T`, which is a change of :math:`(\hat t - T)/\prod_{j≠i} t_j \prod C`. S is
    dual.
    """

    norms = (1.0, 1.0)
    still_up = still_down = True

    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        return joined(t, c, dim).prod(dim, keepdim=True), None

    def up(self, case: Case) -> Tensor:
        t, c, target, dim = case.t, case.c, case.target, case.dim
        floor = cap(t, self.tnorm.eps) ** 2
        logs = t.clamp_min(floor).log()
        # where the target is met the level is 0, and nothing rises to it
        wanted = torch.where(target <= case.value, NEVER, target.clamp_min(floor).log())
        if c is not None:
            wanted = wanted - c.clamp_min(floor).log().sum(dim, keepdim=True)
        largest_first = logs.sort(dim, descending=True).values
        kept = largest_first.cumsum(dim) - largest_first
        level = ((wanted - kept) / case.countdown()).amin(dim, keepdim=True)
        if c is not None:  # without, the level of K = 0 is not above 0
            level = level.clamp_max(0)
        return torch.relu(level.exp() - t)

    def dual_forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        false = ONE - t
        rest = false.prod(dim, keepdim=True)
        if c is not None:
            rest = rest * (1 - c).prod(dim, keepdim=True)
        return ONE - rest, (false, rest)

    def dual_rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick, c: Tensor | None = None) -> Tensor:
        false, rest = aux
        if pick is first:
            whole, index = false.min(dim, keepdim=True)
        else:
            index = pick(-t.detach(), dim)
            whole = false.gather(dim, index)
        rise = change / self._others(false, None if c is None else 1 - c, index, dim)
        # all that is missing, but for rounding, and more than nothing
        certain = change > functional.softshrink(rest, cap(t))
        return one_of(t, index, _all_of(rise, whole, certain), dim)

    def dual_up(self, case: Case) -> Tensor:
        change = torch.relu(case.target - case.value)
        return self.dual_rise(case.t, case.aux, change, case.dim, case.pick, case.c)

    def _others(self, t: Tensor, c: Tensor | None, index: Tensor, dim: int) -> Tensor:
        """The product of all but one."""
        others = t.scatter(dim, index, 1.0).prod(dim, keepdim=True)
        if c is not None:
            others = others * c.prod(dim, keepdim=True)
        low = cap(t, self.tnorm.eps) ** 2
        return lift(others, low) if torch.is_grad_enabled() else others.clamp_min(low)  # the same, the second for less

    def down(self, case: Case) -> Tensor:
        t, c, value, target, dim, pick = case.t, case.c, case.value, case.target, case.dim, case.pick
        index = pick(t.detach(), dim)
        fall = torch.relu(value - target) / self._others(t, c, index, dim)
        certain = (target <= 0) & (target < value)
        return -one_of(t, index, _all_of(fall, t.gather(dim, index), certain), dim)


def _all_of(step: Tensor, whole: Tensor, certain: Tensor) -> Tensor:
    """The step, in value the whole one where that is meant: a target of 0 or 1 is met without rounding."""
    if torch.is_grad_enabled():  # without, the same for less
        whole = whole.detach() + (step - step.detach())
    return torch.where(certain, whole, step)


class GeneratorRefinement(Junction):
    """Any additive generator; minimal for L₁ if the generator is convex, and otherwise only on target."""

    @property
    def norms(self) -> tuple[float, float] | None:  # type: ignore[override]
        return (1.0, 1.0) if self._g.convex else None

    @property
    def _g(self) -> Generator:
        return cast("Archimedean | Product", self.tnorm).generator

    def _off_pole(self, x: Tensor) -> Tensor:
        floor = self._g.floor(x, cap(x, self.tnorm.eps))
        return lift(x, floor) if floor else x

    def _level(self, x: Tensor) -> Tensor:
        return self._g(self._off_pole(x)).clamp_max(_LARGEST)

    def _budget(self, c: Tensor | None, target: Tensor, dim: int) -> Tensor:
        """B."""
        budget = self._level(target.double())
        if not self._g.strict:  # the level of 0 itself, not of the floor that keeps derivatives finite
            budget = torch.where(target > 0, budget, self._g.zero)
        return budget if c is None else budget - self._level(c.double()).sum(dim, keepdim=True)

    def _height(self, level: Tensor, c: Tensor | None, target: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        """The truth value of a level; the target itself where one literal has to carry it alone."""
        height = self._g.inverse(level).to(dtype)
        return torch.where(level == self._budget(c, target, dim), target, height) if c is None else height

    def _attach(
        self, lam: Tensor, t: Tensor, kept: Tensor, count: Tensor | int, c: Tensor | None, target: Tensor, dim: int
    ) -> Tensor:
        """λ (the dimension kept) with its derivatives."""
        x = torch.cat([t, *([] if c is None else [c]), target], dim)
        parts = [-kept.to(t.dtype), *([] if c is None else [-torch.ones_like(c)])]
        share = torch.cat([*parts, torch.ones_like(target)], dim) / count
        limit = -math.log(cap(t, self.tnorm.eps))

        def derivatives(lam: Tensor, x: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
            ratio = torch.exp((self._slope(x) - self._slope(lam)).clamp_max(limit))
            return share * ratio, torch.zeros_like(share)

        return with_derivatives(lam.to(t.dtype), derivatives, x, share)

    def _slope(self, x: Tensor) -> Tensor:
        return self._g.log_slope(self._off_pole(x))

    def up(self, case: Case) -> Tensor:
        t, c, target, dim = case.t, case.c, case.target, case.dim
        with torch.no_grad():
            smallest_first = self._level(t.double()).sort(dim).values
            kept_levels = before(smallest_first, dim)
            count = case.countdown()
            budget = self._budget(c, target, dim)
            if c is not None:  # a target at its limit leaves a budget of 0, but for rounding
                rounding = 16 * cap(t) * self._level(target.double())
                budget = torch.where(budget > rounding, budget, 0.0)
            level = ((budget - kept_levels) / count).amax(dim, keepdim=True)
            lam = self._height(torch.relu(level), c, target, dim, t.dtype)
            raised = t < lam
            many = raised.sum(dim, keepdim=True).clamp_min(1)
        height = self._attach(lam, t, ~raised, many, c, target, dim)
        if c is not None:
            height = torch.where(level > 0, height, 1.0)
        return torch.where(raised, height - t, 0.0)

    def down(self, case: Case) -> Tensor:
        t, c, target, dim, pick = case.t, case.c, case.target, case.dim, case.pick
        with torch.no_grad():
            index = pick(t, dim)
            levels = self._level(t.double())
            others = levels.scatter(dim, index, 0.0).sum(dim, keepdim=True)
            level = torch.relu(self._budget(c, target, dim) - others)
            # Towards 0 a strict one met the floor of its pole; a nilpotent one has room for rounding below.
            slack = math.inf if self._g.strict else 16 * cap(t) * self._g.zero
            level = torch.where(target > 0, level, level + slack)
            lam = self._height(level, c, target, dim, t.dtype)
            beyond = torch.relu(lam - torch.finfo(t.dtype).eps * t.gather(dim, index))  # t + (λ - t) is rounded, too
            lam = torch.where(target > 0, lam, beyond)
            kept = torch.ones_like(t, dtype=torch.bool).scatter(dim, index, False)
        fall = self._attach(lam, t, kept, 1, c, target, dim) - t.gather(dim, index)
        return one_of(t, index, fall, dim)
