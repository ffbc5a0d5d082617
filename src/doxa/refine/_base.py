r"""What every minimal refinement function shares (Chapter 4, "Minimal Fuzzy Refinement Functions"; errata 3.0).

For an operator f, truth values t and constants C: :math:`ρ(t, C, \hat t) = \arg\min_z ‖z - t‖_p` such that
:math:`f(z, C) = \hat t`. The target is clamped to what f can reach; of literals that tie one is changed. T-conorms
follow by duality, :math:`ρ_S(t, C, \hat t) = 1 - ρ_T(1 - t, 1 - C, 1 - \hat t)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from doxa._numerics import truth as as_truth
from doxa.errors import ConfigError
from doxa.fuzzy import TConorm, TNorm
from doxa.logic.bind._bindings import has_values

Direction = Literal["up", "down", "both"]
"""Which way the truth of a node may have to move; knowing it saves computing the other way."""
Pick = Callable[[Tensor, int], Tensor]
"""Where the smallest element along a dimension stands, the dimension kept; ties are its business."""


with torch.inference_mode(False):
    ONE = torch.ones((), device="cpu")
    """The number 1. A number in Python becomes a tensor at each call, which takes as long as a small operation."""
    NEVER = torch.full((), -torch.inf, device="cpu")
    """The number -∞, likewise."""


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


def joined(t: Tensor, c: Tensor | None, dim: int) -> Tensor:
    """Propositions and constants in one tensor."""
    return t if c is None else torch.cat([t, c], dim)


def before(x: Tensor, dim: int) -> Tensor:
    """The sum of what stands before each element; not a difference, which a huge element would drown."""
    sums = x.cumsum(dim).narrow(dim, 0, x.shape[dim] - 1)
    return torch.cat([torch.zeros_like(x.narrow(dim, 0, 1)), sums], dim)


def require_numbers(x: Tensor) -> Tensor:
    """Truth values without NaN; an error says how many rows have one. One sum tells, where values can be looked at."""
    if has_values(x) and not torch._C._get_tracing_state() and isnan(x.detach().sum().item()):
        rows = x.isnan().reshape(-1, x.shape[-1]).any(-1)
        if wrong := int(rows.sum()):
            wanted = "expected numbers; look at the network before this layer"
            raise ConfigError(f"the truth values are NaN in {wrong:,} of {len(rows):,} rows, {wanted}")
    return x


class Case(NamedTuple):
    """An operator over ``dim`` to be brought from ``value`` to ``target``, which :meth:`Refinement.clamp` has seen.

    Both have that dimension too, with length 1.
    """

    t: Tensor
    c: Tensor | None
    """Constants, if there are any."""
    value: Tensor
    aux: Any
    """What :meth:`Refinement.forward` left to be used again."""
    target: Tensor
    dim: int
    pick: Pick
    direction: Direction = "both"
    places: Tensor | None = None
    """n, …, 2, 1 along ``dim``, for those who call many times; see :meth:`countdown`."""

    def countdown(self) -> Tensor:
        """n, …, 2, 1 along ``dim``."""
        t, dim, places = self.t, self.dim, self.places
        if places is not None and places.dtype == t.dtype:
            return places
        shape = [1] * t.dim()
        shape[dim] = t.shape[dim]
        return torch.arange(t.shape[dim], 0, -1, dtype=t.dtype, device=t.device).view(shape)


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
        return (t + self.delta(Case(t, c, value, aux, self.clamp(goal.unsqueeze(-1), c, -1), -1, pick))).clamp(0, 1)

    def value(self, truth: Tensor, constants: Tensor | None = None) -> Tensor:
        """The truth of the operator.

        >>> from doxa.fuzzy import Godel
        >>> from doxa.refine import refinement
        >>> refinement(Godel()).value(torch.tensor([0.3, 0.6]), torch.tensor([0.2]))
        tensor(0.2000)
        """
        t, c, _ = self._prepare(truth, 0.0, constants)
        return self.forward(t, c, -1)[0].squeeze(-1)

    @torch.no_grad()
    def _target_for(self, t: Tensor, c: Tensor | None, budget: Tensor, p: float, up: bool) -> Tensor:
        """The furthest target whose refinement stays within the budget: first on a grid, then by bisection."""
        value = self.forward(t, c, -1)[0]
        limit = self.clamp(torch.full_like(value, float(up)), c, -1).squeeze(-1)
        value = value.squeeze(-1)

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
            truth, constants: as in calling.
            budget: the distance that may be gone, ``(*batch)`` or what broadcasts to it.
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
            came = f"the leading shapes of truth, target and constants, {', '.join(str(tuple(s)) for s in shapes)}"
            wanted = "truth is (*batch, n), target (*batch), constants (*batch, m)"
            raise ConfigError(f"{came}, do not broadcast; {wanted}") from None
        c = None
        if constants is not None and constants.shape[-1]:
            c = as_truth(constants).to(t.dtype).expand(*batch, constants.shape[-1])
        return t.expand(*batch, t.shape[-1]), c, goal.expand(batch)

    def _changeable(self, t: Tensor) -> bool:
        return t.shape[-1] > 0

    # What follows is for those who call many times: no checks, any dimension, changes instead of values. Truths of the
    # operator, targets and their changes keep the dimension, with length 1.

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
    def delta(self, case: Case) -> Tensor:
        """The change of t that brings the operator to its target."""


class _Both(Refinement):
    """Up where the target is above the value, down where it is below, nothing where it is met."""

    still_up: bool = False
    """Whether ``up`` is 0 by itself where the target is not above the value."""
    still_down: bool = False
    """Whether ``down`` is 0 by itself where the target is not below the value."""

    @abstractmethod
    def up(self, case: Case) -> Tensor:
        """The change towards a target ≥ value; whatever it likes where they are equal."""

    @abstractmethod
    def down(self, case: Case) -> Tensor:
        """The change towards a target ≤ value; whatever it likes where they are equal."""

    def delta(self, case: Case) -> Tensor:
        direction = case.direction
        rise = None
        if direction != "down":
            rise = self.up(case)
            if not self.still_up:
                rise = rise.masked_fill(case.target <= case.value, 0.0)
            if direction == "up":
                return rise
        fall = self.down(case)
        if not self.still_down:
            fall = fall.masked_fill(case.target >= case.value, 0.0)
        return fall if rise is None else rise + fall


@dataclass(frozen=True)
class Junction(_Both):
    """Refinement of a t-norm, and of its dual t-conorm: by way of 1 - t, or in a shorter form where there is one."""

    tnorm: TNorm

    @property
    def operator(self) -> TNorm:
        """The operator that is refined."""
        return self.tnorm

    @property
    def dual(self) -> Dual:
        """Refinement of the dual t-conorm."""
        return Dual(self)

    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        return self.tnorm.reduce(joined(t, c, dim), dim).unsqueeze(dim), None

    def clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        target = target.clamp(0, 1)
        return target if c is None else torch.minimum(target, self.forward(c, None, dim)[0])

    def _refined(self, t: Tensor, c: Tensor | None, goal: Tensor, pick: Pick) -> Tensor:
        found = super()._refined(t, c, goal, pick)
        # T is 1 just where all its arguments are: no rounding then, the derivative stays.
        certain = (self.clamp(goal.unsqueeze(-1), c, -1) >= 1) & (self.forward(t, c, -1)[0] < 1)
        return found + torch.where(certain, 1 - found, 0.0).detach()

    # The t-conorm: what the methods without "dual" do for the t-norm.

    def dual_forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        return self.tnorm.dual.reduce(joined(t, c, dim), dim).unsqueeze(dim), None

    def dual_clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        target = target.clamp(0, 1)
        return target if c is None else torch.maximum(target, self.dual_forward(c, None, dim)[0])

    def dual_rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick) -> Tensor | None:
        return None

    def dual_up(self, case: Case) -> Tensor:
        return self._turned(self.down, case)

    def dual_down(self, case: Case) -> Tensor:
        return self._turned(self.up, case)

    def _turned(self, way: Callable[[Case], Tensor], case: Case) -> Tensor:
        t, c = self._complement(case.t), None if case.c is None else self._complement(case.c)
        change = way(Case(t, c, 1 - case.value, None, 1 - case.target, case.dim, case.pick))
        # 1 - (1 - t) may be off by a rounding: what became 1 has to become 0 here, and what stayed has to stay.
        return torch.where(change == 0, 0.0, 1 - (t + change) - case.t)

    def _complement(self, x: Tensor) -> Tensor:
        """1 - x, as far as this t-norm can tell."""
        return 1 - x


class Dual(_Both):
    """Refinement of the t-conorm that is dual to a refined t-norm."""

    def __init__(self, junction: Junction) -> None:
        self.junction = junction
        self.operator: TConorm = junction.tnorm.dual
        self.norms, self.numerical, self.turns = junction.norms, junction.numerical, junction.turns
        self.still_up, self.still_down = junction.still_down, junction.still_up

    def _refined(self, t: Tensor, c: Tensor | None, goal: Tensor, pick: Pick) -> Tensor:
        found = super()._refined(t, c, goal, pick)
        # then all arguments are 0
        certain = (self.clamp(goal.unsqueeze(-1), c, -1) <= 0) & (self.forward(t, c, -1)[0] > 0)
        return found - torch.where(certain, found, 0.0).detach()

    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        return self.junction.dual_forward(t, c, dim)

    def clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        return self.junction.dual_clamp(target, c, dim)

    def rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick) -> Tensor | None:
        return self.junction.dual_rise(t, aux, change, dim, pick)

    def up(self, case: Case) -> Tensor:
        return self.junction.dual_up(case)

    def down(self, case: Case) -> Tensor:
        return self.junction.dual_down(case)
