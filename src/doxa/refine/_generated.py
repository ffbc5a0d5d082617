r"""Refinement of t-norms given by an additive generator (errata 3.3).

With g convex and :math:`B = g(\hat t) - \sum g(C)`:

* T up: all literals below λ rise to λ, :math:`g(λ) = \max_K (B - \sum_{i≤K} g(t^↓_i))/(n - K)`;
* T down: the smallest becomes :math:`g^{-1}(B - \sum_{j≠i} g(t_j))`.

Either way some literals (r of them: those raised, or the smallest) are set to one λ with
:math:`r\,g(λ) = g(\hat t) - \sum_{kept} g(t_j) - \sum g(C)`, so :math:`∂λ/∂x = ± g'(x)/(r\,g'(λ))`. The value is
found in float64 and the derivative by that quotient, which is finite where the derivative of each step is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from doxa._numerics import cap, lift
from doxa.fuzzy import Archimedean, Generator, Product, TNorm
from doxa.refine._base import Pick, before, one_of
from doxa.refine._junction import Junction

__all__ = ["GeneratorRefinement"]

_LARGEST = 1e290
"""Levels beyond it (strict families with large parameters) count as this: sums of them stay finite."""


class _Implicit(torch.autograd.Function):
    """λ as a function of x, with ∂λ/∂x = share · exp(log_slope(x) - log_slope(λ)), capped."""

    generate_vmap_rule = True

    @staticmethod
    def forward(lam: Tensor, slope: Callable[[Tensor], Tensor], limit: float, x: Tensor, share: Tensor) -> Tensor:
        return lam.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.slope, ctx.limit, x, share = inputs
        ctx.save_for_backward(output, x, share)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        lam, x, share = ctx.saved_tensors
        ratio = torch.exp((ctx.slope(x) - ctx.slope(lam)).clamp_max(ctx.limit))
        return None, None, None, grads[0] * share * ratio, None


@dataclass(frozen=True)
class GeneratorRefinement(Junction):
    """Any additive generator; minimal for L₁ if the generator is convex, and otherwise only on target.

    >>> from doxa.fuzzy import Dombi, Yager
    >>> GeneratorRefinement(Dombi(2.0))(torch.tensor([0.3, 0.7, 0.9]), 0.6)
    tensor([0.6674, 0.7000, 0.9000])
    >>> GeneratorRefinement(Yager(0.5)).norms is None
    True
    """

    tnorm: TNorm

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
        """B, with the dimension kept."""
        budget = self._level(target.double()).unsqueeze(dim)
        return budget if c is None else budget - self._level(c.double()).sum(dim, keepdim=True)

    def _height(self, level: Tensor, c: Tensor | None, target: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        """The truth value of a level; the target itself where one literal has to carry it alone."""
        height = self._g.inverse(level).to(dtype)
        return (
            torch.where(level == self._budget(c, target, dim), target.unsqueeze(dim), height) if c is None else height
        )

    def _attach(
        self, lam: Tensor, t: Tensor, kept: Tensor, count: Tensor | int, c: Tensor | None, target: Tensor, dim: int
    ) -> Tensor:
        """λ (the dimension kept) with its derivatives."""
        x = torch.cat([t, *([] if c is None else [c]), target.unsqueeze(dim)], dim)
        parts = [-kept.to(t.dtype), *([] if c is None else [-torch.ones_like(c)])]
        share = torch.cat([*parts, torch.ones_like(target).unsqueeze(dim)], dim) / count
        limit = -math.log(cap(t, self.tnorm.eps))
        result: Tensor = _Implicit.apply(lam.to(t.dtype), self._slope, limit, x, share)  # type: ignore[no-untyped-call]
        return result

    def _slope(self, x: Tensor) -> Tensor:
        return self._g.log_slope(self._off_pole(x))

    def up(self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick) -> Tensor:
        n = t.shape[dim]
        with torch.no_grad():
            smallest_first = self._level(t.double()).sort(dim).values
            kept_levels = before(smallest_first, dim)
            shape = [1] * t.dim()
            shape[dim] = n
            count = torch.arange(n, 0, -1, dtype=torch.float64, device=t.device).view(shape)
            budget = self._budget(c, target, dim)
            if c is not None:  # a target at its limit leaves a budget of 0, but for rounding
                rounding = 16 * cap(t) * self._level(target.double()).unsqueeze(dim)
                budget = torch.where(budget > rounding, budget, 0.0)
            level = ((budget - kept_levels) / count).amax(dim, keepdim=True)
            lam = self._height(torch.relu(level), c, target, dim, t.dtype)
            raised = t < lam
            many = raised.sum(dim, keepdim=True).clamp_min(1)
        height = self._attach(lam, t, ~raised, many, c, target, dim)
        if c is not None:
            height = torch.where(level > 0, height, 1.0)
        return torch.where(raised, height - t, 0.0)

    def down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        with torch.no_grad():
            index = pick(t, dim)
            levels = self._level(t.double())
            others = levels.scatter(dim, index, 0.0).sum(dim, keepdim=True)
            level = torch.relu(self._budget(c, target, dim) - others)
            # Towards 0 a strict one met the floor of its pole; a nilpotent one has room for rounding below.
            slack = math.inf if self._g.strict else 16 * cap(t) * self._g.zero
            level = torch.where(target.unsqueeze(dim) > 0, level, level + slack)
            lam = self._height(level, c, target, dim, t.dtype)
            kept = torch.ones_like(t, dtype=torch.bool).scatter(dim, index, False)
        fall = self._attach(lam, t, kept, 1, c, target, dim) - t.gather(dim, index)
        return one_of(t, index, fall, dim)
