r"""A layer whose real outputs obey linear knowledge: the nearest values that do, with derivative and certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from doxa._numerics import truth as as_float
from doxa.errors import ConfigError, KnowledgeError
from doxa.refine._linear_certificate import multipliers
from doxa.refine._linear_solve import ULPS, Solution, Solver, distinct, rounded
from doxa.refine._linear_system import Labels, LinearSystem

_HUGE = 1e250


@dataclass(frozen=True)
class LinearCertificate:
    r"""How well values fulfil the conditions that only the nearest values fulfil (Karush, Kuhn and Tucker).

    With multipliers λ of the rows, ``z`` is the nearest point to ``x`` if and only if
    :math:`x - z = A^⊤λ_A + E^⊤λ_E`, :math:`λ_A ≥ 0`, every row holds, and λ is 0 where a row is not tight. The
    multipliers are found by non-negative least squares over the tight rows, not by the method that found ``z``.

    >>> layer = LinearProjection("a + b <= 1")
    >>> x = torch.tensor([[2.0, 1.0]])
    >>> found = layer.certificate(x, layer(x))
    >>> round(found.multipliers.item(), 6), found.error.item() < 1e-6
    (1.0, True)
    >>> layer.certificate(x, torch.tensor([[0.0, 0.0]])).error
    tensor([2.2361], dtype=torch.float64)
    """

    primal: Tensor
    """``(*batch)``: the largest violation of a row, in units in the last place of its scale."""
    dual: Tensor
    """``(*batch)``: how far the smallest multiplier of an inequality is below 0."""
    complementarity: Tensor
    """``(*batch)``: the largest product of a multiplier and the slack of its row."""
    error: Tensor
    """``(*batch)``: the length of x - z - Aᵀλ_A - Eᵀλ_E. As projections bring no two points further apart, values that
    fulfil the other conditions are within ``error`` of the nearest ones."""
    multipliers: Tensor
    """``(*batch, rows)``: λ, in the order of ``system.reduced.rows``; of ``system.rows`` where ``active`` was given."""


class LinearProjection(nn.Module):
    r"""Real values in, the nearest values that satisfy linear constraints out: a layer with a guarantee.

    .. math::  z = \arg\min_z ‖z - x‖₂ \quad\text{such that}\quad A z ≤ b,\; E z = f

    Every row holds within 4 units in the last place of its scale, :math:`\max_i(|a_i z_i|, |b|)`, in float32 as in
    float64; values that satisfy all rows already are returned as they are. The derivative is that of the projection,
    :math:`I - N^+ N` for the rows N that are active: equalities, and inequalities that hold the values back.

    Args:
        constraints: a text such as ``"total = a + b; 0 <= share <= 1; premium -> price >= 100"`` (see
            :meth:`LinearSystem.parse`), or a :class:`LinearSystem`.
        names: what the last axis of the input stands for; by default the names in the order in which they appear.
        labels: likewise for the labels in guards.

    Raises:
        KnowledgeError: if the rows contradict each other; it names a smallest part of them that does.

    >>> layer = LinearProjection('''
    ...     total = rent + food
    ...     0 <= rent
    ...     student -> rent <= 0.5 * total       # holds where the label is true
    ... ''')
    >>> layer.names, layer.labels
    (('total', 'rent', 'food'), ('student',))
    >>> x = torch.tensor([[10.0, 8.0, 1.0], [10.0, 8.0, 1.0]])
    >>> layer(x, labels={"student": torch.tensor([False, True])})
    tensor([[9.6667, 8.3333, 1.3333],
            [9.6667, 4.8333, 4.8333]])
    >>> LinearProjection("low <= high; low >= 2; high <= 1")
    Traceback (most recent call last):
    doxa.errors.KnowledgeError: these rows contradict each other: `low <= high`, `low >= 2`, `high <= 1`; ...
    """

    def __init__(self, constraints: str | LinearSystem, names: Sequence[str] = (), labels: Sequence[str] = ()) -> None:
        super().__init__()
        if isinstance(constraints, LinearSystem):
            if names or labels:
                raise ConfigError("a LinearSystem has names and labels of its own; leave names and labels out")
            self.system = constraints
        elif isinstance(constraints, str):
            for what, given in (("names", names), ("labels", labels)):
                if isinstance(given, str):
                    raise ConfigError(f"{what} is the text {given!r}, expected a list of names: [{given!r}]")
            self.system = LinearSystem.parse(constraints, names, labels)
        else:
            raise ConfigError(f"constraints is a {type(constraints).__name__}, expected a text or a LinearSystem")
        if (found := self.system.contradiction()) is not None:
            raise KnowledgeError(f"{found}; remove one, or make it weaker")
        self._solver = Solver(self.system.reduced)

    @property
    def names(self) -> tuple[str, ...]:
        """What the last axis of the values stands for."""
        return self.system.names

    @property
    def labels(self) -> tuple[str, ...]:
        """What the last axis of the labels stands for."""
        return self.system.labels

    def forward(self, values: Tensor, labels: Labels = None, active: Tensor | None = None) -> Tensor:
        """The nearest values that satisfy the rows, ``(*batch, values)`` like the input.

        Args:
            values: ``(*batch, values)``, float32 or float64; half precision is computed and returned in float32.
            labels: bool, ``(*batch, labels)`` in the order of ``layer.labels``, or a mapping from each label to
                ``(*batch)``; wanted if a row has a guard.
            active: bool, ``(*batch, rows)``: which rows hold for which example, besides what guards say; rows are those
                of ``layer.system.rows``.
        """
        values = self._checked(values)
        on = self._holding(values, labels, active)
        flat = values.detach().reshape(-1, values.shape[-1])
        # which rows hold was said of those of the system, not of the reduced one
        system = self.system.reduced if active is None else self.system
        holding = on if system is self.system else self._holding(values, labels, None, system)
        result, held = self._project(flat, on, system, holding)
        rows = system.matrix.to(values.device)
        projected: Tensor = _Project.apply(values, result.view(values.shape), held, rows)  # type: ignore[no-untyped-call]
        return projected

    def _project(
        self, flat: Tensor, on: Tensor | None, system: LinearSystem, holding: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The nearest values and the rows that hold them: of ``system``, of which those in ``holding`` hold."""
        equality = system.equality.to(flat.device)
        held = equality.expand(len(flat), -1) if holding is None else equality & holding
        fine = self._fine(flat, on)
        if bool(fine.all()):
            return flat.clone(), held
        wrong = (~fine).nonzero().flatten()
        some, on_rows = (None if t is None else t[wrong] for t in (on, holding))
        own = flat.device.type == "cpu" and system is self._solver.system
        solver = self._solver if own else Solver(system, flat.device)
        found = self._solved(solver, flat, wrong, on_rows, flat.dtype == torch.float64)
        if flat.dtype != torch.float64:
            rest = (~self._fine(found.values.to(flat.dtype), some)).nonzero().flatten()
            if len(rest):  # such as points so large that float64 leaves too few digits of the bounds
                again = self._solved(solver, flat, wrong[rest], None if on_rows is None else on_rows[rest], True)
                found.values[rest], found.active[rest] = again.values, again.active
        nearest = rounded(self.system, found.values, some, flat.dtype)
        if not bool(torch.isfinite(nearest).all()):
            raise ConfigError(f"the nearest values are too large for {flat.dtype}; scale the values down")
        result = flat.clone()
        result[wrong] = nearest
        held = held.clone()
        held[wrong] = found.active
        return result, held

    def _solved(self, solver: Solver, flat: Tensor, which: Tensor, on: Tensor | None, fine: bool) -> Solution:
        found = solver.solve(flat[which].to(torch.float64), on, fine)
        if found.clash is not None:
            where = f"for example {int(which[found.clash[0]])} of the batch "
            raise KnowledgeError(f"{where}{found.clash[1]}; remove one, make it weaker, or change the labels")
        return found

    def satisfied(self, values: Tensor, labels: Labels = None, active: Tensor | None = None) -> Tensor:
        """Whether every row holds within 4 units in the last place of its scale: ``(*batch)``.

        >>> LinearProjection("a <= b").satisfied(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
        tensor([ True, False])
        """
        values = self._checked(values)
        flat = values.detach().reshape(-1, values.shape[-1])
        return self._fine(flat, self._holding(values, labels, active)).view(values.shape[:-1])

    def certificate(
        self, values: Tensor, result: Tensor, labels: Labels = None, active: Tensor | None = None
    ) -> LinearCertificate:
        """How well ``result`` fulfils the conditions of the nearest point to ``values``; both ``(*batch, values)``.

        >>> layer = LinearProjection("total = a + b; 0 <= a <= 1; 0 <= b <= 1")
        >>> x = torch.randn(100, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> found = layer.certificate(x, layer(x))
        >>> float(found.primal.max()) <= 4, float(found.dual.max()), float(found.error.max()) < 1e-12
        (True, 0.0, True)
        """
        values, result = self._checked(values), self._checked(result)
        if values.shape != result.shape:
            wanted = f"that of the values, {tuple(values.shape)}"
            raise ConfigError(f"the result has shape {tuple(result.shape)}, expected {wanted}")
        on = self._holding(values, labels, active)
        start, end = (t.detach().reshape(-1, t.shape[-1]) for t in (values, result))
        excess = self.system.excess(end)
        excess = excess if on is None else torch.where(on, excess, 0.0)
        system = self.system.reduced if active is None else self.system
        on = on if system is self.system else self._holding(values, labels, None, system)
        residual, unit = system.measure(end)
        on = torch.ones_like(residual, dtype=torch.bool) if on is None else on
        matrix, equality = system.matrix.to(end.device), system.equality.to(end.device)
        eps = 64 * torch.finfo(end.dtype).eps
        largest = end.abs().amax(-1, keepdim=True) + eps * start.abs().amax(-1, keepdim=True)
        tight = on & ((residual.abs() <= eps * matrix.norm(dim=1) * largest + 2 * ULPS * unit) | equality)
        move = start.to(torch.float64) - end.to(torch.float64)
        found = multipliers(matrix, equality, tight, move)
        error = (move - found @ matrix).norm(dim=-1)
        below = torch.where(equality | (found >= 0), 0.0, -found)
        slack = (found * residual).abs()
        batch = values.shape[:-1]
        primal, dual, complementarity = (_largest(t).view(batch) for t in (excess, below, slack))
        return LinearCertificate(primal, dual, complementarity, error.view(batch), found.view(*batch, system.count))

    # -- what comes in ----------------------------------------------------------------------------------------------

    def _checked(self, values: Tensor) -> Tensor:
        n = len(self.names)
        came: object = values
        if not isinstance(came, Tensor):
            raise ConfigError(f"the values are a {type(came).__name__}, expected a tensor (*batch, {n})")
        if not values.dim() or values.shape[-1] != n:
            shown = ", ".join(self.names[:6]) + (", ..." if n > 6 else "")
            raise ConfigError(f"the values have shape {tuple(values.shape)}, expected (*batch, {n}): {shown}")
        values = as_float(values)
        try:
            within = values.detach().abs() <= min(_HUGE, torch.finfo(values.dtype).max)
            fine = bool(within.all())
        except RuntimeError as problem:
            wrong = "which rows are active depends on the data, which vmap cannot follow"
            raise ConfigError(f"{wrong}; give the whole batch at once: the layer takes (*batch, {n})") from problem
        if not fine:
            row = values.detach().reshape(-1, n)[~within.reshape(-1, n).all(-1)][0]
            raise ConfigError(f"the values have a row {row.tolist()}, expected finite numbers of at most {_HUGE:g}")
        return values

    def _holding(
        self, values: Tensor, labels: Labels, active: Tensor | None, system: LinearSystem | None = None
    ) -> Tensor | None:
        """Which rows hold, ``(examples, rows)``; None: all."""
        system = system or self.system
        batch, rows = values.shape[:-1], system.count
        try:
            on = system.holding(labels, batch)
        except RuntimeError as problem:
            raise ConfigError(f"labels do not fit values of the batch shape {tuple(batch)}: {problem}") from problem
        if active is not None:
            if active.dtype != torch.bool or active.shape != (*batch, rows):
                came = f"active is {active.dtype} of shape {tuple(active.shape)}"
                raise ConfigError(f"{came}, expected bool of shape {(*batch, rows)}: one for each example and row")
            on = active if on is None else on & active
        return None if on is None else on.expand(*batch, rows).reshape(-1, rows)

    def _fine(self, flat: Tensor, on: Tensor | None) -> Tensor:
        within = self.system.excess(flat) <= ULPS
        return (within if on is None else within | ~on).all(-1)

    def extra_repr(self) -> str:
        return f"{len(self.names)} values, {len(self.system.A)} inequalities, {len(self.system.E)} equalities"


