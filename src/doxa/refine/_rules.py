r"""Stratified rules: one pass in the right order refines them all, and hierarchies are the simplest of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from doxa._numerics import truth as as_truth
from doxa.errors import ConfigError
from doxa.logic import And, Call, Expr, Implies, Not, Or
from doxa.logic.syntax._simplify import atoms_of
from doxa.refine._base import require_numbers


class Rule(NamedTuple):
    """Body (places of atoms, and whether each is positive) and head (a place)."""

    body: tuple[tuple[int, bool], ...]
    head: int


class Rules(nn.Module):
    r"""Every head is at least as true as each of its bodies: stratified normal rules as a layer.

    The rules :math:`b_1 ∧ … ∧ ¬c_1 ∧ … → h` are *stratified* when no atom depends on itself. Taken in order, the
    minimal Gödel refinement of each makes all of them hold, with nothing to iterate:

    .. math::  \hat t_h = \max\bigl(t_h, \max_r \min(\hat t_{b_1}, …, 1 - \hat t_{c_1}, …)\bigr)

    Values on one side of 0.5 obey the rules when rounded there. For a hierarchy, child → parent, it is the maximum over
    all descendants, found in one step. Giunchiglia and Lukasiewicz 2021, "Multi-label classification neural networks
    with hard logical constraints".

    Args:
        formulas: implications from a conjunction of literals to an atom, or clauses with one positive literal.
        atoms: what the last axis stands for; by default the atoms in the order in which they appear.
        constants: atoms that no rule may change.

    >>> from doxa.logic import propositions
    >>> bird, penguin, flies = propositions("bird penguin flies")
    >>> layer = Rules([penguin >> bird, (bird & ~penguin) >> flies], [bird, penguin, flies])
    >>> layer(torch.tensor([[0.9, 0.1, 0.2], [0.2, 0.8, 0.1]]))
    tensor([[0.9000, 0.1000, 0.9000],
            [0.8000, 0.8000, 0.2000]])
    """

    def __init__(
        self, formulas: Iterable[Expr], atoms: Sequence[Expr] | None = None, constants: Collection[Expr] = ()
    ) -> None:
        super().__init__()
        listed = list(formulas)
        self.atoms: tuple[Expr, ...] = tuple(atoms_of(*listed) if atoms is None else atoms)
        places = {atom: i for i, atom in enumerate(self.atoms)}
        fixed = {places[atom] for atom in constants}
        rules = []
        for formula in listed:
            rule = _read(formula, places)
            if rule is None or rule.head in fixed:
                wanted = "an implication from literals to an atom that is not constant"
                raise ConfigError(f"{formula} is no rule, expected {wanted}; Refine takes any formula")
            if (rule.head, True) not in rule.body:  # a -> a says nothing
                rules.append(rule)
        stages = _stages(rules)
        if stages is None:
            raise ConfigError("the rules go in a circle: an atom depends on itself; Refine takes any formulas")
        if all(len(rule.body) == 1 and rule.body[0][1] for rule in rules):  # a hierarchy: all ancestors at once
            stages = [_closure(stages)] if rules else []
        self.stages = len(stages)
        self.flips = [any(not positive for rule in stage for _, positive in rule.body) for stage in stages]
        for number, stage in enumerate(stages):
            literals = [literal for rule in stage for literal in rule.body]
            owners = [i for i, rule in enumerate(stage) for _ in rule.body]
            parts = {
                "places": torch.tensor([place for place, _ in literals]),
                "negative": torch.tensor([not positive for _, positive in literals]).unsqueeze(-1),
                "owners": torch.tensor(owners).unsqueeze(-1),
                "heads": torch.tensor([rule.head for rule in stage]).unsqueeze(-1),
            }
            for name, tensor in parts.items():
                self.register_buffer(f"{name}{number}", tensor, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(*batch, atoms)`` to ``(*batch, atoms)``."""
        values = self._first(x)
        for number in range(self.stages):
            values = self._raise(number, values, self._bodies(number, values, values))
        return self._last(values, x)

    def toward(self, x: Tensor, label: Tensor) -> Tensor:
        """The refined values to compare with labels: a head that is true is raised by bodies that are true only.

        So no atom is taught by a body that is wrong: with cross-entropy this is the max-constraint loss. Where the
        label is false, the values are those of ``forward``.

        >>> from doxa.logic import propositions
        >>> dog, animal = propositions("dog animal")
        >>> Rules([dog >> animal], [dog, animal]).toward(torch.tensor([0.9, 0.2]), torch.tensor([0, 1]))
        tensor([0.9000, 0.2000])
        """
        if x.shape != label.shape:
            wanted = f"that of the truth values, {tuple(x.shape)}"
            raise ConfigError(f"the label has shape {tuple(label.shape)}, expected {wanted}")
        known = label.bool().reshape(-1, len(self.atoms)).T
        full = right = self._first(x)
        for number in range(self.stages):
            wrong = known.index_select(0, getattr(self, f"places{number}")) == getattr(self, f"negative{number}")
            taught = self._bodies(number, right, full, wrong)
            bodies = self._bodies(number, full, full)
            full, right = self._raise(number, full, bodies), self._raise(number, right, taught)
        return self._last(torch.where(known, right, full), x)

    def _bodies(self, number: int, positive: Tensor, negative: Tensor, wrong: Tensor | None = None) -> Tensor:
        """The truth of the bodies of a stage, ``(rules, n)``: 0 where a literal is wrong."""
        places, flipped, owners = (getattr(self, f"{name}{number}") for name in ("places", "negative", "owners"))
        values = positive.index_select(0, places)
        if self.flips[number]:
            values = torch.where(flipped, 1 - negative.index_select(0, places), values)
        if wrong is not None:
            values = values.masked_fill(wrong, 0.0)
        rules = len(getattr(self, f"heads{number}"))
        if rules == len(places):  # one literal each
            return values
        least = values.new_ones(rules, values.shape[1])
        return least.scatter_reduce(0, owners.expand_as(values), values, "amin")

    def _raise(self, number: int, values: Tensor, bodies: Tensor) -> Tensor:
        heads = getattr(self, f"heads{number}")
        return values.scatter_reduce(0, heads.expand_as(bodies), bodies, "amax")

    def _first(self, x: Tensor) -> Tensor:
        if not x.dim() or x.shape[-1] != len(self.atoms):
            raise ConfigError(f"the truth values have shape {tuple(x.shape)}, expected (*batch, {len(self.atoms)})")
        return as_truth(require_numbers(x)).reshape(-1, len(self.atoms)).T

    def _last(self, values: Tensor, x: Tensor) -> Tensor:
        return values.T.reshape(x.shape)

    def extra_repr(self) -> str:
        return f"{len(self.atoms)} atoms, {self.stages} stages"


