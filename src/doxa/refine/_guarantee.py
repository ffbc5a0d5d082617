"""A hard guarantee: the nearest satisfying assignment, by weighted MaxSAT."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import Tensor

from doxa.logic import And, Expr, to_cnf

_SCALE = 1_000_000
"""MaxSAT takes whole numbers as weights; a distance is resolved to one part in this many."""
_SOLVED, _IMPOSSIBLE = 5, 6


def nearest_model(
    formulas: Iterable[Expr],
    atoms: tuple[Expr, ...],
    constants: Collection[Expr],
    start: Tensor,
    best: Tensor,
    satisfied: Tensor,
    status: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Rows whose rounding satisfies the formulas stay; the others become the model nearest to the input in L₁.

    An assignment v costs :math:`\sum_i |v_i - t_i|`, so every atom is a soft clause of weight :math:`|2t_i - 1|` on the
    side it leans to; constant atoms are held at their rounded values. The derivative goes straight through to the
    input.
    """
    if bool(satisfied.all()):
        return best, satisfied, status
    from pysat.examples.rc2 import RC2Stratified
    from pysat.formula import WCNF

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
                if weight := round(abs(2 * value - 1) * _SCALE):
                    problem.append([i + 1 if value > 0.5 else -(i + 1)], weight=weight)
            # Heavy clauses first, cores made small: without these, weights that all differ can take it for ever.
            with RC2Stratified(problem, exhaust=True, minz=True) as solver:
                model = solver.compute()
            truth = None if model is None else {abs(v): float(v > 0) for v in model}
            # An atom that no clause mentions and that leans to neither side may be missing from a model.
            models[key] = None if truth is None else [truth.get(i + 1, round(row[i])) for i in range(n)]
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