def _largest(t: Tensor) -> Tensor:
    return t.amax(-1) if t.shape[-1] else t.sum(-1)


class _Project(torch.autograd.Function):
    """The result with the derivative of the projection onto the active rows."""

    @staticmethod
    def forward(values: Tensor, result: Tensor, held: Tensor, rows: Tensor) -> Tensor:
        return result.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[2:])
        ctx.save_for_forward(*inputs[2:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _along(gradients[0], *ctx.saved_tensors), None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return _along(tangents[0], *ctx.saved_tensors)


def _along(direction: Tensor, held: Tensor, rows: Tensor) -> Tensor:
    """The part of a direction that keeps to the active rows: d - QᵀQ d, with Q an orthonormal basis of these rows."""
    if not len(rows) or not len(held):
        return direction.clone()
    basis, which = bases(held, rows)
    wide = direction.reshape(-1, rows.shape[1]).to(torch.float64)
    q = basis[which]
    for _ in range(2):  # the second time takes out what rounding left
        wide = wide - (wide.unsqueeze(1) @ q.transpose(1, 2) @ q).squeeze(1)
    return wide.view(direction.shape).to(direction.dtype)


def bases(held: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """For each different set of active rows an orthonormal basis ``(sets, active, values)``, and which set is whose."""
    sets, which = distinct(held)
    width = int(sets.sum(1).max())
    order = sets.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :width]
    chosen = torch.where(sets.gather(1, order).unsqueeze(2), rows[order], 0.0)
    length = chosen.norm(dim=2, keepdim=True)
    chosen = chosen / torch.where(length > 0, length, 1.0)
    basis = torch.zeros_like(chosen)
    for k in range(width):  # Gram and Schmidt, each row twice; a row that depends on those before it adds nothing
        row = chosen[:, k : k + 1]
        for _ in range(2):
            row = row - row @ basis.transpose(1, 2) @ basis
        length = row.norm(dim=2, keepdim=True)
        basis[:, k : k + 1] = torch.where(length > 1e-9, row / length.clamp_min(1e-300), 0.0)
    return basis, which