def _read(formula: Expr, places: dict[Expr, int]) -> Rule | None:
    if isinstance(formula, Implies):
        body, head = formula.children
        parts = body.children if isinstance(body, And) else (body,)
        literals = [_literal(part, places) for part in parts]
        return Rule(tuple(literals), places[head]) if head in places and all(literals) else None  # type: ignore[arg-type]
    parts = formula.children if isinstance(formula, Or) else (formula,)
    found = [literal for literal in (_literal(part, places) for part in parts) if literal is not None]
    heads = [place for place, positive in found if positive]
    if len(heads) != 1 or len(found) != len(parts) or len(found) < 2:
        return None  # no clause, or one that can be read in several ways
    return Rule(tuple([(place, True) for place, positive in found if not positive]), heads[0])


def _literal(formula: Expr, places: dict[Expr, int]) -> tuple[int, bool] | None:
    atom = formula.children[0] if isinstance(formula, Not) else formula
    return (places[atom], atom is formula) if isinstance(atom, Call) and atom in places else None


def _stages(rules: Sequence[Rule]) -> list[list[Rule]] | None:
    """The rules in an order in which every body is settled before its head; None if they go in a circle."""
    defining: dict[int, list[Rule]] = {}
    for rule in rules:
        defining.setdefault(rule.head, []).append(rule)
    users: dict[int, list[int]] = {}
    missing: dict[int, int] = {}
    for head, listed in defining.items():
        needs = {place for rule in listed for place, _ in rule.body if place in defining}
        missing[head] = len(needs)
        for place in needs:
            users.setdefault(place, []).append(head)
    stages = []
    ready = [head for head, count in missing.items() if not count]
    while ready:
        stages.append([rule for head in ready for rule in defining[head]])
        later = []
        for head in ready:
            for user in users.get(head, ()):
                missing[user] -= 1
                if not missing[user]:
                    later.append(user)
        ready = later
    return stages if sum(map(len, stages)) == len(rules) else None


def _closure(stages: Sequence[Sequence[Rule]]) -> list[Rule]:
    """A rule from every descendant to each of its ancestors."""
    below: dict[int, set[int]] = {}
    for stage in stages:
        for rule in stage:
            child = rule.body[0][0]
            below.setdefault(rule.head, set()).update({child} | below.get(child, set()))
    return [Rule(((place, True),), head) for head, places in below.items() for place in sorted(places)]
