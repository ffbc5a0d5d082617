r"""Stratified rules as a layer: the head of a rule is at least as true as its body.

A normal rule :math:`b_1 ∧ … ∧ ¬c_1 ∧ … → h` is stratified with others if no label depends on its own negation. Then
one pass in the order of the strata makes all rules hold, at every threshold below:

.. math::  \hat t_h = \max(t_h, \max_r \min(\hat t_{b_1}, …, 1 - \hat t_{c_1}, …))

For a hierarchy, child → parent, it is the maximum over the descendants (Giunchiglia and Lukasiewicz 2020; 2021,
"Multi-label classification neural networks with hard logical constraints").
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from doxa.logic import And, Call, Expr, Implies, Not, Or, Truth

Literals = tuple[tuple[int, bool], ...]


class Rules(nn.Module):
    """Labels refined by stratified rules, ``(n, labels)`` to ``(n, labels)``; features that bodies mention are given.

    Args:
        rules: pairs of body (places of atoms and whether they are positive) and head.
        labels: how many labels there are; atoms from there on are given.
        strata: the rules of each stage, all with heads that earlier stages do not change.
    """

    def __init__(self, rules: Sequence[tuple[Literals, int]], labels: int, strata: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.rules, self.labels, self.stages = tuple(rules), labels, len(strata)
        width = max((len(body) for body, _ in rules), default=1)
        for stage, listed in enumerate(strata):
            # The rules of a stage by head, all heads with as many bodies as the largest has.
            heads = list(dict.fromkeys(rules[r][1] for r in listed))
            bodies = [[rules[r][0] for r in listed if rules[r][1] == head] for head in heads]
            most = max(map(len, bodies))
            place = torch.full((len(heads), most, width), -1)
            sign = torch.ones(len(heads), most, width, dtype=torch.bool)
            for i, of_head in enumerate(bodies):
                for j in range(most):
                    body = of_head[j] if j < len(of_head) else of_head[0]
                    for k in range(width):
                        place[i, j, k], sign[i, j, k] = body[k] if k < len(body) else body[0]
            self.register_buffer(f"heads{stage}", torch.tensor(heads), persistent=False)
            self.register_buffer(f"place{stage}", place, persistent=False)
            self.register_buffer(f"sign{stage}", sign, persistent=False)

    def forward(self, truth: Tensor, given: Tensor | None = None) -> Tensor:
        """The refined truth of the labels."""
        values = truth if given is None else torch.cat([truth, given.to(truth.dtype)], -1)
        for stage in range(self.stages):
            heads, place, sign = (getattr(self, f"{name}{stage}") for name in ("heads", "place", "sign"))
            literals = values[:, place]
            bodies = torch.where(sign, literals, 1 - literals).amin(-1).amax(-1)
            raised = torch.maximum(values[:, heads], bodies)
            values = values.index_copy(1, heads, raised)
        return values[:, : self.labels]

    def toward(self, truth: Tensor, labels: Tensor, given: Tensor | None = None) -> Tensor:
        """As ``forward`` where a label is false; a label that is true is raised only by bodies that are true.

        So a head is never taught by a body that is wrong: with cross-entropy this is the max-constraint loss.
        """
        full = truth if given is None else torch.cat([truth, given.to(truth.dtype)], -1)
        known = labels.bool() if given is None else torch.cat([labels.bool(), given.bool()], -1)
        right = full
        for stage in range(self.stages):
            heads, place, sign = (getattr(self, f"{name}{stage}") for name in ("heads", "place", "sign"))
            literals, rightly = full[:, place], torch.where(sign, right[:, place], 1 - full[:, place])
            holds = (known[:, place] == sign).all(-1)
            bodies = torch.where(sign, literals, 1 - literals).amin(-1).amax(-1)
            taught = torch.where(holds, rightly.amin(-1), 0.0).amax(-1)
            full = full.index_copy(1, heads, torch.maximum(full[:, heads], bodies))
            right = right.index_copy(1, heads, torch.maximum(right[:, heads], taught))
        return torch.where(known, right, full)[:, : self.labels]

    @property
    def is_hierarchy(self) -> bool:
        """Whether every rule is child → parent."""
        return all(len(body) == 1 and body[0][1] and body[0][0] < self.labels for body, _ in self.rules)


def rules_of(formulas: Sequence[Expr], atoms: Sequence[Expr], labels: int) -> Rules | None:
    """Formulas as stratified rules for labels, or None if some are not, or labels depend on their own negation."""
    places = {atom: i for i, atom in enumerate(atoms)}
    rules = []
    for formula in formulas:
        rule = _rule(formula, places, labels)
        if rule is None:
            return None
        if rule[1] not in [place for place, positive in rule[0] if positive]:  # a -> a says nothing
            rules.append(rule)
    strata = _strata(rules, labels)
    return None if strata is None else Rules(rules, labels, strata)


def _rule(formula: Expr, places: dict[Expr, int], labels: int) -> tuple[Literals, int] | None:
    if isinstance(formula, Implies):
        body, head = formula.children
        parts = body.children if isinstance(body, And) else (body,)
        literals = [_literal(part, places) for part in parts]
        if isinstance(head, Truth) or places.get(head, labels) >= labels:
            return None
        return _checked(literals, places[head])
    parts = formula.children if isinstance(formula, Or) else (formula,)
    literals = [_literal(part, places) for part in parts]
    heads = [x[0] for x in literals if x is not None and x[1]]
    if len(heads) != 1 or heads[0] >= labels or None in literals or len(literals) < 2:
        return None  # no rule, or one that could be read in several ways
    return _checked([(p, not s) for p, s in literals if not s], heads[0])  # type: ignore[misc]


def _checked(literals: Sequence[tuple[int, bool] | None], head: int) -> tuple[Literals, int] | None:
    body = tuple(x for x in literals if x is not None)
    return (body, head) if body and len(body) == len(literals) else None


def _literal(formula: Expr, places: dict[Expr, int]) -> tuple[int, bool] | None:
    positive = not isinstance(formula, Not)
    atom = formula if positive else formula.children[0]
    return (places[atom], positive) if isinstance(atom, Call) and atom in places else None


def _strata(rules: Sequence[tuple[Literals, int]], labels: int) -> list[list[int]] | None:
    """Stages of rules such that every body is settled before its head; None if rules go in a circle."""
    defining: dict[int, list[int]] = {}
    for number, (_, head) in enumerate(rules):
        defining.setdefault(head, []).append(number)
    level: dict[int, int] = {}
    waiting: dict[int, set[int]] = {}
    for head, numbers in defining.items():
        waiting[head] = {place for r in numbers for place, _ in rules[r][0] if place in defining}
    stages: list[list[int]] = []
    while waiting:
        ready = [head for head, needs in waiting.items() if all(p in level for p in needs)]
        if not ready:
            return None
        stages.append([r for head in ready for r in defining[head]])
        for head in ready:
            level[head] = len(stages)
            del waiting[head]
    return stages
