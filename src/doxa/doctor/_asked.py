"""What axioms ask about a small piece of data, under every observation: which worlds are right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.doctor._layout import Layout, ranged_rows
from doxa.doctor._layout import symbols as symbols_of
from doxa.errors import BudgetError, KnowledgeError
from doxa.logic import INT, REAL, And, Axiom, Function, Interpretation, KnowledgeBase, Name, Not, Predicate, probs
from doxa.logic.syntax._binders import first_forall
from doxa.pose import PosedAxiom, ProblemBatch, pose
from doxa.problem import Problem
from doxa.problem._budget import Meter

Observation = dict[tuple[str, str, int], Any]
"""What is observed, by rows, field and the number of the row."""
_CHUNK = 1 << 18  # worlds at a time
_TABLE = 1 << 20  # worlds whose outputs are kept
_INSTANCES = 1 << 16  # of an axiom


@dataclass(frozen=True)
class _Question:
    """A problem that some observations pose."""

    problem: Problem
    given: Tensor | None
    observed: Tensor
    places: Tensor  # for each observation its row in given and observed, or -1
    columns: list[int]  # of the variables in worlds
    outputs: Tensor | None  # of all worlds, where nothing is given and they are not too many

    def asks(self, worlds: Tensor, numbers: Tensor) -> Tensor:
        places = self.places[numbers]
        fine = torch.ones(len(worlds), dtype=torch.bool)
        where = (places >= 0).nonzero().squeeze(1)
        if not len(where):
            return fine
        here, places = worlds[where][:, self.columns], places[where]
        if self.outputs is not None:
            found = self.outputs[(here * _strides(self.problem.world)).sum(-1)]
        else:
            found = self.problem(here) if self.given is None else self.problem(here, self.given[places])
        fine[where] = (found == self.observed[places]).all(-1)
        return fine


def _strides(sizes: Sequence[int]) -> Tensor:
    return torch.tensor([math.prod(sizes[i + 1 :]) for i in range(len(sizes))])


class Asked:
    """Which worlds are right under which observation.

    Args:
        posed: the axioms, with the number of the instance that belongs to each observation, or -1.
        observations: all of them.
    """

    def __init__(self, posed: Sequence[tuple[PosedAxiom, Tensor]], observations: Sequence[Observation]) -> None:
        self.observations = observations
        self.possible = torch.ones(len(observations), dtype=torch.bool)
        self.variables: list[str] = []
        self.sizes: list[int] = []
        self.questions: list[_Question] = []
        for axiom, instances in posed:
            never = axiom.passes & ~axiom.holds
            for batch in axiom.batches:
                never[batch.instances] = False
            self.possible &= ~never[instances] | (instances < 0)
        for axiom, instances in posed:
            for batch in axiom.batches:
                rows = torch.full((len(axiom.holds),), -1)
                rows[batch.instances] = torch.arange(len(batch.instances))
                places = torch.where(instances < 0, -1, rows[instances])
                if bool((self.possible & (places >= 0)).any()):
                    self._add(batch, places)

    def _add(self, batch: ProblemBatch, places: Tensor) -> None:
        problem = batch.problem
        names = problem.names[: len(problem.world)]
        for name, size in zip(names, problem.world, strict=True):
            if name not in self.variables:
                self.variables.append(name)
                self.sizes.append(size)
        outputs = None
        if batch.given is None and problem.num_worlds <= _TABLE:
            outputs = torch.cat([problem(part) for part in _parts(problem.world)])
        columns = [self.variables.index(name) for name in names]
        self.questions.append(_Question(problem, batch.given, batch.observed, places, columns, outputs))

    def holds(self, worlds: Tensor, numbers: Tensor) -> Tensor:
        """Does everything hold in these worlds, under the observations of these numbers?"""
        fine = self.possible[numbers]
        for question in self.questions:
            fine = fine & question.asks(worlds, numbers)
        return fine

    def holding(self, limit: int, clock: Meter) -> tuple[Tensor, Tensor]:
        """All worlds and the numbers of observations under which they are right."""
        possible = self.possible.nonzero().squeeze(1)
        worlds = math.prod(self.sizes)
        said = "; raise it (--worlds, Budget(worlds=...)), or give the worlds that occur as data"
        if worlds > limit:
            size = f"{worlds:,}" if worlds < 10**15 else f"about 10^{len(str(worlds)) - 1}"
            raise BudgetError(
                "worlds", f"could not decide: there are {size} worlds, more than the limit of {limit:,}{said}"
            )
        telling = next(
            (q for q in self.questions if q.outputs is not None and bool((q.places[possible] >= 0).all())), None
        )
        if telling is None and worlds * len(possible) > 16 * limit:
            raise BudgetError(
                "worlds",
                f"could not decide: there are {worlds:,} worlds under each of {len(possible):,} observations, more "
                f"than the limit of {16 * limit:,} together{said}",
            )
        found = []
        total = 0
        for part in _parts(self.sizes, _CHUNK if telling else max(1, _CHUNK // max(1, len(possible)))):
            clock.check_clock()
            if telling is None:
                rows = torch.arange(len(part)).repeat_interleave(len(possible))
                numbers = possible.repeat(len(part))
            else:
                rows, numbers = _matching(part, telling, possible)
            right = self.holds(part[rows], numbers)
            found.append((part[rows[right]], numbers[right]))
            total += int(right.sum())
            if total > limit:
                raise BudgetError(
                    "worlds",
                    f"could not decide: more than {limit:,} pairs of a world and an observation are right{said}",
                )
        return torch.cat([w for w, _ in found]), torch.cat([n for _, n in found])


def _matching(worlds: Tensor, telling: _Question, possible: Tensor) -> tuple[Tensor, Tensor]:
    """The worlds with the observations that say what comes out of them."""
    assert telling.outputs is not None
    outputs = telling.outputs[(worlds[:, telling.columns] * _strides(telling.problem.world)).sum(-1)]
    observed = telling.observed[telling.places[possible]]
    codes = torch.unique(torch.cat([outputs, observed]), dim=0, return_inverse=True)[1]
    wanted, order = codes[len(outputs) :].sort(stable=True)
    first = torch.searchsorted(wanted, codes[: len(outputs)])
    counts = torch.searchsorted(wanted, codes[: len(outputs)], right=True) - first
    rows = torch.arange(len(worlds)).repeat_interleave(counts)
    offset = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    return rows, possible[order[first[rows] + offset]]


def _parts(sizes: Sequence[int], chunk: int = _CHUNK) -> Iterator[Tensor]:
    strides, total = _strides(sizes), math.prod(sizes)
    for start in range(0, total, chunk):
        numbers = torch.arange(start, min(start + chunk, total)).unsqueeze(-1)
        yield numbers // strides % torch.tensor(sizes) if len(sizes) else numbers[:, :0]


def ask(
    kb: KnowledgeBase,
    axioms: Sequence[Axiom],
    symbols: Mapping[str, Any],
    layout: Layout,
    observations: Sequence[Observation],
    *,
    clock: Meter,
    one_row: bool,
) -> Asked:
    """Pose axioms about objects and rows under every observation.

    Axioms about one row at a time are posed about all observations at once, as so many rows; others about one
    observation after the other.

    Args:
        kb: what the axioms are written in.
        axioms: what to ask.
        symbols: what is bound; everything else is learned.
        layout: the objects and rows.
        observations: the values of the fields that are observed.
        clock: stops work.
        one_row: whether the axioms speak of one row, and of no other objects.
    """
    for axiom in axioms:
        if (count := layout.instances(axiom.formula)) > _INSTANCES:
            raise BudgetError(
                "entries",
                f"could not decide: axiom {axiom.name!r} has {count:,} instances, more than the limit of "
                f"{_INSTANCES:,}",
            )
    bound = dict(symbols)
    for symbol in symbols_of(kb):
        if symbol.name not in bound and not (isinstance(symbol, Predicate) and symbol.closed):
            bound[symbol.name] = _unsure(symbol, layout)
    interpretation = Interpretation(kb, **bound)

    def data(some: Sequence[Observation]) -> dict[str, Any]:
        columns = {}
        for place, sort in layout.observed.items():
            column = [seen[(*place, number)] for seen in some for number in range(layout.total(*place))]
            columns[place] = [sort.values.index(v) for v in column] if isinstance(sort.values, tuple) else column
        return layout.data(columns, len(some))

    by_row = [_by_row(axiom) for axiom in axioms]
    if one_row and all(each or not ranged_rows(a.formula) for a, each in zip(axioms, by_row, strict=True)):
        everyone = torch.arange(len(observations))
        questions = [a if each else _one_event([a]) for a, each in zip(axioms, by_row, strict=True)]
        posed = pose(questions, interpretation, data(observations))
        instances = [everyone if each else torch.zeros_like(everyone) for each in by_row]
        return Asked(list(zip(posed, instances, strict=True)), observations)
    posed_apart = []
    for k, seen in enumerate(observations):
        clock.check_clock()
        (found,) = pose([_one_event(axioms)], interpretation, data([seen]), whole=True)
        posed_apart.append((found, torch.full((len(observations),), -1).index_fill(0, torch.tensor(k), 0)))
    return Asked(posed_apart, observations)


def _one_event(axioms: Sequence[Axiom]) -> Axiom:
    """That all axioms hold, as one event; under a negation no quantifier is outermost, and none is split up."""
    formulas = [a.formula for a in axioms]
    return Axiom("all", Not(Not(And(*formulas) if len(formulas) > 1 else formulas[0])))


def _by_row(axiom: Axiom) -> bool:
    """Does an axiom speak of each row, by a variable of its own?"""
    outermost = first_forall(axiom.formula)
    if outermost is None or len(outermost.groups) > 1:
        return False
    return isinstance(outermost.groups[0].domain, Name) and outermost.groups[0].sample is None


def _unsure(symbol: Predicate | Function, layout: Layout) -> Any:
    """A meaning under which everything is possible."""
    if any(sort in (INT, REAL) for sort in symbol.sorts):
        raise KnowledgeError(f"{symbol.name} is about numbers, which cannot all be listed; bind it in symbols")
    if isinstance(symbol, Predicate):
        return probs(torch.full(layout.shape(symbol), 0.5))
    if symbol.result.values is None:
        raise KnowledgeError(
            f"{symbol.name} yields {symbol.result.name}, whose values cannot all be listed; give it a finite sort, "
            "or bind it in symbols if it is not learned"
        )
    return probs(torch.full(layout.shape(symbol), 1 / len(symbol.result.values)))
