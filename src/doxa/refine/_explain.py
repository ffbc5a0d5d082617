"""Both passes of one iteration as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.logic import Call, Compare, Expr

if TYPE_CHECKING:
    from doxa.refine._refine import Refine


@torch.no_grad()
def explain(layer: Refine, x: Tensor, target: float | None) -> str:
    """Each subformula, its truth and its target, children first."""
    if x.dim() != 1:
        raise ConfigError(f"the truth values have shape {tuple(x.shape)}, expected one row, ({len(layer.atoms)},)")
    now = layer._first(x)
    engine, goal = layer.engine, layer._goals(now, target)
    state = engine.evaluate(now)
    wanted = goal if layer.schedule == 1 else torch.lerp(state.formulas, goal, layer.schedule)
    goals: list[Tensor] = []
    change = engine.refine(now, state, wanted, layer._pick, goals)
    goals.reverse()
    truth = [now, *state.values]
    target_of = [(now + change).clamp(0, 1), *goals]
    lines: list[tuple[str, float, float]] = []
    for node in _subformulas(*layer.formulas.values()):
        number, negated = engine.plan.place[id(node)]
        source, row = engine._where[number]
        if number == len(layer.atoms):  # the constant `true`
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
