r"""The nearest point of a polyhedron for many points at once: a dual active-set method, then rounding with a check.

Goldfarb and Idnani 1983, "A numerically stable dual method for solving strictly convex quadratic programs", for the
objective ½‖x - x₀‖². Every point has a set W of rows that hold with equality, and multipliers u ≥ 0 with
x = x₀ - N_Wᵀ u. The row p that is violated most enters: with the pseudo-inverse M = (N_W N_Wᵀ)⁻¹ N_W, the step is
z = n_p - N_Wᵀ r, r = M n_p; it goes until row p holds, or until a multiplier reaches 0 and its row leaves. Both change
M by a product of two vectors. If a violated row depends on W and no row can leave, no point satisfies all rows.

Points are compared and corrected against their active rows in every round, so that rounding does not add up, and a
point of size 1e30 ends within rounding of a bound of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.refine._linear_system import Contradiction, prove

if TYPE_CHECKING:
    from doxa.refine._linear_system import LinearSystem

_ROOM = 1 << 21
"""How many numbers the pseudo-inverses of one round may have together."""
_NOISE = 4 * torch.finfo(torch.float64).eps
_DEPENDENT = 1e-18
"""Below this square of its distance from the span of the active rows, a row (of length 1) depends on them."""
ULPS = 4
"""How many units in the last place of its scale a row may be violated by."""


@dataclass
class Solution:
    """Points in float64, ``(points, values)``, and which rows hold them, ``(points, rows)``."""

    values: Tensor
    active: Tensor
    clash: tuple[int, Contradiction] | None = None
    """A point for which the rows contradict each other, and which do."""


@dataclass
class _State:
    """Points on their way."""

    place: Tensor
    x: Tensor
    on: Tensor
    active: Tensor
    u: Tensor
    inverse: Tensor
    entering: Tensor
    """The row that enters, or -1."""
    force: Tensor
    """The multiplier of the row that enters."""

    def keep(self, chosen: Tensor) -> _State:
        return _State(*[getattr(self, name)[chosen] for name in _STATE])


_STATE = tuple(_State.__dataclass_fields__)


class Solver:
    """Finds nearest points of one system."""

    def __init__(self, system: LinearSystem, device: torch.device | None = None) -> None:
        self.system = system
        matrix, bounds = system.matrix.to(device), system.bounds.to(device)
        length = matrix.norm(dim=1)
        length = torch.where(length > 0, length, 1.0)
        self.rows, self.bounds = matrix / length.unsqueeze(1), bounds / length
        self.length, self.equality = length, system.equality.to(device)
        self.sizes = self.rows.abs()
        self.single = ((matrix != 0).sum(1) == 1).nonzero().flatten()
        self.column = self.sizes[self.single].argmax(1)
        self.ends = bounds[self.single] / matrix[self.single, self.column]

    def solve(self, points: Tensor, on: Tensor | None = None, double: bool = True) -> Solution:
        """The nearest points, for ``(points, values)`` in float64 and the rows that hold, ``(points, rows)``.

        ``double`` corrects them once more, with residuals of twice the digits.
        """
        rows, n = self.rows.shape
        chunk = max(_ROOM // max(rows * n, 1), 1)
        if not rows or not len(points):
            return Solution(points, points.new_zeros(len(points), rows, dtype=torch.bool))
        values, active = [], []
        for start in range(0, len(points), chunk):
            part = slice(start, start + chunk)
            held = points.new_ones(1, rows, dtype=torch.bool).expand(len(points[part]), -1) if on is None else on[part]
            found = self._solve(points[part], held, double)
            if found.clash is not None:
                return Solution(points, active=held, clash=(start + found.clash[0], found.clash[1]))
            values.append(found.values)
            active.append(found.active)
        return Solution(torch.cat(values), torch.cat(active))

    def _solve(self, points: Tensor, on: Tensor, double: bool) -> Solution:
        state, clash = self._equalities(points, on)
        values, active = points.clone(), torch.zeros_like(on)
        for _ in range(100 + 20 * sum(self.rows.shape)):
            if clash is not None or not len(state.place):
                return Solution(values, active, clash)
            done, moving = self._choose(state)
            finished = int(done.sum())
            if 4 * finished >= len(done):
                ready = state.keep(done)
                if double:
                    residual = self.system.measure(ready.x)[0] / self.length
                    ready.x = self._corrected(ready, residual, self._noise(ready.x) / 8)
                values[ready.place], active[ready.place] = ready.x, ready.active
                state, moving = state.keep(~done), moving[~done]
            if len(state.place):
                clash = self._step(state, moving)
        raise ConfigError(
            f"no nearest point was found for {len(state.place)} rows: the constraints are nearly dependent on each "
            "other, beyond what float64 can tell apart; remove those that nearly repeat another"
        )

    def _equalities(self, points: Tensor, on: Tensor) -> tuple[_State, tuple[int, Contradiction] | None]:
        """The points on their equalities, which are the first active rows and never leave."""
        rows, n = self.rows.shape
        equalities = self.equality.nonzero().flatten().tolist()
        patterns, which = distinct(on[:, equalities])
        count = len(patterns)
        state = _State(
            place=torch.arange(count, device=points.device),
            x=points.new_zeros(count, n),
            on=points.new_zeros(count, rows, dtype=torch.bool),
            active=points.new_zeros(count, rows, dtype=torch.bool),
            u=points.new_zeros(count, rows),
            inverse=points.new_zeros(count, rows, n),
            entering=torch.full((count,), -1, device=points.device),
            force=points.new_zeros(count),
        )
        state.on[:, equalities] = patterns
        clash = None
        for p in equalities:
            state.x = self._corrected(state, state.x @ self.rows.T - self.bounds, self._noise(state.x))
            r, z, zz = self._direction(state, torch.full_like(state.place, p))
            free = state.on[:, p] & (zz > _DEPENDENT)
            residual = state.x @ self.rows[p] - self.bounds[p]
            noise = self._noise(state.x)[:, p]
            for bad in (state.on[:, p] & ~free & (residual.abs() > 4 * noise)).nonzero().flatten().tolist()[:1]:
                first = int((which == bad).nonzero()[0])
                clash = first, self._contradiction(p, state.active[bad], r[bad])
            z = torch.where(free.unsqueeze(1), z / zz.clamp_min(_DEPENDENT).unsqueeze(1), 0.0)
            state.x = state.x - z * residual.unsqueeze(1)
            state.inverse = state.inverse - r.unsqueeze(2) * z.unsqueeze(1)
            state.inverse[:, p] = z
            state.active[:, p] = free
        state = state.keep(which)
        state.place, state.x, state.on = torch.arange(len(points), device=points.device), points.clone(), on
        return state, clash

    def _noise(self, x: Tensor) -> Tensor:
        return _NOISE * (x.abs() @ self.sizes.T + self.bounds.abs())

    def _corrected(self, state: _State, residual: Tensor, noise: Tensor) -> Tensor:
        """The points, put back onto those active rows that they are off by more than noise.

        The others are left: what rounding leaves in a row of huge terms is huge for a row of small ones.
        """
        off = torch.where(state.active & (residual.abs() > noise), residual, 0.0)
        x = state.x - (off.unsqueeze(1) @ state.inverse).squeeze(1)
        # A row of one term puts its value exactly onto the bound.
        held = state.active[:, self.single]
        if not held.shape[1]:
            return x
        fixed = x.new_full(x.shape, -torch.inf)
        fixed.scatter_reduce_(1, self.column.expand_as(held), torch.where(held, self.ends, -torch.inf), "amax")
        return torch.where(torch.isinf(fixed), x, fixed)

    def _direction(self, state: _State, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """How the multipliers and the point move with the multiplier of row p; twice, so that z is orthogonal."""
        normal = self.rows[p]
        r = (state.inverse @ normal.unsqueeze(2)).squeeze(2)
        z = normal - r @ self.rows
        again = (state.inverse @ z.unsqueeze(2)).squeeze(2)
        r, z = r + again, z - again @ self.rows
        return r, z, (z * z).sum(1)

    def _choose(self, state: _State) -> tuple[Tensor, Tensor]:
        """Correct the points, and let the worst violated row enter where none does; which are done, which can move."""
        before = state.x @ self.rows.T - self.bounds
        state.x = self._corrected(state, before, self._noise(state.x))
        residual = state.x @ self.rows.T - self.bounds
        noise = self._noise(state.x)
        # As long as a correction halves what rounding left, another one is worth its while.
        off, was = (torch.where(state.active, t.abs() - 4 * noise, 0.0).amax(1) for t in (residual, before))
        unsettled = (off > 0) & (2 * off < was)
        violated = torch.where(state.on & ~state.active & ~self.equality, residual - noise, -torch.inf)
        worst, row = violated.max(1)
        start = (worst > 0) & (state.entering < 0) & ~unsettled
        state.entering = torch.where(start, row, state.entering)
        state.force = torch.where(start, 0.0, state.force)
        return (state.entering < 0) & ~unsettled, (state.entering >= 0) & ~unsettled

    def _step(self, state: _State, moving: Tensor) -> tuple[int, Contradiction] | None:
        """Let the entering rows enter, or a row leave; a contradiction if neither is possible."""
        p = state.entering.clamp_min(0)
        r, z, zz = self._direction(state, p)
        dependent = zz <= _DEPENDENT
        at = torch.arange(len(p), device=p.device)
        residual = (state.x * self.rows[p]).sum(1) - self.bounds[p]
        may_leave = state.active & ~self.equality & (r > 1e-12)
        until_zero, leaving = torch.where(may_leave, state.u.clamp_min(0) / r.clamp_min(1e-12), torch.inf).min(1)
        until_held = torch.where(dependent, torch.inf, residual.clamp_min(0) / zz.clamp_min(_DEPENDENT))
        step = torch.minimum(until_zero, until_held)
        stuck = moving & torch.isinf(step)
        if bool(stuck.any()):
            # A row that only rounding let enter holds by now.
            holds = residual <= self._noise(state.x)[at, p]
            state.entering = torch.where(stuck & holds, -1, state.entering)
            moving, stuck = moving & ~stuck, stuck & ~holds
        for bad in stuck.nonzero().flatten().tolist()[:1]:
            return int(state.place[bad]), self._contradiction(int(p[bad]), state.active[bad], r[bad])
        step = torch.where(moving, step, 0.0)
        enters = moving & (until_held <= until_zero)
        leaves = moving & ~enters
        state.x = state.x - torch.where(dependent.unsqueeze(1), 0.0, step.unsqueeze(1) * z)
        state.u = torch.where(state.active, state.u - step.unsqueeze(1) * r, 0.0)
        state.force = state.force + step
        # one product of two vectors changes every pseudo-inverse
        gone = state.inverse[at, leaving]
        size = (gone * gone).sum(1).clamp_min(1e-300)
        overlap = (state.inverse @ gone.unsqueeze(2)).squeeze(2) / size.unsqueeze(1)
        unit = z / zz.clamp_min(_DEPENDENT).unsqueeze(1)
        left = torch.where(enters.unsqueeze(1), r, torch.where(leaves.unsqueeze(1), overlap, 0.0))
        change = left.unsqueeze(2) * torch.where(enters.unsqueeze(1), unit, gone).unsqueeze(1)
        # What should be 0 is made 0, so that rows of huge terms leave rows of small ones alone.
        state.inverse = torch.nn.functional.hardshrink(state.inverse - change, _NOISE)
        changed = torch.where(enters, p, leaving)
        some = enters | leaves
        new = torch.where(enters.unsqueeze(1), unit, 0.0)
        state.inverse[at[some], changed[some]] = new[some]
        state.active[at[some], changed[some]] = enters[some]
        state.u[at[some], changed[some]] = torch.where(enters, state.force, 0.0)[some]
        state.entering = torch.where(enters, -1, state.entering)
        return None

    def _contradiction(self, p: int, active: Tensor, r: Tensor) -> Contradiction:
        """The proof that row p cannot hold beside the active rows that it depends on."""
        scaled = [(float(c) * float(self.length[p]), int(i)) for i, c in enumerate(r) if bool(active[i])]
        places = [p, *[i for c, i in scaled if abs(c) > 1e-9]]
        found = prove(self.system, places)
        if found is None:
            named = ", ".join(f"`{self.system.rows[i]}`" for i in places)
            raise ConfigError(
                f"could not decide whether these rows can hold together: {named}; they are so nearly dependent on each "
                "other that float64 cannot tell; remove one of them, or give them whole coefficients"
            )
        return found


def distinct(sets: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows of a matrix, and which of them each row is."""
    if not sets.shape[1]:
        return sets[:1], torch.zeros(len(sets), dtype=torch.int64, device=sets.device)
    found: tuple[Tensor, Tensor] = torch.unique(sets, dim=0, return_inverse=True)
    return found


