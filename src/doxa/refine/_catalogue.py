r"""From an operator to its refinement function: a closed form, or a search where none is minimal.

In levels :math:`y_i = g(z_i)` the constraint is a sum, and the cost :math:`\sum_i |g^{-1}(y_i) - t_i|^p` is separable:
from several starts, pairs of literals exchange level. Derivatives are those of the Karush-Kuhn-Tucker conditions, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from doxa import fuzzy
from doxa._numerics import cap
from doxa.errors import ConfigError
from doxa.refine import _closed as closed
from doxa.refine import _implication as implications
from doxa.refine._base import Case, Dual, Junction, Refinement, first
from doxa.refine._closed import GeneratorRefinement
from doxa.refine._implication import Fixed, ResiduumRefinement

_ROUNDS = 60
_SCALES = 26
_HALVINGS = 64


@dataclass(frozen=True)
class NumericalRefinement(GeneratorRefinement):
    """A t-norm with a generator and a p-norm, minimised numerically; far slower than a closed form."""

    p: float = 2.0
    numerical = True

    @property
    def norms(self) -> tuple[float, float]:  # type: ignore[override]
        return (self.p, self.p)

    def up(self, case: Case) -> Tensor:
        t, c, _, _, _, dim, *_ = case
        value, goal = case.value.squeeze(dim), case.target.squeeze(dim)
        t_last, c_last = t.movedim(dim, -1), None if c is None else c.movedim(dim, -1)
        with torch.no_grad():
            x = self._minimise(t_last.double(), None if c_last is None else c_last.double(), value, goal)
            # Searching where the target is met would move literals by rounding.
            x = torch.where((goal == value).unsqueeze(-1), t_last.double(), x)
        return (self._with_derivatives(x, t_last, c_last, goal) - t_last).movedim(-1, dim)

    def down(self, case: Case) -> Tensor:
        found = self.up(case)
        if self._g.strict:  # 0 has no level; the smallest literal goes there
            found = torch.where(case.target > 0, found, super().down(case))
        return found

    def _minimise(self, t: Tensor, c: Tensor | None, value: Tensor, target: Tensor) -> Tensor:
        g = self._g
        n = t.shape[-1]
        budget = torch.relu(self._budget(c, target.unsqueeze(-1), -1))
        most = budget if g.strict else budget.clamp_max(g.zero)
        own = self._level(t)
        y = self._starts(t, c, value.double(), target.double(), own, budget, most)
        if n > 1:
            idle = 0
            for k in range(max(_ROUNDS, 3 * n)):
                moved = self._exchange(y, *_pairs(n, k, t.device), t, own, most)
                idle = idle + 1 if torch.equal(moved, y) else 0
                y = moved
                if idle >= n:  # nobody gained from anybody
                    break
        cost = (g.inverse(y) - t).abs().pow(self.p).sum(-1)
        best = cost.argmin(0)[None, ..., None].expand(1, *y.shape[1:])
        return g.inverse(y.gather(0, best)[0])

    def _starts(
        self, t: Tensor, c: Tensor | None, value: Tensor, target: Tensor, own: Tensor, budget: Tensor, most: Tensor
    ) -> Tensor:
        """Levels to start from, each with the right sum."""
        n = t.shape[-1]
        case = Case(t, c, value.unsqueeze(-1), None, target.unsqueeze(-1), -1, first)
        closed = torch.where((target > value).unsqueeze(-1), super().up(case), super().down(case))
        guesses = [self._level((t + closed).clamp(0, 1)), own, (budget / n).expand_as(t)]
        # One literal, or all but some of one end, carry the change.
        order = t.argsort(-1, descending=True).argsort(-1)
        for rank in {0, 1, n // 2, n - 1}:
            if rank < n:
                guesses += [own * (order > rank), own * (order < rank), torch.where(order == rank, budget, own)]
                alone = order == rank
                others = (own * ~alone).sum(-1, keepdim=True)
                guesses.append(torch.where(alone, torch.relu(budget - others), own))
        y = torch.minimum(torch.stack(guesses), most)
        total = y.sum(-1, keepdim=True)
        room = most - y
        shrunk = y * (budget / total.clamp_min(1e-300)).clamp_max(1)
        missing = torch.relu(budget - total)
        return shrunk + room * (missing / room.sum(-1, keepdim=True).clamp_min(1e-300)).clamp_max(1)

    def _exchange(self, y: Tensor, i: Tensor, j: Tensor, t: Tensor, own: Tensor, most: Tensor) -> Tensor:
        """Each pair moves level from one literal to the other if that brings the vector nearer."""
        yi, yj = y[..., i], y[..., j]
        low, high = torch.maximum(-yi, yj - most), torch.minimum(most - yi, yj)
        scale = 0.5 ** torch.arange(_SCALES, dtype=y.dtype, device=y.device)
        single = torch.stack([torch.zeros_like(low), own[..., i] - yi, yj - own[..., j]], -1)
        low, high = low.unsqueeze(-1), high.unsqueeze(-1)
        tried = [single[..., :1], low * scale, high * scale, single[..., 1:]]
        steps = torch.minimum(torch.maximum(torch.cat(tried, -1), low), high)
        inverse = self._g.inverse
        zi, zj = inverse((yi.unsqueeze(-1) + steps).clamp_min(0)), inverse((yj.unsqueeze(-1) - steps).clamp_min(0))
        cost = (zi - t[..., i, None]).abs().pow(self.p) + (zj - t[..., j, None]).abs().pow(self.p)
        step = steps.gather(-1, cost.argmin(-1, keepdim=True)).squeeze(-1)
        y = y.clone()
        y[..., i], y[..., j] = (yi + step).clamp_min(0), (yj - step).clamp_min(0)
        return y

    def _with_derivatives(self, x: Tensor, t: Tensor, c: Tensor | None, target: Tensor) -> Tensor:
        """The point found, with the derivatives that the optimality conditions give it."""
        if not any(v is not None and v.requires_grad for v in (t, target, c)):
            return x.to(t.dtype)
        with torch.no_grad():
            gap = (x - t).abs()
            still = gap < 1e-7
            free = ~still & (x < 1 - 1e-9) & (x > 1e-9)
            with torch.enable_grad():
                at = x.detach().clamp(1e-9, 1 - 1e-9).requires_grad_()
                log_slope = self._slope(at)
                (bend,) = torch.autograd.grad(log_slope.sum(), at)
            slope = -torch.exp(log_slope.detach())  # g', up to a factor that cancels
            curve = slope * bend
            pull = self.p * gap.clamp_min(1e-12).pow(self.p - 1) * torch.sign(x - t)
            # μ from the stationarity of the literal that moved most
            widest = torch.where(free, gap, -1.0).argmax(-1, keepdim=True)
            mu = -(pull / slope).gather(-1, widest)
            own = self.p * (self.p - 1) * gap.clamp_min(1e-12).pow(self.p - 2) if self.p > 1 else torch.zeros_like(x)
            bending = own + mu * curve
            bending = torch.where(bending.abs() > 1e-9, bending, 1e-9)
            weight = torch.where(free, slope / bending, 0.0)
            spread = weight / (weight * slope).sum(-1, keepdim=True).where(free.any(-1, keepdim=True), torch.ones(()))
            goal_slope = -torch.exp(self._slope(target.double()))
            through = torch.where(still, slope, torch.where(free, slope * own / bending, 0.0))
        moved_t, moved_goal = (t - t.detach()).double(), (target - target.detach()).double()
        right = goal_slope * moved_goal - (through * moved_t).sum(-1)
        if c is not None:
            constant_slope = -torch.exp(self._slope(c.detach().double()))
            right = right - (constant_slope * (c - c.detach())).sum(-1)
        direct = torch.where(still, moved_t, torch.where(free, own / bending * moved_t, 0.0))
        return (x + direct + torch.where(free, spread * right.unsqueeze(-1), 0.0)).to(t.dtype)


@dataclass(frozen=True)
class EuclideanProductRefinement(NumericalRefinement):
    r"""The product t-norm in the Euclidean norm: raising it has a closed form up to one number λ.

    The points with :math:`\prod z_i ≥ \hat t` are a convex set, so what is stationary is nearest:

    .. math:: z_i (z_i - t_i) = λ, \qquad z_i = \min(1, (t_i + \sqrt{t_i^2 + 4λ}) / 2),

    and the product increases with λ, which bisection finds to the last bits (for two literals it is the root of a
    quartic). Lowering it is not convex, and searched for.
    """

    def _minimise(self, t: Tensor, c: Tensor | None, value: Tensor, target: Tensor) -> Tensor:
        rises = (target > value).unsqueeze(-1)
        raised = self._raised(t, target.double() / (1.0 if c is None else c.prod(-1)))
        return raised if bool(rises.all()) else torch.where(rises, raised, super()._minimise(t, c, value, target))

    def _raised(self, t: Tensor, product: Tensor) -> Tensor:
        low, high = torch.zeros_like(product), torch.ones_like(product)  # at λ = 1 every literal is 1

        def at(level: Tensor) -> Tensor:
            return ((t + (t.square() + 4 * level.unsqueeze(-1)).sqrt()) / 2).clamp_max(1)

        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = at(middle).prod(-1) >= product
            low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
        return at(high)


def _pairs(n: int, k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Round k of a tournament of n literals: disjoint pairs; in n - 1 rounds (n even) everyone meets everyone."""
    even = n + n % 2
    ring = (torch.arange(even - 1, device=device) + k) % (even - 1)
    left = torch.cat([torch.tensor([even - 1], device=device), ring[1 : even // 2]])
    right = torch.cat([ring[:1], ring[even // 2 :].flip(0)])
    present = (left < n) & (right < n)
    return left[present], right[present]


@dataclass(frozen=True)
class NumericalResiduumRefinement(ResiduumRefinement):
    """The residuum of a t-norm with a generator, for any p-norm: a search along the level curve c = T(t̂, a)."""

    p: float = 2.0  # type: ignore[misc]
    numerical = True

    @property
    def norms(self) -> tuple[float, float]:  # type: ignore[override]
        return (self.p, self.p)

    def _to(self, a: Tensor, c: Tensor, value: Tensor, target: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        closed_a, closed_c = super()._to(a, c, value, target, fixed)
        if fixed is not None:
            return closed_a, closed_c
        with torch.no_grad():
            found = self._along(a.double(), c.double(), target.double(), closed_a.double()).to(a.dtype)
        moved = self._with_derivatives(found, a, c, target)
        new_a = torch.where((found - closed_a).abs() > 1e-7, moved, closed_a)
        return new_a, self._tnorm(target, new_a)

    def _cost(self, z: Tensor, a: Tensor, c: Tensor, target: Tensor) -> Tensor:
        return (z - a).abs().pow(self.p) + (self._tnorm(target, z) - c).abs().pow(self.p)

    def _along(self, a: Tensor, c: Tensor, target: Tensor, start: Tensor) -> Tensor:
        nothing = torch.zeros_like(a)
        lowest = nothing + cap(a) if self._g.strict else self.implication(target, nothing)
        grid = torch.linspace(0, 1, 257, dtype=a.dtype, device=a.device)
        a, c, target, lowest = (x.unsqueeze(-1) for x in (a, c, target, lowest))
        points = torch.cat([lowest + (1 - lowest) * grid, start.unsqueeze(-1)], -1)
        best = points.gather(-1, self._cost(points, a, c, target).argmin(-1, keepdim=True))
        width = (1 - lowest) / 256
        near = torch.linspace(-1, 1, 17, dtype=a.dtype, device=a.device)
        for _ in range(18):
            points = torch.minimum(torch.maximum(best + width * near, lowest), torch.ones_like(best))
            best = points.gather(-1, self._cost(points, a, c, target).argmin(-1, keepdim=True))
            width = width / 4
        return best.squeeze(-1)

    def _with_derivatives(self, z: Tensor, a: Tensor, c: Tensor, target: Tensor) -> Tensor:
        """The stationary point with the derivative of its stationarity."""
        if not (a.requires_grad or c.requires_grad or target.requires_grad):
            return z
        with torch.enable_grad():
            at = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self._cost(at, a, c, target).sum(), at, create_graph=True)
            (bend,) = torch.autograd.grad(slope.sum(), at, retain_graph=True)
        flat = bend.detach().abs() < 1e-9
        step = (slope - slope.detach()) / torch.where(flat, 1.0, bend.detach())
        return z - torch.where(flat, 0.0, step)


Found = TypeVar("Found", bound=Refinement)

_JUNCTIONS: Mapping[type[fuzzy.TNorm], Callable[[Any], Junction]] = {
    fuzzy.Godel: closed.GodelRefinement,
    fuzzy.Lukasiewicz: closed.LukasiewiczRefinement,
    fuzzy.Product: closed.ProductRefinement,
    fuzzy.NilpotentMinimum: closed.NilpotentRefinement,
    fuzzy.Drastic: closed.DrasticRefinement,
}
_RESIDUA: Mapping[type[fuzzy.TNorm], Callable[[Any], Refinement]] = {
    fuzzy.NilpotentMinimum: implications.FodorRefinement,
    fuzzy.Drastic: implications.WeberRefinement,
}


def refinement(operator: object, p: float | None = None) -> Refinement:
    """The minimal refinement function of a t-norm, a t-conorm, an S-implication or a residuum.

    Args:
        operator: the operator, from :mod:`doxa.fuzzy`.
        p: the p-norm in which the result must be minimal: a closed form where one is, a numerical search
            (``.numerical``) where none is. None takes the closed form, whatever it is minimal for (``.norms``).

    >>> from doxa.fuzzy import Godel, Product, Yager
    >>> refinement(Product().dual).norms, refinement(Godel().residuum, p=2).norms
    ((1.0, 1.0), (1.0, inf))
    >>> [refinement(*case).numerical for case in ((Product(), 2), (Yager(0.5), 1), (Yager(2.0), 1))]
    [True, True, False]
    """
    if p is not None and not (1 <= p < math.inf):
        raise ConfigError(f"p is {p}, expected a finite number of at least 1, or None for the closed form")
    match operator:
        case fuzzy.TNorm():
            return _junction(operator, p)
        case fuzzy.TConorm():
            return Dual(_junction(operator.tnorm, p))
        case fuzzy.SImplication():
            if operator.negation != fuzzy.STANDARD:
                raise ConfigError(f"{operator!r} has another negation than the standard negation, 1 - a")
            return implications.SImplicationRefinement(Dual(_junction(operator.tconorm.tnorm, p)))
        case fuzzy.RImplication(fuzzy.Lukasiewicz()):  # both S and R
            return implications.SImplicationRefinement(Dual(_junction(operator.tnorm, p)))
        case fuzzy.RImplication(fuzzy.Godel()):
            return implications.GodelResiduumRefinement(operator, p or 1.0)
        case fuzzy.RImplication():
            closed_form = _family(operator.tnorm, _RESIDUA, implications.ResiduumRefinement)(operator)
            return _minimal(closed_form, operator, operator.tnorm, p) or NumericalResiduumRefinement(operator, p or 1.0)
    known = "t-norms, t-conorms, S-implications with the standard negation, and residua"
    raise ConfigError(f"{operator!r} has no refinement function; there are those of {known}")


def _junction(tnorm: fuzzy.TNorm, p: float | None) -> Junction:
    closed_form = _family(tnorm, _JUNCTIONS, closed.GeneratorRefinement)(tnorm)
    if found := _minimal(closed_form, tnorm, tnorm, p):
        return found
    searched = EuclideanProductRefinement if isinstance(tnorm, fuzzy.Product) and p == 2 else NumericalRefinement
    return searched(tnorm, p or 1.0)


def _family(
    tnorm: fuzzy.TNorm, table: Mapping[type[fuzzy.TNorm], Callable[[Any], Found]], generated: Callable[[Any], Found]
) -> Callable[[Any], Found]:
    """What refines the family of a t-norm: its own, or that of any additive generator."""
    for family, own in table.items():
        if isinstance(tnorm, family):
            return own
    if tnorm.generator is None:
        raise ConfigError(f"{tnorm!r} has no additive generator, and so no refinement function")
    return generated


def _minimal(closed_form: Found, operator: object, tnorm: fuzzy.TNorm, p: float | None) -> Found | None:
    """The closed form if it is minimal as asked for; None if a search has to be."""
    if p is None or closed_form.minimal_for(p):
        return closed_form
    if tnorm.generator is None:
        raise ConfigError(f"the refinement of {operator!r} is minimal for L1 only, p={p} was asked for; take p=1")
    return None
