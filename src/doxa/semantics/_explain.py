"""Which worlds explain that an axiom holds: what the networks must have seen, most probable first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from doxa.errors import ConfigError, ProblemError
from doxa.exact import Budget, plan
from doxa.logic import Axiom, Name, Quantifier, postorder
from doxa.problem import Belief, Problem
from doxa.semantics._auto import Auto
from doxa.semantics._exact import Exact
from doxa.semantics._instances import outer, shape
from doxa.semantics._posed import posers
from doxa.semantics._sampled import Sampled

if TYPE_CHECKING:
    from doxa.semantics._model import Chosen, Model

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
    model: Model,
    axiom: str | None,
    k: int,
    semantics: Chosen,
    generator: torch.Generator | None,
    data: Mapping[str, Any],
) -> list[Explanation]:
    """See :meth:`Model.explain`."""
    if not isinstance(k, int) or k < 1:
        raise ConfigError(f"k is {k!r}, expected a whole number of at least 1")
    asked = _chosen(model, axiom)
    how = semantics if semantics is not None else model.semantics
    if isinstance(how, Mapping):
        how = how.get(asked.name)
    (poser,) = posers([asked], model.interpretation, outer)
    names = outer(asked, model.interpretation)
    sizes = shape(asked, names, model.interpretation, data)
    with torch.no_grad():
        posed = poser.posed(**data)
        found: dict[int, tuple[list[World], str]] = {int(i): ([], "it cannot hold") for i in posed.violated}
        for (problem, belief, units), values, believed in zip(
            posed.problems, posed.values, posed.believed, strict=True
        ):
            worlds, probabilities, said = _best(problem, belief, k, how, generator)
            told = [
                (i, _renamed(problem.names[i], asked, names), values[i]) for i, random in enumerate(believed) if random
            ]
            for unit, some, chances in zip(units.tolist(), worlds.tolist(), probabilities.tolist(), strict=True):
                listed = [
                    World({name: of[world[i]] for i, name, of in told}, chance)
                    for world, chance in zip(some, chances, strict=True)
                    if chance > 0
                ]
                found[unit] = (listed, said)
    certain = ([World({}, 1.0)], "nothing is uncertain")
    return [
        Explanation(i, *found.get(i, certain), _instance(i, names, sizes))  # one for every instance
        for i in range(posed.count)
    ]


def _chosen(model: Model, axiom: str | None) -> Axiom:
    known = [a.name for a in model.kb.axioms]
    if axiom is None and len(known) == 1:
        return model.kb.axioms[0]
    if axiom not in known:
        what = "say which axiom to explain" if axiom is None else f"there is no axiom {axiom!r}"
        raise ConfigError(f"{what}; the axioms are {', '.join(known)}")
    return model.kb[axiom]


def _best(
    problem: Problem, belief: Belief, k: int, how: Any, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, str]:
    """The best worlds ``(units, k, W)``, their probabilities ``(units, k)``, and how they were found."""
    if not isinstance(how, Sampled):
        budget: Budget | None = how.budget if isinstance(how, Exact | Auto) else None
        try:
            reasoner = plan(problem, impossible="inf", budget=budget).reasoner
        except ProblemError:  # nothing fits the budget
            pass
        else:
            exact = reasoner.explain(belief, torch.ones(1, dtype=torch.int64, device=belief.log_probs.device), k)
            return exact.worlds, exact.scores.exp(), f"exact: the {k} most probable"
    draws = max(DRAWS, how.estimator.n if isinstance(how, Sampled) else 0)
    worlds = belief.sample(draws, generator=generator).movedim(0, 1)  # (units, draws, W)
    holds = problem(worlds)[..., 0] == 1
    best, chances = worlds.new_full((len(worlds), k, worlds.shape[-1]), -1), torch.zeros(len(worlds), k)
    for i, (drawn, held) in enumerate(zip(worlds, holds, strict=True)):
        if held.any():
            distinct, often = torch.unique(drawn[held], dim=0, return_counts=True)
            top = often.argsort(descending=True, stable=True)[:k]
            best[i, : len(top)], chances[i, : len(top)] = distinct[top], (often[top] / often.sum()).to(chances)
    return best, chances, f"estimated from {draws:,} samples"


def _renamed(name: str, axiom: Axiom, variables: tuple[str, ...]) -> str:
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
