r"""The nearest point of a polyhedron for many points at once: a dual active-set method, then rounding with a check.

Goldfarb and Idnani 1983, "A numerically stable dual method for solving strictly convex quadratic programs", for the
objective ½‖x - x₀‖². Every point has a set W of rows that hold with equality, and multipliers u ≥ 0 with
x = x₀ - N_Wᵀ u. The row p that is violated most enters: with the pseudo-inverse M = (N_W N_Wᵀ)⁻¹ N_W, the step is
z = n_p - N_Wᵀ r, r = M n_p; it goes until row p holds, or until a multiplier reaches 0 and its row leaves. Both change
M by a product of two vectors. If a violated row depends on W and no row can leave, no point satisfies all rows.

Points are corrected against their active rows in every round, so that rounding does not add up and a point of size 1e30
ends within rounding of a bound of 1. For results in float64 the method goes on with twice the digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.refine._linear_proof import Contradiction, Rows, prove

_ROOM = 1 << 21
"""How many numbers the pseudo-inverses of one round may have together."""
_NOISE = 4 * torch.finfo(torch.float64).eps
_FINE = 1e-28
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
    low: Tensor
    """What x lacks: digits beyond those of float64."""
    on: Tensor
    skipped: Tensor
    """Rows that only rounding violates, until the next row enters."""
    active: Tensor
    u: Tensor
    inverse: Tensor
    entering: Tensor
    """The row that enters, or -1."""
    force: Tensor
    """The multiplier of the row that enters."""
    residual: Tensor

    def keep(self, chosen: Tensor) -> _State:
        return _State(*[getattr(self, name)[chosen] for name in _STATE])

    def move(self, change: Tensor, fine: bool) -> None:
        if not fine:
            self.x = self.x + change
            return
        change = self.low + change
        new = self.x + change
        part = new - self.x
        self.x, self.low = new, (self.x - (new - part)) + (change - part)


_STATE = tuple(_State.__dataclass_fields__)
_Clash = tuple[int, Contradiction]


class Solver:
    """Finds nearest points of one system."""

    def __init__(self, system: Rows, device: torch.device | None = None) -> None:
        self.system = system
        matrix, bounds = system.matrix.to(device), system.bounds.to(device)
        length = matrix.norm(dim=1)
        length = torch.where(length > 0, length, 1.0)
        self.rows, self.bounds = matrix / length.unsqueeze(1), bounds / length
        self.length, self.equality = length, system.equality.to(device)
        self.sizes = self.rows.abs()
        self.single = ((matrix != 0).sum(1) == 1).nonzero().flatten()
        self.column = self.sizes[self.single].argmax(1)
        first = matrix[self.single, self.column]
        self.ends = bounds[self.single] / first
        at_end = torch.zeros(len(self.single), matrix.shape[1], dtype=torch.float64, device=device)
        at_end = at_end.scatter(1, self.column.unsqueeze(1), self.ends.unsqueeze(1))
        left = system.residual(at_end).gather(1, self.single.unsqueeze(1)).squeeze(1)
        self.ends_low = -left / first
        self._proofs: dict[tuple[int, ...], Contradiction | None] = {}

    def solve(self, points: Tensor, on: Tensor | None = None, fine: bool = True) -> Solution:
        """The nearest points, for ``(points, values)`` in float64 and the rows that hold, ``(points, rows)``.

        ``fine`` goes on with twice the digits of float64, so that the points can be rounded to float64.
        """
        rows, n = self.rows.shape
        chunk = max(_ROOM // max(rows * n, 1), 1)
        if not rows or not len(points):
            return Solution(points, points.new_zeros(len(points), rows, dtype=torch.bool))
        values, active = points.clone(), points.new_zeros(len(points), rows, dtype=torch.bool)
        for start in range(0, len(points), chunk):
            part = points[start : start + chunk]
            state, clash = self._equalities(part, None if on is None else on[start : start + chunk])
            for digits in (False, True) if fine else (False,):
                if clash is None:
                    state, clash = self._run(state, digits)
            if clash is not None:
                return Solution(values, active, (start + clash[0], clash[1]))
            values[start + state.place], active[start + state.place] = state.x, state.active
        return Solution(values, active)

    def _run(self, state: _State, fine: bool) -> tuple[_State, _Clash | None]:
        """The points when no row is violated any more."""
        ready: list[_State] = []
        for _ in range(100 + 20 * sum(self.rows.shape)):
            done, moving = self._choose(state, fine)
            finished = int(done.sum())
            if 4 * finished >= len(done):
                ready.append(state.keep(done))
                state, moving = state.keep(~done), moving[~done]
            if not len(state.place):
                return _State(*[torch.cat([getattr(r, name) for r in ready]) for name in _STATE]), None
            if (clash := self._step(state, moving, fine)) is not None:
                return state, clash
        raise ConfigError(
            f"no nearest point was found for {len(state.place)} rows of the batch: some constraints are so nearly "
            "dependent on each other that float64 cannot tell them apart; remove those that nearly repeat another"
        )

    def _equalities(self, points: Tensor, on: Tensor | None) -> tuple[_State, _Clash | None]:
        """The points with their equalities as the first active rows, which never leave."""
        rows, n = self.rows.shape
        equalities = self.equality.nonzero().flatten().tolist()
        if on is None:  # one pattern, that of all rows
            on = torch.ones(1, rows, dtype=torch.bool, device=points.device).expand(len(points), -1)
            patterns, which = on[:1, equalities], torch.zeros(len(points), dtype=torch.int64, device=points.device)
        else:
            patterns, which = distinct(on[:, equalities])
        count = len(patterns)
        off, zero = points.new_zeros(count, rows, dtype=torch.bool), points.new_zeros(count, rows)
        state = _State(
            place=torch.arange(count, device=points.device),
            x=points.new_zeros(count, n),
            low=points.new_zeros(count, n),
            on=off.clone(),
            skipped=off.clone(),
            active=off.clone(),
            u=zero,
            inverse=points.new_zeros(count, rows, n),
            entering=torch.full((count,), -1, device=points.device),
            force=points.new_zeros(count),
            residual=zero,
        )
        state.on[:, equalities] = patterns
        clash = None
        for p in equalities:
            self._correct(state, False)
            r, z, zz = self._direction(state, torch.full_like(state.place, p))
            free = state.on[:, p] & (zz > _DEPENDENT)
            residual, noise = state.residual[:, p], self._noise(state, False)[:, p]
            for bad in (state.on[:, p] & ~free & (residual.abs() > noise)).nonzero().flatten().tolist():
                proof = self._contradiction(p, state.active[bad], r[bad])
                if proof is not None and clash is None:
                    clash = int((which == bad).nonzero()[0]), proof
            z = torch.where(free.unsqueeze(1), z / zz.clamp_min(_DEPENDENT).unsqueeze(1), 0.0)
            state.move(-z * residual.unsqueeze(1), False)
            state.inverse = torch.nn.functional.hardshrink(state.inverse - r.unsqueeze(2) * z.unsqueeze(1), _NOISE)
            state.inverse[:, p] = z
            state.active[:, p] = free
        state = state.keep(which)
        state.place, state.x, state.on = torch.arange(len(points), device=points.device), points, on
        return state, clash

    def _measured(self, state: _State, fine: bool) -> Tensor:
        if fine:
            return self.system.residual(state.x, state.low) / self.length
        return state.x @ self.rows.T - self.bounds

    def _noise(self, state: _State, fine: bool) -> Tensor:
        return (_FINE if fine else _NOISE) * (state.x.abs() @ self.sizes.T + self.bounds.abs())

    def _correct(self, state: _State, fine: bool) -> Tensor:
        """Put the points back onto those active rows that they are off by more than noise; True where it helped.

        The others are left: what rounding leaves in a row of huge terms is huge for a row of small ones. A row of one
        term puts its value exactly onto the bound.
        """
        before, noise = self._measured(state, fine), 4 * self._noise(state, fine)
        was = torch.where(state.active, before.abs() - noise, 0.0)
        state.move(-(torch.where(was > 0, before, 0.0).unsqueeze(1) @ state.inverse).squeeze(1), fine)
        held = state.active[:, self.single]
        if held.shape[1]:
            fixed = torch.full_like(state.x, -torch.inf)
            index = self.column.expand_as(held)
            fixed.scatter_reduce_(1, index, torch.where(held, self.ends, -torch.inf), "amax")
            free = torch.isinf(fixed)
            state.x = torch.where(free, state.x, fixed)
            if fine:
                low = torch.full_like(state.x, -torch.inf)
                low.scatter_reduce_(1, index, torch.where(held, self.ends_low, -torch.inf), "amax")
                state.low = torch.where(free, state.low, low)
        state.residual = self._measured(state, fine)
        off = torch.where(state.active, state.residual.abs() - noise, 0.0).amax(1)
        # As long as a correction halves what rounding left, another one is worth its while.
        return (off > 0) & (2 * off < was.amax(1))

    def _direction(self, state: _State, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """How the multipliers and the point move with the multiplier of row p; twice, so that z is orthogonal."""
        normal = self.rows[p]
        r = (state.inverse @ normal.unsqueeze(2)).squeeze(2)
        z = normal - r @ self.rows
        again = (state.inverse @ z.unsqueeze(2)).squeeze(2)
        r, z = r + again, z - again @ self.rows
        return r, z, (z * z).sum(1)

    def _choose(self, state: _State, fine: bool) -> tuple[Tensor, Tensor]:
        """Correct the points, and let the worst violated row enter where none does; which are done, which can move."""
        unsettled = self._correct(state, fine)
        may = state.on & ~state.active & ~self.equality & ~state.skipped
        worst, row = torch.where(may, state.residual - self._noise(state, fine), -torch.inf).max(1)
        start = (worst > 0) & (state.entering < 0) & ~unsettled
        state.entering = torch.where(start, row, state.entering)
        state.force = torch.where(start, 0.0, state.force)
        return (state.entering < 0) & ~unsettled, (state.entering >= 0) & ~unsettled

    def _step(self, state: _State, moving: Tensor, fine: bool) -> _Clash | None:
        """Let the entering rows enter, or a row leave; a contradiction if neither is possible."""
        p = state.entering.clamp_min(0)
        r, z, zz = self._direction(state, p)
        dependent = zz <= _DEPENDENT
        at = torch.arange(len(p), device=p.device)
        residual = state.residual[at, p]
        may_leave = state.active & ~self.equality & (r > 1e-12)
        until_zero, leaving = torch.where(may_leave, state.u.clamp_min(0) / r.clamp_min(1e-12), torch.inf).min(1)
        until_held = torch.where(dependent, torch.inf, residual.clamp_min(0) / zz.clamp_min(_DEPENDENT))
        step = torch.minimum(until_zero, until_held)
        stuck = moving & torch.isinf(step)
        if bool(stuck.any()):
            for bad in stuck.nonzero().flatten().tolist():
                proof = self._contradiction(int(p[bad]), state.active[bad], r[bad])
                if proof is not None and float(residual[bad]) > 0:
                    return int(state.place[bad]), proof
            # The row follows from the active ones: only rounding violates it.
            state.skipped[at[stuck], p[stuck]] = True
            state.u = torch.where(stuck.unsqueeze(1) & state.active, state.u + state.force.unsqueeze(1) * r, state.u)
            state.entering = torch.where(stuck, -1, state.entering)
            moving = moving & ~stuck
        step = torch.where(moving, step, 0.0)
        enters = moving & (until_held <= until_zero)
        leaves = moving & ~enters
        state.move(torch.where(dependent.unsqueeze(1), 0.0, -step.unsqueeze(1) * z), fine)
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
        state.skipped = state.skipped & ~enters.unsqueeze(1)
        return None

    def _contradiction(self, p: int, active: Tensor, r: Tensor) -> Contradiction | None:
        """The proof that row p cannot hold beside the active rows that it depends on, if it cannot."""
        places = (p, *(active & (r.abs() > 1e-9)).nonzero().flatten().tolist())
        if places not in self._proofs:
            self._proofs[places] = prove(self.system, places)
        return self._proofs[places]


def distinct(sets: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows of a matrix, and which of them each row is."""
    if not sets.shape[1]:
        return sets[:1], torch.zeros(len(sets), dtype=torch.int64, device=sets.device)
    found: tuple[Tensor, Tensor] = torch.unique(sets, dim=0, return_inverse=True)
    return found


def rounded(system: Rows, points: Tensor, on: Tensor | None, dtype: torch.dtype) -> Tensor:
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


def _excess(system: Rows, values: Tensor, on: Tensor | None) -> Tensor:
    excess = system.excess(values)
    return excess if on is None else torch.where(on, excess, 0.0)


def _nudged(system: Rows, values: Tensor, excess: Tensor, on: Tensor | None) -> Tensor:
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
