"""The worlds in which axioms hold: the most probable ones explain, all of them together condition what is believed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from doxa import _html
from doxa._cache import Lock
from doxa.errors import ConfigError, KnowledgeError, ProblemError
from doxa.logic import Axiom, Interpretation, KnowledgeBase, Name, Quantifier, postorder
from doxa.logic.syntax._binders import Binder
from doxa.pose import PosedAxiom, ProblemBatch, pose
from doxa.problem import Belief, Budget, Mixture
from doxa.problem._autoregressive import Autoregressive
from doxa.problem._mixture import marginals
from doxa.semantics._combine import joint_axiom, row_by_row
from doxa.semantics._exact import exactly
from doxa.semantics._probabilistic import impossible
from doxa.semantics._semantics import Data, Generator, Semantics, locked

ROWS, LINES = 20, 100
"""So many rows and beliefs are shown in a notebook."""
DRAWS = 4096
"""At least so many worlds are drawn where listing the best is too hard."""


@dataclass(frozen=True)
class World:
    """What neural functions and predicates are in one world, and how probable that is.

    Attributes:
        values: by a readable name, such as ``{"digit(p.left)": 3}``.
        probability: of this world given that the axiom holds.
        components: of a mixture, how probable it is that this world comes from each of its components, p(k | w);
            empty where there is no mixture.

    >>> print(World({"digit(p.left)": 3, "digit(p.right)": 5}, 0.25))
    0.25  digit(p.left) = 3, digit(p.right) = 5
    """

    values: dict[str, object]
    probability: float
    components: tuple[float, ...] = ()

    def __str__(self) -> str:
        told = ", ".join([f"{name} = {value}" for name, value in self.values.items()]) or "nothing is uncertain"
        shares = f"  [component {self.shares}]" if self.components else ""
        return f"{self.probability:.2f}  {told}{shares}"

    @property
    def shares(self) -> str:
        """The components that it may come from, and how probably."""
        return ", ".join([f"{i}: {share:.2f}" for i, share in enumerate(self.components) if share >= 0.005])

    def _repr_html_(self) -> str:
        return _html.box(_worlds([self]))


@dataclass(frozen=True)
class Explanation:
    """The best worlds in which an axiom holds of one row.

    Attributes:
        row: which instance of the axiom it is, counted over all variables of its first ``forall``.
        worlds: best first; none if it cannot hold.
        how: how they were found.
        instance: what each variable of that ``forall`` stands for: the name of an object, or the number of one
            without a name or of a row.

    >>> print(Explanation(2, [World({"digit(p.left)": 3}, 1.0)], "exact", {"p": 2}))
    p = 2: 1 world (exact)
      1.00  digit(p.left) = 3
    """

    row: int
    worlds: list[World]
    how: str
    instance: dict[str, int | str]

    def __str__(self) -> str:
        place = ", ".join([f"{name} = {at}" for name, at in self.instance.items()]) or "the axiom"
        many = f"{len(self.worlds)} world{'' if len(self.worlds) == 1 else 's'}"
        return "\n".join([f"{place}: {many} ({self.how})", *[f"  {world}" for world in self.worlds]])

    def _repr_html_(self) -> str:
        return _html.box(*self._html())

    def _html(self) -> tuple[_html.Html, _html.Html]:
        return _html.line(str(self).partition("\n")[0]), _worlds(self.worlds)


class Explanations(list[Explanation]):
    """The explanations of all rows of an axiom: a list that notebooks show.

    >>> Explanations([Explanation(2, [World({"digit(p.left)": 3}, 1.0)], "exact", {"p": 2})])[0].row
    2
    """

    def _repr_html_(self) -> str:
        shown = [part for explanation in self[:ROWS] for part in explanation._html()]
        return _html.box(*shown, *_html.more(min(ROWS, len(self)), len(self), "rows"))


def _worlds(worlds: list[World]) -> _html.Html:
    """A line for each world, with its probability as a bar."""
    names = list(dict.fromkeys([name for world in worlds for name in world.values]))
    mixed = ["component"] if any(world.components for world in worlds) else []
    rows = [
        (_html.bar(w.probability), *[w.values.get(name, "") for name in names], *[w.shares for _ in mixed])
        for w in worlds
    ]
    return _html.table(("probability", *names, *mixed), rows) if worlds else _html.line("no world", kind="bad")


def explain(
    interpretation: Interpretation, axiom: str | None, k: int, how: Semantics, generator: Generator, data: Data
) -> Explanations:
    """See :meth:`Model.explain`."""
    if not isinstance(k, int) or k < 1:
        raise ConfigError(f"k is {k!r}, expected a whole number of at least 1")
    asked = chosen(interpretation.kb, axiom)
    with torch.no_grad():
        (posed,) = pose([row_by_row(asked)], interpretation, data, limit=how.budget.join, generator=generator)
        found: dict[int, tuple[list[World], str]] = {}
        for batch in posed.batches:
            worlds, probabilities, said = _best(interpretation, batch, k, how, generator)
            names = [_renamed(name, asked, posed.variables) for name in batch.problem.names[: len(batch.values)]]
            for at, some, chances, parts in zip(
                batch.instances.tolist(),
                worlds.tolist(),
                probabilities.tolist(),
                _components(batch.belief, worlds),
                strict=True,
            ):
                listed = [
                    World({n: of[v] for n, of, v in zip(names, batch.values, world, strict=True)}, chance, tuple(part))
                    for world, chance, part in zip(some, chances, parts, strict=True)
                    if chance > 0
                ]
                found[at] = (listed, said)
    called = names_of(interpretation, asked, data)
    explained = Explanations()
    for i, (passes, holds) in enumerate(zip(posed.passes.tolist(), posed.holds.tolist(), strict=True)):
        certain = ([World({}, 1.0)], "nothing is uncertain" if passes else "its guard excludes it")
        told = found.get(i, certain if holds else ([], "it cannot hold"))
        explained.append(Explanation(i, *told, place_of(posed, i, called)))
    return explained


def place_of(posed: PosedAxiom, instance: int, names: dict[str, tuple[str, ...]]) -> dict[str, int | str]:
    """What the variables of an instance stand for: the name of an object, else its number."""
    places = torch.unravel_index(torch.tensor(instance), posed.shape) if posed.shape else ()
    if posed.listed is not None:
        places = tuple([column[instance] for column in posed.listed.columns.values()])
    pairs = zip(posed.variables, places, strict=True)
    return {name: names[name][at] if name in names else int(at) for name, at in pairs}


def names_of(interpretation: Interpretation, axiom: Axiom, data: Data) -> dict[str, tuple[str, ...]]:
    """By variable of the outermost ``forall``, the names of what it ranges over: values, or constants of a sort."""
    groups = axiom.formula.groups if isinstance(axiom.formula, Quantifier) else ()
    found: dict[str, tuple[str, ...]] = {}
    for group in [g for g in groups if g.sort is not None and g.sample is None]:
        sort = interpretation.kb.signature.sorts[str(group.sort)]
        values = sort.values or (() if sort.name in data else interpretation.constants_of.get(sort.name, ()))
        found |= {name: tuple(map(str, values)) for name in group.names if values}
    return found


def chosen(kb: KnowledgeBase, axiom: str | None) -> Axiom:
    """The axiom of a name, or the only one."""
    known = [a.name for a in kb.axioms]
    if axiom is None and len(known) == 1:
        return kb.axioms[0]
    if axiom not in known:
        what = "say which axiom to explain" if axiom is None else f"there is no axiom {axiom!r}"
        raise ConfigError(f"{what}; the axioms are {', '.join(known)}")
    return kb[axiom]


def _best(
    interpretation: Interpretation, batch: ProblemBatch, k: int, how: Semantics, generator: Generator
) -> tuple[Tensor, Tensor, str]:
    """The best worlds ``(instances, k, W)``, their probabilities ``(instances, k)``, and how they were found."""
    sampled = type(how).__name__ == "Sampled"
    if not sampled:
        try:
            asked = exactly(interpretation, batch, how.budget)
        except ProblemError:
            pass
        else:
            exact = asked.reasoner.explain(asked.belief, batch.observed, k, given=batch.given)
            said = f"exact: the {k} most probable"
            if exact.optimal is not None and not bool((exact.optimal | (exact.scores == -torch.inf)).all()):
                said = f"exact probabilities; the {k} best that were found, not all of them proven to be"
            return exact.worlds, exact.scores.exp(), said
    draws = max(DRAWS, getattr(how, "estimator", None).n if sampled else 0)  # type: ignore[union-attr]
    drawn = batch.belief.sample(draws, generator=generator)  # (draws, instances, W)
    drawn = batch.belief.of_problem(drawn) if isinstance(batch.belief, Autoregressive) else drawn
    holds = (batch.problem(drawn, batch.given) == batch.observed).all(-1).movedim(0, 1)
    worlds = drawn.movedim(0, 1)
    best, chances = worlds.new_full((len(worlds), k, worlds.shape[-1]), -1), torch.zeros(len(worlds), k)
    for i, (some, held) in enumerate(zip(worlds, holds, strict=True)):
        if held.any():
            distinct, often = torch.unique(some[held], dim=0, return_counts=True)
            top = often.argsort(descending=True, stable=True)[:k]
            best[i, : len(top)], chances[i, : len(top)] = distinct[top], (often[top] / often.sum()).to(chances)
    return best, chances, f"estimated from {draws:,} samples"


def _components(belief: Belief | Mixture | Autoregressive, worlds: Tensor) -> list[list[list[float]]]:
    """p(k | w) for each world ``(instances, k, W)`` of each instance; nothing where there is no mixture."""
    if not isinstance(belief, Mixture):
        return [[[] for _ in some] for some in worlds]
    shares = belief.joint(worlds.clamp(min=0).movedim(1, 0)).softmax(-1).movedim(0, 1)
    found: list[list[list[float]]] = shares.tolist()
    return found


def _renamed(name: str, axiom: Axiom, variables: tuple[str, ...]) -> str:
    """A name that speaks of the variables of the axiom instead of their rows."""
    groups = [g for node in postorder(axiom.formula) if isinstance(node, Binder) for g in node.groups]
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


@dataclass(frozen=True, eq=False)
class ConditionedBeliefs:
    """What is believed given that the knowledge holds, for every row.

    Attributes:
        probs: by variable, such as ``digit(p.left)``: of a predicate its probability ``(rows,)``, of a function the
            probabilities of its values ``(rows, values)``. Derivatives flow through them.
        values: by variable, its value in the most probable world in which the knowledge holds, int64 ``(rows,)``: all
            of them together satisfy the knowledge for certain.
        log_prob: how probable the knowledge was before, ``(rows,)``.

    >>> ConditionedBeliefs({"rain": torch.tensor([0.3])}, {"rain": torch.tensor([0])}, torch.zeros(1)).probs["rain"]
    tensor([0.3000])
    """

    probs: dict[str, Tensor]
    values: dict[str, Tensor]
    log_prob: Tensor

    def _repr_html_(self) -> str:
        rows = []
        for name, probs in self.probs.items():
            best, sure = self.values[name].tolist(), (probs.max(1).values if probs.ndim > 1 else probs).tolist()
            many = probs.ndim > 1
            rows += [
                (i, name, b if many else bool(b), _html.bar(p)) for i, (b, p) in enumerate(zip(best, sure, strict=True))
            ]
        rows.sort(key=lambda row: row[0])
        head = ("row", "variable", "value", "belief, given the knowledge")
        return _html.box(_html.table(head, rows[:LINES]), *_html.more(min(LINES, len(rows)), len(rows), "beliefs"))


class KnowledgeLayer(nn.Module):
    r"""A network's beliefs, conditioned on knowledge: :math:`p(w | φ) = p(w) [φ(w)] / p(φ)`, row by row.

    Made by :meth:`doxa.Model.layer`, for the same knowledge and bindings. All axioms must speak of the same rows or
    objects. The answer in ``values`` satisfies all of them, whatever the networks say.

    Args:
        kb: the knowledge.
        interpretation: the meaning of its symbols.
        target: how probable the knowledge is to be made: a target t < 1 mixes p(w | φ) and p(w | ¬φ) by t and 1 - t
            where p(φ) < t.
        budget: limits of exact reasoning.

    >>> import doxa
    >>> model = doxa.Model("sort Day; pred rain(Day); pred wet(Day); forall d: Day. rain(d) -> wet(d)",
    ...                    rain=doxa.probs(torch.tensor([0.9])), wet=doxa.probs(torch.tensor([0.1])))
    >>> found = model.layer()(Day=1)
    >>> {name: bool(value) for name, value in found.values.items()}
    {'rain(d)': False, 'wet(d)': False}
    """

    def __init__(
        self, kb: KnowledgeBase, interpretation: Interpretation, *, target: float = 1.0, budget: Budget | None = None
    ) -> None:
        super().__init__()
        if not 0 < target <= 1:
            raise ConfigError(f"target is {target}, expected a probability above 0")
        if not kb.axioms:
            raise KnowledgeError("the knowledge base has no axioms to condition on")
        self.interpretation, self.target, self.budget = interpretation, target, budget or Budget()
        self.axiom, self.lock = joint_axiom(kb.axioms, guarded=False), Lock()

    @locked
    def forward(self, **data: Any) -> ConditionedBeliefs:
        """The beliefs of every row of the data, given that all axioms hold of it."""
        (posed,) = pose([self.axiom], self.interpretation, data, limit=self.budget.join)
        certain = posed.holds & posed.passes
        if len(posed.batches) != 1 or bool((~certain).sum() != len(posed.batches[0].instances)):
            dead = ~posed.holds
            for batch in posed.batches:
                dead[batch.instances] = False
            if bool(dead.any()):
                raise impossible(posed, dead.nonzero().squeeze(1))
            raise KnowledgeError(
                "the rows of the data do not look alike, so there is no one layer for them; give rows of one shape at "
                "a time"
            )
        (batch,) = posed.batches
        reasoner, belief = exactly(self.interpretation, batch, self.budget, posed.axiom)
        log_prob = reasoner.log_prob(belief, batch.observed, given=batch.given)
        dead = log_prob == -torch.inf
        if bool(dead.any()):
            raise impossible(posed, batch.instances[dead.cpu()])
        probs = reasoner.posterior(belief, batch.observed, given=batch.given).probs
        if self.target < 1:
            share, before = self.target, marginals(belief).probs
            p = log_prob.exp().unsqueeze(-1).unsqueeze(-1)
            denied = (before - p * probs) / (1 - p).clamp(min=torch.finfo(probs.dtype).eps)
            probs = torch.where(p < share, share * probs + (1 - share) * denied.clamp(0, 1), before)
        best = reasoner.explain(belief, batch.observed, 1, given=batch.given).worlds[..., 0, :]
        order = batch.instances.argsort().to(probs.device)
        found: dict[str, Tensor] = {}
        values: dict[str, Tensor] = {}
        for i, (name, of) in enumerate(zip(batch.problem.names[: len(batch.values)], batch.values, strict=True)):
            name = _renamed(name, self.axiom, posed.variables).replace("'", "")
            own = probs[order, i, : len(of)]
            found[name] = own[:, 1] if of[0] is False else own
            values[name] = best[order, i]
        return ConditionedBeliefs(found, values, log_prob[order])
