"""Amortised semantics: the probability that an axiom holds, by a network that has learnt to infer it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from doxa.amortized import AmortizedReasoner as Engine
from doxa.amortized import (
    CausalTransformer,
    FactorMLPs,
    FittedDirichlet,
    InferenceModel,
    MixtureDirichlet,
    Prior,
    Replay,
    ScanModel,
)
from doxa.errors import ConfigError, ProblemError
from doxa.logic import Axiom, Interpretation
from doxa.pose import KnowledgeReasoner, KnowledgeTerm
from doxa.problem import Belief, Problem
from doxa.semantics._equation import Equation, equation
from doxa.semantics._instances import kept, outer, shape
from doxa.semantics._learners import Learner, Learners, digest
from doxa.semantics._posed import posers
from doxa.semantics._semantics import Compiled

__all__ = ["Amortized"]

HOLDS = (False, True)
NEG_INF = float("-inf")


@dataclass(frozen=True)
class Amortized:
    r"""A-NeSI (Chapter 6): the loss of an axiom is :math:`-\log q(φ | P)`, averaged over its instances, where q learns.

    The inference model q sees what the networks believe, P, and predicts what follows from it, with no sum over worlds.
    It costs no data: beliefs are drawn from a prior, worlds from the beliefs, and the knowledge says what is true in
    them. Every loss that is computed in training mode, with gradients on, first tells the prior what was believed and
    makes ``steps`` such updates of q, the very first one ``pretrain`` of them. In evaluation q stays as it is. It is
    no better than what it has learnt: ``Exact`` is what it approximates.

    Where an axiom is an equation, ``forall p in pairs. … (term = p.field)``, q predicts the value of the term, else
    whether an instance holds. Numbers of the data that another axiom mentions are part of what q sees, and it can judge
    only those that training met. Instances are taken to be independent.

    The inference models, their optimisers and priors live in ``Model.inference``: ``state_dict`` has them, and a run
    goes on to the bit. They are not among ``Model.parameters()``, which are what your own optimiser trains. Processes
    that train together have one each.

    Args:
        model: the kind of q: "mlp" (the dissertation's), "scan" for long sequences, "transformer".
        hidden: its width.
        layers: its hidden layers (not of "scan").
        pretrain: updates of q before the first loss.
        steps: updates of q for each loss.
        samples: beliefs in each update.
        learning_rate: of q, by Adam.
        prior: of beliefs: a "mixture" of sharp and flat ones, which needs no fitting; "fitted" to those that occur, by
            a Dirichlet distribution (the dissertation's); or a "replay" of those that occurred.
        impossible: what happens where a field has a value that no world gives: "raise" an error, or a "finite" loss
            with derivative 0.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.9)), wet=doxa.probs(torch.tensor(0.3)))
    >>> how = Amortized(hidden=32, pretrain=300, samples=200, learning_rate=1e-2, prior="replay")
    >>> loss = model.loss(semantics=how)
    >>> bool((model.truth(semantics=how)["soaked"] - 0.37).abs() < 0.1)       # what Exact() says
    True
    """

    model: Literal["mlp", "scan", "transformer"] = "mlp"
    hidden: int = 256
    layers: int = 2
    pretrain: int = 0
    steps: int = 1
    samples: int = 600
    learning_rate: float = 1e-3
    prior: Literal["mixture", "fitted", "replay"] = "mixture"
    impossible: Literal["raise", "finite"] = "raise"

    def __post_init__(self) -> None:
        choices = {"model": tuple(_MODELS), "prior": tuple(_PRIORS), "impossible": ("raise", "finite")}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} is {getattr(self, name)!r}, expected {' or '.join(map(repr, known))}")
        for name, least in [("hidden", 1), ("layers", 1), ("pretrain", 0), ("steps", 0), ("samples", 1)]:
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)!r}, expected a whole number of at least {least}")
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate is {self.learning_rate}, expected a number above 0")

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        return _Compiled([_part(axiom, interpretation) for axiom in axioms], interpretation, self)

    def learner(self, problem: Problem, device: torch.device) -> Learner:
        """A new inference model for a problem, with its prior and optimiser."""
        model = _MODELS[self.model](problem, self.hidden, self.layers)
        engine = Engine(problem, model, _PRIORS[self.prior](problem.world))
        return Learner(engine.to(device), self.learning_rate)


def _mlp(problem: Problem, hidden: int, layers: int) -> InferenceModel:
    return FactorMLPs(problem, hidden=hidden, layers=layers, explain=False)


def _scan(problem: Problem, hidden: int, layers: int) -> InferenceModel:
    return ScanModel(problem, hidden=hidden, explain=False)


def _transformer(problem: Problem, hidden: int, layers: int) -> InferenceModel:
    return CausalTransformer(problem, width=hidden, layers=layers, explain=False)


_MODELS = {"mlp": _mlp, "scan": _scan, "transformer": _transformer}
_PRIORS: dict[str, type[Prior]] = {"fitted": FittedDirichlet, "mixture": MixtureDirichlet, "replay": Replay}


class _Part(NamedTuple):
    """An axiom, and who poses its problems: of a term, or of whether instances hold."""

    axiom: Axiom
    equation: Equation | None
    term: KnowledgeTerm | None
    holds: KnowledgeReasoner | None
    rows: KnowledgeReasoner | None


def _part(axiom: Axiom, interpretation: Interpretation) -> _Part:
    found = equation(axiom, interpretation)
    if found is not None:
        return _Part(axiom, found, found.poser(interpretation), None, None)
    (whole,), (rows,) = posers([axiom], interpretation, kept), posers([axiom], interpretation, outer)
    return _Part(axiom, None, None, whole, rows)


class _Posed(NamedTuple):
    """A batch of equal problems with what their outputs stand for, and which units they are."""

    problem: Problem
    labels: tuple[Any, ...]
    belief: Belief
    units: Tensor


class _Compiled:
    def __init__(self, parts: list[_Part], interpretation: Interpretation, how: Amortized) -> None:
        self.parts, self.interpretation, self.how = parts, interpretation, how
        self.learners = Learners()
        self._names: dict[int, tuple[Problem, str]] = {}

    def adopt(self, learners: Learners) -> None:
        """Keep all learners there from now on."""
        self.learners = learners

    def losses(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        learning = self.interpretation.training and torch.is_grad_enabled()
        found = []
        for part in self.parts:
            log_probs = self._log_probs(part, part.holds, data, learning, generator)
            dead = log_probs == NEG_INF
            if self.how.impossible == "raise" and bool(dead.any()):
                rows = ", ".join([str(tuple(row.tolist())) for row in dead.nonzero()[:10]])
                raise ProblemError(
                    f"axiom {part.axiom.name!r} cannot hold in rows {rows}: no world gives what is observed there; "
                    "correct the data, or say impossible='finite'"
                )
            worst = math.log(torch.finfo(log_probs.dtype).tiny)
            found.append(-log_probs.masked_fill(dead, worst).sum() / max(1, log_probs.numel()))
        return torch.stack(found)

    def truths(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        return torch.stack([self._log_probs(p, p.holds, data, False, generator).sum().exp() for p in self.parts])

    def each(self, data: Mapping[str, Any], generator: torch.Generator | None) -> list[Tensor]:
        found = []
        for part in self.parts:
            log_probs = self._log_probs(part, part.rows, data, False, generator)
            sizes = shape(part.axiom, outer(part.axiom, self.interpretation), self.interpretation, data)
            found.append(log_probs.exp().reshape(sizes or (1,)))
        return found

    def explain(self, data: Mapping[str, Any]) -> str:
        lines = ["learnt, so an approximation; instances are independent, and so are world variables given the data"]
        for part in self.parts:
            what = "whether it holds" if part.equation is None else f"the value of {part.equation.term}"
            lines.append(f"{part.axiom.name}: {what}, by inference models of kind {self.how.model}")
            for posed in self._posed(part, part.holds, data)[0]:
                updates = self.learners.known(self._name(part.axiom, posed)).values()
                lines.append(f"{len(posed.units):,} times {posed.problem}, after {sum(updates):,} updates")
        return "\n".join(lines)

    # -- what is asked ----------------------------------------------------------------------------------------------

    def _posed(
        self, part: _Part, holds: KnowledgeReasoner | None, data: Mapping[str, Any]
    ) -> tuple[list[_Posed], list[tuple[Any, Tensor]]]:
        """The problems of the units, and the units with a certain value."""
        if part.term is not None:
            assert part.equation is not None
            needed = {n: rows for n, rows in data.items() if n not in part.equation.unasked}
            valued, value = part.term.valued(**needed), self._number
            problems = [_Posed(p, tuple(map(value, labels)), b, units) for p, labels, b, units in valued.problems]
            return problems, [(value(label), units) for label, units in valued.certain]
        assert holds is not None
        posed = holds.posed(**data)
        problems = [_Posed(p, HOLDS, belief, units) for p, belief, units in posed.problems]
        uncertain = torch.cat([torch.zeros(0, dtype=torch.int64), posed.violated, *[p.units for p in problems]])
        certain = torch.ones(posed.count, dtype=torch.bool)
        certain[uncertain] = False
        return problems, [(False, posed.violated), (True, certain.nonzero().squeeze(1))]

    def _number(self, label: Any) -> Any:
        """A value of a term as a field holds it: the name of a value is its position."""
        if not isinstance(label, str):
            return label
        values = self.interpretation.kb.signature.value_sorts[label].values
        assert isinstance(values, tuple)
        return values.index(label)

    def _log_probs(
        self,
        part: _Part,
        holds: KnowledgeReasoner | None,
        data: Mapping[str, Any],
        learning: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        """log q of every instance: that it holds, or that the term has the value of the field."""
        problems, certain = self._posed(part, holds, data)
        observed = None if part.equation is None else _observed(part.equation, self.interpretation, data)
        apart = part.equation is not None and part.equation.variable not in part.equation.units
        found, places = [], []
        for posed in problems:
            table = self._inferred(part.axiom, posed, learning, generator)
            at = posed.units.to(table.device)
            wanted = True if observed is None else observed if apart else observed.to(table.device)[at]
            found.append(_looked_up(table, posed.labels, wanted, apart))
            places.append(posed.units)
        like = found[0] if found else torch.zeros(0)
        for value, units in certain:
            table = like.new_zeros(len(units), 1)
            wanted = True if observed is None else observed if apart else observed[units.to(observed.device)]
            found.append(_looked_up(table, (value,), wanted, apart))
            places.append(units)
        if not found:  # there are no rows
            return like
        order = torch.cat(places).argsort().to(like.device)
        together = torch.cat(found).index_select(0, order)
        return _axes(together, part, self.interpretation, data) if apart else together

    def _inferred(self, axiom: Axiom, posed: _Posed, learning: bool, generator: torch.Generator | None) -> Tensor:
        """log q of each output, ``(units, outputs)``; first q learns, if it may."""
        name, how = self._name(axiom, posed), self.how
        if not learning:
            self._require_known(axiom, name)
        learner = self.learners.find(name, lambda: how.learner(posed.problem, posed.belief.log_probs.device))
        engine = learner.engine
        if learning:
            learner.observe(posed.belief)
            if not learner.updates:
                learner.learn(how.pretrain, how.samples, generator)
            learner.learn(how.steps, how.samples, generator)
        return engine.output_log_probs(posed.belief)

    def _name(self, axiom: Axiom, posed: _Posed) -> str:
        """A learner is known by its axiom, its kind and its problem."""
        if id(posed.problem) not in self._names:
            self._names[id(posed.problem)] = (posed.problem, digest(posed.problem, posed.labels))
        return f"{self._kind(axiom)}{self._names[id(posed.problem)][1]}"

    def _kind(self, axiom: Axiom) -> str:
        return f"{axiom.name}/{self.how.model} {self.how.hidden} {self.how.layers} {self.how.prior}/"

    def _require_known(self, axiom: Axiom, name: str) -> None:
        others = self.learners.known(self._kind(axiom))
        if others and name not in others:
            raise ConfigError(
                f"axiom {axiom.name!r} poses a problem here that no inference model was trained for: rows of another "
                "shape, or numbers that training never met; train on such data too, or use Exact() or Sampled()"
            )


def _observed(found: Equation, interpretation: Interpretation, data: Mapping[str, Any]) -> Tensor:
    """What the field holds, for every choice of the variables of the term; by itself if they do not decide it."""
    column = interpretation.read(data, [found.rows]).column(found.rows, found.field).values
    if found.variable not in found.units:
        return column
    sizes = shape(found.axiom, found.units, interpretation, data)
    axis = found.units.index(found.variable)
    view = column.reshape([-1 if i == axis else 1 for i in range(len(sizes))])
    return view.expand(sizes).reshape(-1)


def _looked_up(table: Tensor, labels: tuple[Any, ...], wanted: Tensor | bool, apart: bool) -> Tensor:
    """The entries of a table ``(units, labels)`` for wanted labels: one for each unit or, ``apart``, all for all."""
    if isinstance(wanted, bool):
        return table[:, labels.index(wanted)] if wanted in labels else torch.full_like(table[:, 0], NEG_INF)
    wanted = wanted.to(table.device)
    numbers = torch.tensor([math.nan if v is None else float(v) for v in labels], dtype=torch.float64)
    equal = wanted.double().unsqueeze(-1) == numbers.to(table.device)  # (wanted, labels)
    place, there = equal.long().argmax(-1), equal.any(-1)
    if apart:
        return table.index_select(1, place).masked_fill(~there, NEG_INF)
    return table.gather(1, place.unsqueeze(1)).squeeze(1).masked_fill(~there, NEG_INF)


def _axes(log_probs: Tensor, part: _Part, interpretation: Interpretation, data: Mapping[str, Any]) -> Tensor:
    """From ``(units of the term, rows of the field)`` to an axis for each variable, in the order of the axiom."""
    assert part.equation is not None
    now = (*part.equation.units, part.equation.variable)
    names = [name for name in outer(part.axiom, interpretation) if name in now]
    sizes = shape(part.axiom, now, interpretation, data)
    return log_probs.reshape(sizes).permute([now.index(name) for name in names])
