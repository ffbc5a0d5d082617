r"""What every minimal refinement function shares (Chapter 4, "Minimal Fuzzy Refinement Functions").

For an operator f, truth values t and constants C, a refinement function finds the vector nearest to t that has the
wanted truth (Eq. optim-problem):

.. math::  ρ(t, C, \hat t) = \arg\min_{z ∈ [0,1]^n} ‖z - t‖_p \quad\text{such that}\quad f(z, C) = \hat t

The target is compared with f(t, C), constants included, and clamped to what f can reach; a target that is already met
leaves t as it is; of literals that tie for the smallest or the largest, one is changed (errata 3.0).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from doxa._numerics import truth as as_truth
from doxa.errors import ConfigError

__all__ = ["Direction", "Pick", "Refinement", "before", "first", "one_of", "random_pick"]

Direction = Literal["up", "down", "both"]
"""Which way the truth of a node may have to move; knowing it saves computing the other way."""
Pick = Callable[[Tensor, int], Tensor]
"""Where the smallest element along a dimension stands, the dimension kept; ties are its business."""


def first(x: Tensor, dim: int) -> Tensor:
    """The first of the smallest; not by argmin, which is ten times slower along a dimension that is not the last."""
    return x.min(dim, keepdim=True).indices


def random_pick(generator: torch.Generator) -> Pick:
    """Any of the smallest, each as likely as the others."""

    def pick(x: Tensor, dim: int) -> Tensor:
        chance = torch.rand(x.shape, generator=generator, device=x.device)
        return torch.where(x == x.amin(dim, keepdim=True), chance, -1.0).argmax(dim, keepdim=True)

    return pick


def one_of(like: Tensor, index: Tensor, amount: Tensor, dim: int) -> Tensor:
    """Zeros with ``amount`` at ``index``."""
    return torch.zeros_like(like).scatter(dim, index, amount)


def before(x: Tensor, dim: int) -> Tensor:
    """The sum of what stands before each element; not a difference, which a huge element would drown."""
    sums = x.cumsum(dim).narrow(dim, 0, x.shape[dim] - 1)
    return torch.cat([torch.zeros_like(x.narrow(dim, 0, 1)), sums], dim)


class Refinement(ABC):
    """A refinement function: ``ρ(truth, target, constants)``, and the norm for which its result is minimal.

    >>> from doxa.fuzzy import Product
    >>> from doxa.refine import refinement
    >>> rho = refinement(Product())
    >>> rho(torch.tensor([0.3, 0.9, 0.5]), torch.tensor(0.4))
    tensor([0.6667, 0.9000, 0.6667])
    >>> rho.minimal_for(1), rho.minimal_for(2), rho.numerical
    (True, False, False)
    """

    norms: tuple[float, float] | None
    """The result is minimal in every p-norm with p in this closed interval; None: in none that is known of."""
    numerical: bool = False
    """Whether the result comes from a numerical search instead of a closed form."""
    turns: bool = False
    """Whether raising the truth may lower literals (or the other way round): so for discontinuous operators."""

    def minimal_for(self, p: float) -> bool:
        """Whether nothing with the wanted truth is nearer in the p-norm."""
        return self.norms is not None and self.norms[0] <= p <= self.norms[1]

    def __call__(
        self,
        truth: Tensor,
        target: Tensor | float,
        constants: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The refined truth values.

        Args:
            truth: ``(*batch, n)``.
            target: the wanted truth of the operator, ``(*batch)`` or what broadcasts to it.
            constants: ``(*batch, m)``, further arguments that stay.
            generator: breaks ties at random; without it the first literal is taken.
        """
        t, c, goal = self._prepare(truth, target, constants)
        pick = first if generator is None else random_pick(generator)
        if not self._changeable(t):
            return t
        return self._refined(t, c, goal, pick)

    def _refined(self, t: Tensor, c: Tensor | None, goal: Tensor, pick: Pick) -> Tensor:
        value, aux = self.forward(t, c, -1)
        return (t + self.delta(t, c, value, aux, self.clamp(goal, c, -1), -1, "both", pick)).clamp(0, 1)

    def value(self, truth: Tensor, constants: Tensor | None = None) -> Tensor:
        """The truth of the operator.

        >>> from doxa.fuzzy import Godel
        >>> from doxa.refine import refinement
        >>> refinement(Godel()).value(torch.tensor([0.3, 0.6]), torch.tensor([0.2]))
        tensor(0.2000)
        """
        t, c, _ = self._prepare(truth, 0.0, constants)
        return self.forward(t, c, -1)[0]

    @torch.no_grad()
    def _target_for(self, t: Tensor, c: Tensor | None, budget: Tensor, p: float, up: bool) -> Tensor:
        """The furthest target whose refinement stays within the budget: first on a grid, then by bisection."""
        value = self.forward(t, c, -1)[0]
        ends = torch.full_like(value, float(up))
        limit = self.clamp(ends, c, -1)

        def within(goal: Tensor) -> Tensor:
            moved: Tensor = torch.linalg.vector_norm(self._refined(t, c, goal, first) - t, ord=p, dim=-1)
            return moved <= budget

        low, high = value, limit
        for k in range(1, 33):
            goal = value + (limit - value) * (k / 32)
            inside = within(goal)
            low = torch.where(inside, goal, low)
        high = torch.where(low == limit, limit, low + (limit - value) / 32)
        for _ in range(50):
            middle = (low + high) / 2
            inside = within(middle)
            low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
        return low

    def best(
        self,
        truth: Tensor,
        budget: Tensor | float,
        constants: Tensor | None = None,
        *,
        direction: Literal["up", "down"] = "up",
        p: float | None = None,
    ) -> Tensor:
        """The dual problem: the vector of highest (or lowest) truth within a distance of ``truth``.

        Args:
            truth: ``(*batch, n)``.
            budget: the distance that may be gone, ``(*batch)`` or what broadcasts to it.
            constants: ``(*batch, m)``.
            direction: ``"up"`` for the highest truth, ``"down"`` for the lowest.
            p: the norm of the distance; by default the smallest for which the refinement is minimal.

        The target that uses up the budget is found by search and then held fixed: derivatives are those of refining
        towards it.

        >>> from doxa.fuzzy import Lukasiewicz
        >>> from doxa.refine import refinement
        >>> refinement(Lukasiewicz()).best(torch.tensor([0.7, 0.6]), 0.2)
        tensor([0.8000, 0.7000])
        """
        if direction not in ("up", "down"):
            raise ConfigError(f"direction is {direction!r}, expected 'up' or 'down'")
        p = (1.0 if self.norms is None else self.norms[0]) if p is None else p
        t, c, allowed = self._prepare(truth, budget, constants)
        if not self._changeable(t):
            return t
        return self._refined(t, c, self._target_for(t, c, allowed, p, direction == "up"), first)

    def _prepare(
        self, truth: Tensor, number: Tensor | float, constants: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        if not truth.dim():
            raise ConfigError("truth has no axes, expected (*batch, n); say truth.unsqueeze(-1) for one literal")
        t = as_truth(truth)
        goal = torch.as_tensor(number, dtype=t.dtype, device=t.device)
        shapes = [t.shape[:-1], goal.shape] + ([] if constants is None else [constants.shape[:-1]])
        try:
            batch = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
        except RuntimeError:
            raise ConfigError(
                f"the leading shapes of truth, target and constants, {', '.join(str(tuple(s)) for s in shapes)}, do "
                "not broadcast; truth is (*batch, n), target (*batch), constants (*batch, m)"
            ) from None
        c = None
        if constants is not None and constants.shape[-1]:
            c = as_truth(constants).to(t.dtype).expand(*batch, constants.shape[-1])
        return t.expand(*batch, t.shape[-1]), c, goal.expand(batch)

    def _changeable(self, t: Tensor) -> bool:
        return t.shape[-1] > 0

    # What follows is for those who call many times: no checks, any dimension, changes instead of values.

    @abstractmethod
    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        """The truth of the operator over ``dim``, and whatever :meth:`delta` can use again."""

    @abstractmethod
    def clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        """The target, brought into the range of the operator with these constants."""

    def rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick) -> Tensor | None:
        """The change of t, without constants, that raises the truth by ``change`` ≥ 0; None if that needs the target.

        Whoever hands down changes need not make targets of them, which this would make changes again.
        """
        return None

    @abstractmethod
    def delta(
        self,
        t: Tensor,
        c: Tensor | None,
        value: Tensor,
        aux: Any,
        target: Tensor,
        dim: int,
        direction: Direction,
        pick: Pick,
    ) -> Tensor:
        """The change of t that brings the operator from ``value`` to ``target``, which :meth:`clamp` has seen."""
