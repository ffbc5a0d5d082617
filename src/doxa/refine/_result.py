"""What refining a batch found, and a hard guarantee for it: the nearest satisfying assignment, by weighted MaxSAT."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from doxa.logic import And, Expr, to_cnf
from doxa.problem._budget import solve, solve_limited

_SCALE = 1_000_000
"""MaxSAT takes whole numbers as weights; a distance is resolved to one part in this many."""
_SOLVED, _IMPOSSIBLE = 5, 6


@dataclass(frozen=True)
class RefineResult:
    """The outcome of :meth:`doxa.refine.Refine.run`, row by row.

    >>> from doxa.logic import propositions
    >>> from doxa.refine import Refine
    >>> a, b = propositions("a b")
    >>> found = Refine(a & ~b, "product").run(torch.tensor([[0.2, 0.4], [0.9, 0.1]]))
    >>> found.truth, found.satisfied, found.iterations, found.why(0)
    (tensor([1., 1.]), tensor([True, True]), tensor([1, 1]), 'reached')
    """

    values: Tensor
    """``(*batch, atoms)``: the best iterate, the one whose truth is nearest to the target (with a guarantee: perhaps
    the solver's)."""
    last: Tensor
    """``(*batch, atoms)``: the last iterate."""
    truth: Tensor
    """``(*batch)``, or ``(*batch, formulas)`` for several: the fuzzy truth of the values."""
    satisfied: Tensor
    """``(*batch)``: whether the values, rounded at 0.5, satisfy every formula."""
    distance: Tensor
    """``(*batch)``: the L₁ distance from the input to the values."""
    iterations: Tensor
    """``(*batch)``: the passes that were made before the row was frozen."""
    status: Tensor
    """``(*batch)``: why the row stopped, a place in ``REASONS``."""
    trajectory: Tensor | None
    """``(passes + 1, *batch, atoms)``: every iterate, if it was asked for."""

    REASONS = (
        "ran out of passes",
        "reached",
        "stands still",
        "goes in a two-cycle",
        "no nearer for a while",
        "satisfied by the solver",
        "cannot be satisfied",
    )

    def why(self, row: int | tuple[int, ...]) -> str:
        """Why a row stopped, in words.

            >>> from doxa.logic import propositions
        >>> from doxa.refine import Refine
        >>> a, b = propositions("a b")
        >>> Refine(a & ~a, "godel").run(torch.tensor([[0.2]])).why(0)
        'goes in a two-cycle'
        """
        return self.REASONS[int(self.status[row])]


class Progress:
    """Rows on their way: where each stands, its best iterate so far, and why it stopped (0: it has not)."""

    def __init__(self, start: Tensor, gap: Tensor, tolerance: float, patience: int, trajectory: bool) -> None:
        self.now = self.best = self.before_best = start
        self.nearest, self.tolerance, self.patience = gap, tolerance, patience
        self.status = torch.where(gap <= tolerance, 1, 0)
        self.idle = self.iterations = torch.zeros_like(self.status)
        self.path = [start] if trajectory else []

    def record(self, now: Tensor, gap: Tensor, frozen: Tensor, k: int, stuck: Tensor | None = None) -> None:
        """The k-th step led to ``now``; ``stuck`` has reasons to stop besides arriving and coming no nearer."""
        better = gap < self.nearest
        self.best, self.before_best = (
            torch.where(better, now, self.best),
            torch.where(better, self.now, self.before_best),
        )
        self.now = now
        self.idle = torch.where(gap < self.nearest - self.tolerance / 100, 0, self.idle + 1)
        self.nearest = torch.minimum(gap, self.nearest)
        self.iterations = torch.where(frozen, self.iterations, k)
        reason = torch.where(self.idle >= self.patience, 4, 0)
        if stuck is not None:
            reason = torch.where(stuck > 0, stuck, reason)
        self.status = torch.where(frozen, self.status, torch.where(gap <= self.tolerance, 1, reason))
        if self.path:
            self.path.append(now)


@cache
def _interruptible() -> Any:
    """RC2 with calls of its solver that answer Ctrl-C."""
    from pysat.examples.rc2 import RC2Stratified

    class Interruptible(RC2Stratified):  # type: ignore[misc]
        limited = False

        def _call_oracle(self, assumptions: Sequence[int] = (), expect_interrupt: bool = False) -> bool | None:
            return (solve_limited if self.limited else solve)(self.oracle, assumptions)

        def minimize_core(self) -> None:  # within a budget of its own
            self.limited = True
            super().minimize_core()
            self.limited = False

    return Interruptible


def nearest_model(
    formulas: Iterable[Expr],
    atoms: tuple[Expr, ...],
    constants: Collection[Expr],
    start: Tensor,
    best: Tensor,
    satisfied: Tensor,
    status: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows whose rounding satisfies the formulas stay; the others become the model nearest to the input in L₁.

    Every atom is a soft clause of weight :math:`|2t_i - 1|`, or the least there is: without any soft clause the solver
    says nothing of the others. Constants are held. The derivative goes straight through.
    """
    if bool(satisfied.all()):
        return best, satisfied, status
    from pysat.formula import WCNF

    stratified = _interruptible()
    n = len(atoms)
    cnf = to_cnf(And(*formulas), method="polarity", atoms=atoms)
    clauses = cnf.clauses
    held = [i for i, a in enumerate(atoms) if a in constants]
    rows = start.detach().reshape(n, -1).T.cpu().tolist()
    left = satisfied.reshape(-1).tolist()
    models: dict[tuple[float, ...], list[float] | None] = {}
    found = best.detach().reshape(n, -1).clone()
    kind = status.reshape(-1).clone()
    for r, row in enumerate(rows):
        if left[r]:
            continue
        key = tuple(row)
        if key not in models:
            problem = WCNF()
            problem.extend(clauses)
            for i in held:
                problem.append([i + 1 if row[i] > 0.5 else -(i + 1)])
            for i, value in enumerate(row):
                weight = max(1, round(abs(2 * value - 1) * _SCALE))
                problem.append([i + 1 if value > 0.5 else -(i + 1)], weight=weight)
            # Heavy clauses first, cores made small: without these, weights that all differ can take it for ever.
            with stratified(problem, exhaust=True, minz=True) as solver:
                model = solver.compute()
            truth = None if model is None else {abs(v): float(v > 0) for v in model}
            models[key] = None if truth is None else [truth[i + 1] for i in range(n)]
        answer = models[key]
        kind[r] = _IMPOSSIBLE if answer is None else _SOLVED
        if answer is not None:
            found[:, r] = torch.tensor(answer, dtype=found.dtype, device=found.device)
    status = kind.reshape(status.shape)
    solved = status == _SOLVED
    model_values = found.reshape(best.shape)
    if held:  # constants stay as they were
        keep = torch.zeros(n, dtype=torch.bool, device=best.device)
        keep[held] = True
        model_values = torch.where(keep.view(n, *[1] * (best.dim() - 1)), start.detach(), model_values)
    straight = model_values + (start - start.detach())
    return torch.where(solved, straight, best), satisfied | solved, status