def rounded(system: LinearSystem, points: Tensor, on: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Points in float64 as ``dtype``, so that every row holds within ``ULPS`` units in the last place of its scale.

    Rounding moves a term by at most one unit of its row's scale, so rows of four terms hold by themselves. Where a
    longer one does not, single values are moved, each as far as its row needs, as long as that lessens the excess.
    """
    values = points.to(dtype)
    for _ in range(64):
        excess = _excess(system, values, on)
        bad = (excess > ULPS).any(-1).nonzero().flatten()
        if not len(bad):
            return values
        values[bad] = _nudged(system, values[bad], excess[bad], None if on is None else on[bad])
    worst = int(_excess(system, values, on).amax(-1).argmax())
    row = system.rows[int(_excess(system, values, on)[worst].argmax())]
    raise ConfigError(
        f"no {str(dtype).removeprefix('torch.')} values near {points[worst].tolist()} satisfy `{row}` within rounding; "
        "use float64, or rows with fewer terms"
    )


def _excess(system: LinearSystem, values: Tensor, on: Tensor | None) -> Tensor:
    excess = system.excess(values)
    return excess if on is None else torch.where(on, excess, 0.0)


def _nudged(system: LinearSystem, values: Tensor, excess: Tensor, on: Tensor | None) -> Tensor:
    """Each point with the one value moved that helps most against its worst row; a value of chance if none helps."""
    count, n = values.shape
    worst = excess.argmax(-1)
    residual = system.measure(values)[0].gather(1, worst.unsqueeze(1))
    coefficients = system.matrix.to(values.device)[worst]
    move = torch.where(coefficients != 0, -residual / torch.where(coefficients != 0, coefficients, 1.0), 0.0)
    wide = values.to(torch.float64)
    tried = wide.unsqueeze(1) + torch.diag_embed(move)  # (points, which value moves, values)
    tried = tried.to(values.dtype).flatten(0, 1)
    repeated = None if on is None else on.repeat_interleave(n, 0)
    cost = (_excess(system, tried, repeated) - ULPS / 2).clamp_min(0).square().sum(-1).view(count, n)
    best = cost.argmin(1)
    return tried.view(count, n, n)[torch.arange(count, device=values.device), best]
