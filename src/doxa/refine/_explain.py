"""Both passes of one iteration as text."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from doxa.logic import Call, Compare, Expr
from doxa.refine._base import Pick
from doxa.refine._engine import Engine, State

__all__ = ["explain"]


@torch.no_grad()
def explain(engine: Engine, formulas: Iterable[Expr], now: Tensor, state: State, wanted: Tensor, pick: Pick) -> str:
    """Each subformula, its truth and its target, children first."""
    goals: list[Tensor] = []
    change = engine.refine(now, state, wanted, pick, goals)
    goals.reverse()
    truth = [now, *state.values]
    target_of = [(now + change).clamp(0, 1), *goals]
    lines: list[tuple[str, float, float]] = []
    for node in _subformulas(*formulas):
        number, negated = engine.plan.place[id(node)]
        source, row = engine._where[number]
        if number == len(engine.plan.atoms):  # the constant `true`
            before = after = torch.tensor(1.0)
        else:
            before, after = truth[source][row], target_of[source][row]
        signed = [float(1 - v if negated else v) for v in (before, after)]
        lines.append((str(node), signed[0], signed[1]))
    width = max(len(text) for text, _, _ in lines)
    shown = [f"{'':<{width}}  {'truth':>6}      {'target':>6}"]
    for text, before_, after_ in lines:
        arrow = "->" if abs(after_ - before_) > 1e-9 else "  "
        shown.append(f"{text:<{width}}  {before_:6.4f}  {arrow}  {after_:6.4f}")
    return "\n".join(shown)


def _subformulas(*roots: Expr) -> list[Expr]:
    """Every distinct subformula once, children first."""
    listed: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if node in listed:
            continue
        if ready or isinstance(node, Call | Compare) or not node.children:
            listed[node] = None
        else:
            stack.append((node, True))
            stack.extend([(c, False) for c in reversed(node.children)])
    return list(listed)
