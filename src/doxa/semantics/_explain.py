"""Which worlds explain that an axiom holds: what the networks must have seen, most probable first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ConfigError, ProblemError
from doxa.logic import Axiom, Interpretation, KnowledgeBase, Name, Quantifier, postorder
from doxa.pose import ProblemBatch, pose
from doxa.problem import Budget
from doxa.semantics._combine import row_by_row
from doxa.semantics._exact import planned
from doxa.semantics._semantics import Semantics

__all__ = ["Explanation", "World", "explain"]

DRAWS = 4096
"""At least so many worlds are drawn where listing the best is too hard."""


@dataclass(frozen=True)
class World:
    """What neural functions and predicates are in one world, and how probable that is.

    Attributes:
        values: by a readable name, such as ``{"digit(p.left)": 3}``.
        probability: of this world given that the axiom holds.

    >>> print(World({"digit(p.left)": 3, "digit(p.right)": 5}, 0.25))
    0.25  digit(p.left) = 3, digit(p.right) = 5
    """

    values: dict[str, object]
    probability: float

    def __str__(self) -> str:
        told = ", ".join([f"{name} = {value}" for name, value in self.values.items()]) or "nothing is uncertain"
        return f"{self.probability:.2f}  {told}"


@dataclass(frozen=True)
class Explanation:
    """The best worlds in which an axiom holds of one row.

    Attributes:
        row: which instance of the axiom it is, counted over all variables of its first ``forall``.
        worlds: best first; none if it cannot hold.
        how: how they were found.
        instance: the row or object that each variable of that ``forall`` stands for.

    >>> print(Explanation(2, [World({"digit(p.left)": 3}, 1.0)], "exact", {"p": 2}))
    p = 2: 1 world (exact)
      1.00  digit(p.left) = 3
    """

    row: int
    worlds: list[World]
    how: str
    instance: dict[str, int]

    def __str__(self) -> str:
        place = ", ".join([f"{name} = {at}" for name, at in self.instance.items()]) or "the axiom"
        many = f"{len(self.worlds)} world{'' if len(self.worlds) == 1 else 's'}"
        return "\n".join([f"{place}: {many} ({self.how})", *[f"  {world}" for world in self.worlds]])


def explain(
    kb: KnowledgeBase,
    interpretation: Interpretation,
    axiom: str | None,
    k: int,
    how: Semantics | None,
    generator: torch.Generator | None,
    data: Mapping[str, Any],
) -> list[Explanation]:
    """See :meth:`Model.explain`."""
    if not isinstance(k, int) or k < 1:
        raise ConfigError(f"k is {k!r}, expected a whole number of at least 1")
    asked = _chosen(kb, axiom)
    budget = Budget() if how is None else how.budget
    with torch.no_grad():
        (posed,) = pose([row_by_row(asked)], interpretation, data, limit=budget.join, generator=generator)
        found: dict[int, tuple[list[World], str]] = {}
        for batch in posed.batches:
            worlds, probabilities, said = _best(interpretation, batch, k, how, budget, generator)
            names = [renamed(name, asked, posed.variables) for name in batch.problem.names[: len(batch.values)]]
            for at, some, chances in zip(
                batch.instances.tolist(), worlds.tolist(), probabilities.tolist(), strict=True
            ):
                listed = [
                    World({n: of[v] for n, of, v in zip(names, batch.values, world, strict=True)}, chance)
                    for world, chance in zip(some, chances, strict=True)
                    if chance > 0
                ]
                found[at] = (listed, said)
    explained = []
    for i, (passes, holds) in enumerate(zip(posed.passes.tolist(), posed.holds.tolist(), strict=True)):
        certain = ([World({}, 1.0)], "nothing is uncertain" if passes else "its guard excludes it")
        told = found.get(i, certain if holds else ([], "it cannot hold"))
        explained.append(Explanation(i, *told, _instance(i, posed.variables, posed.shape)))
    return explained


def _chosen(kb: KnowledgeBase, axiom: str | None) -> Axiom:
    known = [a.name for a in kb.axioms]
    if axiom is None and len(known) == 1:
        return kb.axioms[0]
    if axiom not in known:
        what = "say which axiom to explain" if axiom is None else f"there is no axiom {axiom!r}"
        raise ConfigError(f"{what}; the axioms are {', '.join(known)}")
    return kb[axiom]


def _best(
    interpretation: Interpretation,
    batch: ProblemBatch,
    k: int,
    how: Semantics | None,
    budget: Budget,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, str]:
    """The best worlds ``(instances, k, W)``, their probabilities ``(instances, k)``, and how they were found."""
    sampled = type(how).__name__ == "Sampled"
    if not sampled:
        try:
            reasoner = planned(interpretation, batch.problem, budget).reasoner
        except ProblemError:
            pass
        else:
            exact = reasoner.explain(batch.belief, batch.observed, k, given=batch.given)
            return exact.worlds, exact.scores.exp(), f"exact: the {k} most probable"
    draws = max(DRAWS, getattr(how, "estimator", None).n if sampled else 0)  # type: ignore[union-attr]
    drawn = batch.belief.sample(draws, generator=generator)  # (draws, instances, W)
    holds = (batch.problem(drawn, batch.given) == batch.observed).all(-1).movedim(0, 1)
    worlds = drawn.movedim(0, 1)
    best, chances = worlds.new_full((len(worlds), k, worlds.shape[-1]), -1), torch.zeros(len(worlds), k)
    for i, (some, held) in enumerate(zip(worlds, holds, strict=True)):
        if held.any():
            distinct, often = torch.unique(some[held], dim=0, return_counts=True)
            top = often.argsort(descending=True, stable=True)[:k]
            best[i, : len(top)], chances[i, : len(top)] = distinct[top], (often[top] / often.sum()).to(chances)
    return best, chances, f"estimated from {draws:,} samples"


def renamed(name: str, axiom: Axiom, variables: tuple[str, ...]) -> str:
    """A name that speaks of the variables of the axiom instead of their rows."""
    groups = [g for node in postorder(axiom.formula) if isinstance(node, Quantifier) for g in node.groups]
    over = [g.domain.name for g in groups if isinstance(g.domain, Name) for _ in g.names]
    first = axiom.formula.groups if isinstance(axiom.formula, Quantifier) else ()
    for group in first:
        if isinstance(group.domain, Name):
            rows = group.domain.name
            own = [n for g in first if isinstance(g.domain, Name) and g.domain.name == rows for n in g.names]
            if over.count(rows) == len(own) and set(own) <= set(variables):  # nobody else ranges over these rows
                for number, variable in reversed(list(enumerate(own))):
                    place = re.escape(f"{rows}[{number}]" if number else rows)
                    name = re.sub(rf"(?<![\w.]){place}\.", f"{variable}.", name)
    return name


def _instance(number: int, names: tuple[str, ...], sizes: tuple[int, ...]) -> dict[str, int]:
    found = {}
    for name, size in zip(reversed(names), reversed(sizes), strict=True):
        number, found[name] = divmod(number, max(size, 1))
    return dict(reversed(found.items()))
