r"""Refinement of implications a → c: the last axis of the truth values holds the antecedent and the consequent.

S-implications are t-conorms of (1 - a, c) (Prop. s-implication). Of a residuum with convex generator L₁ moves the
consequent only (errata 3.3): :math:`[a, T(\hat t, a)]` for t̂ < 1, [a, max(a, c)] for t̂ = 1, unless a is too small for
the target; then a rises first. Targets that have only an infimum are missed by a few units of rounding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from doxa._numerics import cap, lift
from doxa.errors import ConfigError
from doxa.fuzzy import Archimedean, Generator, Implication, Product, RImplication, SImplication
from doxa.refine._base import Case, Dual, Pick, Refinement, first

Fixed = Literal["antecedent", "consequent"] | None


class ImplicationRefinement(Refinement):
    """Refinement of an implication; ``ρ(truth, target, fixed="antecedent")`` keeps one side as it is."""

    implication: Implication

    def __call__(  # type: ignore[override]
        self, truth: Tensor, target: Tensor | float, *, fixed: Fixed = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """The refined antecedent and consequent, ``(*batch, 2)``; ``target`` is ``(*batch)``."""
        if fixed not in (None, "antecedent", "consequent"):
            raise ConfigError(f"fixed is {fixed!r}, expected None, 'antecedent' or 'consequent'")
        t, _, goal = self._prepare(truth, target, None)
        return self._pair(t, goal, fixed)

    def _pair(self, t: Tensor, goal: Tensor, fixed: Fixed) -> Tensor:
        a, c = t.unbind(-1)
        return (t + torch.stack(self.change(a, c, self.implication(a, c), goal, fixed), -1)).clamp(0, 1)

    def _refined(self, t: Tensor, c: Tensor | None, goal: Tensor, pick: Pick) -> Tensor:
        return self._pair(t, goal, None)

    def _prepare(
        self, truth: Tensor, number: Tensor | float, constants: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        if truth.dim() and truth.shape[-1] != 2:
            raise ConfigError(f"truth has shape {tuple(truth.shape)}, expected (*batch, 2): antecedent and consequent")
        if constants is not None:
            raise ConfigError("an implication has no constants; hold a side with fixed='antecedent' or 'consequent'")
        return super()._prepare(truth, number, None)

    @abstractmethod
    def change(self, a: Tensor, c: Tensor, value: Tensor, target: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        """The changes of antecedent and consequent; that of a fixed one is 0."""

    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        return self.implication(t.narrow(dim, 0, 1), t.narrow(dim, 1, 1)), None

    def clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        return target.clamp(0, 1)

    def delta(self, case: Case) -> Tensor:
        t, dim = case.t, case.dim
        return torch.cat(self.change(t.narrow(dim, 0, 1), t.narrow(dim, 1, 1), case.value, case.target, None), dim)


class SImplicationRefinement(ImplicationRefinement):
    """S(1 - a, c): the refinement of the t-conorm, with the change of 1 - a turned round."""

    def __init__(self, inner: Dual) -> None:
        self.inner, self.implication = inner, SImplication(inner.operator)
        self.norms, self.numerical, self.turns = inner.norms, inner.numerical, inner.turns

    def change(self, a: Tensor, c: Tensor, value: Tensor, target: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        sides = torch.stack([1 - a, c], -1)
        if fixed is None:
            free, constant = sides, None
        else:
            here, there = (1, 0) if fixed == "antecedent" else (0, 1)
            free, constant = sides.narrow(-1, here, 1), sides.narrow(-1, there, 1)
        value, aux = self.inner.forward(free, constant, -1)
        goal = self.inner.clamp(target.unsqueeze(-1), constant, -1)
        change = self.inner.delta(Case(free, constant, value, aux, goal, -1, first))
        if fixed is None:
            return -change[..., 0], change[..., 1]
        moved, rest = change[..., 0], torch.zeros_like(a)
        return (rest, moved) if fixed == "antecedent" else (-moved, rest)


@dataclass(frozen=True)
class _Residuum(ImplicationRefinement):
    """A residuum: 1 is a region, and a target within rounding of 1 means it."""

    implication: RImplication
    norms = (1.0, 1.0)
    p: ClassVar[float] = 1.0
    ordered: ClassVar[bool] = True
    """Whether it is 1 just where a ≤ c."""

    def change(self, a: Tensor, c: Tensor, value: Tensor, target: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        new_a, new_c, certain = self._values(a, c, value, target, fixed)
        change_a, change_c = new_a - a, new_c - c
        # c + (a - c) may round to less than a, and the residuum would jump from 1 to c.
        if not self.ordered:
            return change_a, change_c
        short = torch.where(certain, torch.relu((a + change_a) - (c + change_c)), 0.0).detach() * 2
        return (change_a - short, change_c) if fixed == "consequent" else (change_a, change_c + short)

    def _pair(self, t: Tensor, goal: Tensor, fixed: Fixed) -> Tensor:
        # Not by way of changes: beside a small antecedent the rounding of c + (z - c) is much.
        a, c = t.unbind(-1)
        return torch.stack(self._values(a, c, self.implication(a, c), goal, fixed)[:2], -1).clamp(0, 1)

    def _values(
        self, a: Tensor, c: Tensor, value: Tensor, target: Tensor, fixed: Fixed
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The refined pair, and where the target is 1."""
        target = target.clamp(0, 1)
        certain = target >= 1 - 8 * torch.finfo(a.dtype).eps
        true_a, true_c = self._to_one(a, c, fixed)
        other_a, other_c = self._to(a, c, value, target, fixed)
        met = (target == value) | (certain & (value >= 1))
        new_a = a if fixed == "antecedent" else torch.where(met, a, torch.where(certain, true_a, other_a))
        new_c = c if fixed == "consequent" else torch.where(met, c, torch.where(certain, true_c, other_c))
        return new_a, new_c, certain & ~met

    def _to_one(self, a: Tensor, c: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        """The refined pair for a target of 1; for p > 1 both go to their mean, the unique minimiser."""
        if self.p > 1 and fixed is None:
            mean = torch.where(a > c, (a + c) / 2, a)
            return mean, torch.where(a > c, mean, c)
        return torch.minimum(a, c) if fixed == "consequent" else a, torch.maximum(a, c)

    @abstractmethod
    def _to(self, a: Tensor, c: Tensor, value: Tensor, target: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        """The refined pair for a target below 1."""


class ResiduumRefinement(_Residuum):
    """The residuum of a t-norm with a generator; minimal for L₁ if the generator is convex."""

    @property
    def norms(self) -> tuple[float, float] | None:  # type: ignore[override]
        return (1.0, 1.0) if self._g.convex else None

    @property
    def _tnorm(self) -> Archimedean | Product:
        return cast("Archimedean | Product", self.implication.tnorm)

    @property
    def _g(self) -> Generator:
        return self._tnorm.generator

    def _to(self, a: Tensor, c: Tensor, value: Tensor, target: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        strict = self._g.strict
        if fixed == "consequent":
            lowered = self.implication(torch.maximum(target, c), c)
            if strict:  # the residuum of c = 0 is 0 for any a > 0
                tiny = cap(a, self._tnorm.eps)
                lowered = torch.where(c > 0, lowered, torch.where(a > 0, a, tiny))
            return lowered, c
        if fixed is None and strict:
            a = lift(a, self._least(a, target))
        met = torch.where(a > 0, self._tnorm(target, a), c)
        if fixed is None and not strict:
            least = self.implication(target, torch.zeros_like(a))
            return torch.maximum(a, least), torch.where(a > least, met, 0.0)
        return a, met

    @torch.no_grad()
    def _least(self, a: Tensor, target: Tensor) -> Tensor | float:
        """The smallest antecedent from which the target can be told from others, to half the digits."""
        eps = cap(a, self._tnorm.eps)
        if isinstance(self._tnorm, Product):
            return eps
        least = torch.full_like(a, eps**0.125)
        for k in range(2, 9):
            candidate = torch.full_like(a, eps ** (k / 8))
            missed = (self.implication(candidate, self._tnorm(target, candidate)) - target).abs()
            least = torch.where(missed <= eps**0.5, candidate, least)
        return least


@dataclass(frozen=True)
class GodelResiduumRefinement(_Residuum):
    r"""Gödel: [a, t̂] if t̂ < a, [t̂ + ε, t̂] otherwise; for t̂ = 1 the consequent rises to a (errata 3.1).

    With ``p`` above 1 a target of 1 moves both to their mean; for L₁ any common value in between is as near.
    """

    p: float = 1.0  # type: ignore[misc]

    @property
    def norms(self) -> tuple[float, float]:  # type: ignore[override]
        # The mean of two numbers is nearest to both in every strictly convex norm, and as near as any in L₁.
        return (1.0, math.inf) if self.p > 1 else (1.0, 1.0)

    def _to(self, a: Tensor, c: Tensor, value: Tensor, target: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        step = 2 * torch.finfo(a.dtype).eps
        if fixed == "antecedent":
            # Only [0, a) and 1 can be reached: above a the target is 1.
            return a, torch.where(target < a, target, torch.maximum(a, c))
        if fixed == "consequent":
            return torch.where(a > c, a, (c + step).clamp_max(1)), c
        return torch.where(a > target, a, target + step), target


class FodorRefinement(_Residuum):
    """The residuum of the nilpotent minimum, 1 if a ≤ c, else max(1 - a, c), which is its S-implication too.

    A target below 1 is met by the consequent or by the antecedent, whichever is nearer in L₁.
    """

    turns = True

    def _to(self, a: Tensor, c: Tensor, value: Tensor, target: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        step = 2 * torch.finfo(a.dtype).eps
        if fixed == "antecedent":
            # With a > 1/2 the values are [1 - a, a) and 1, otherwise only 1 - a and 1.
            between = torch.where(target > 1 - a, target, torch.minimum(c, 1 - a))
            below = torch.where(a > 0.5, between, torch.minimum(c, torch.relu(a - step)))
            rises = value < target
            unreachable = torch.where(a > 0.5, target >= a, rises)
            return a, torch.where(unreachable, torch.maximum(a, c), below)
        if fixed == "consequent":
            # With c < 1/2 the values are [c, 1 - c) and 1, otherwise only c and 1.
            above = (c + step).clamp_max(1)
            lowest = torch.maximum(torch.maximum(a, 1 - c), above)
            met = torch.where(target <= c, lowest, 1 - target)
            return torch.where(met > c, met, torch.where(value < target, torch.minimum(a, c), above)), c
        first_a = torch.maximum(torch.maximum(a, 1 - target), target + step)
        second_a, second_c = 1 - target, torch.minimum(torch.minimum(c, target), 1 - target - step)
        cost = (first_a - a).abs() + (target - c).abs()
        by_antecedent = ((second_a - a).abs() + (second_c - c).abs() < cost) & (second_c >= 0)
        return torch.where(by_antecedent, second_a, first_a), torch.where(by_antecedent, second_c, target)


class WeberRefinement(_Residuum):
    """The residuum of the drastic product, c if a = 1, else 1."""

    norms = (1.0, math.inf)
    ordered = False

    def _to_one(self, a: Tensor, c: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        if fixed == "antecedent":
            return a, torch.where(a >= 1, torch.ones_like(c), c)
        return a.clamp_max(1 - torch.finfo(a.dtype).eps), c

    def _to(self, a: Tensor, c: Tensor, value: Tensor, target: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        if fixed == "antecedent":
            return a, torch.where(a >= 1, target, c)
        return torch.ones_like(a), c if fixed == "consequent" else target
