"""Axioms posed about a small piece of data, under every observation: which worlds are right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.doctor._layout import Layout, mentions, ranged_rows
from doxa.doctor._layout import symbols as symbols_of
from doxa.doctor._scenes import too_many
from doxa.errors import BudgetError, KnowledgeError
from doxa.logic import INT, REAL, And, Axiom, Function, Interpretation, KnowledgeBase, Name, Not, Predicate, probs
from doxa.logic.syntax._binders import first_forall
from doxa.pose import PosedAxiom, pose
from doxa.problem import Problem
from doxa.problem._budget import Meter

_Instances = Sequence[tuple[PosedAxiom, Tensor]]
Observation = dict[tuple[str, str, int], Any]  # what is observed, by rows, field and the number of the row
CHUNK = 1 << 18  # worlds at a time
TABLE = 1 << 20  # worlds whose outputs are kept
INSTANCES = 1 << 16  # of an axiom


@dataclass(frozen=True)
class _Posed:
    """A problem that some observations pose."""

    problem: Problem
    given: Tensor | None
    observed: Tensor
    places: Tensor  # for each observation its row in given and observed, or -1
    columns: list[int]  # of the variables in worlds
    table: Tensor | None  # the outputs of all worlds, where nothing is given and they are not too many

    def outputs(self, worlds: Tensor, places: Tensor) -> Tensor:
        here = worlds[:, self.columns]
        if self.table is not None:
            return self.table[(here * _strides(self.problem.world)).sum(-1)]
        return self.problem(here) if self.given is None else self.problem(here, self.given[places])

    def right(self, worlds: Tensor, numbers: Tensor) -> Tensor:
        places = self.places[numbers]
        found = places < 0
        where = (~found).nonzero().squeeze(1)
        if len(where):
            places = places[where]
            found[where] = (self.outputs(worlds[where], places) == self.observed[places]).all(-1)
        return found

    def matching(self, worlds: Tensor, possible: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of worlds, and the numbers of possible observations that say what comes out of them."""
        outputs = self.outputs(worlds, possible)
        codes = torch.unique(torch.cat([outputs, self.observed[self.places[possible]]]), dim=0, return_inverse=True)[1]
        wanted, order = codes[len(outputs) :].sort(stable=True)
        first = torch.searchsorted(wanted, codes[: len(outputs)])
        counts = torch.searchsorted(wanted, codes[: len(outputs)], right=True) - first
        rows = torch.arange(len(worlds)).repeat_interleave(counts)
        offset = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
        return rows, possible[order[first[rows] + offset]]


class RightWorlds:
    """Which worlds are right under which observation; axioms come with each observation's instance, or -1.

    Of what is ``mentioned``, the variables count, and not whether it holds.
    """

    def __init__(self, posed: _Instances, mentioned: _Instances, observations: Sequence[Observation]) -> None:
        self.observations = observations
        self.possible = torch.ones(len(observations), dtype=torch.bool)
        self.sizes: dict[str, int] = {}  # of variables
        self.parts: list[_Posed] = []
        for axiom, instances in posed:
            never = axiom.passes & ~axiom.holds
            for batch in axiom.batches:
                never[batch.instances] = False
            self.possible &= ~never[instances] | (instances < 0)
        for number, (axiom, instances) in enumerate([*posed, *mentioned]):
            for batch in axiom.batches:
                rows = torch.full((len(axiom.holds),), -1)
                rows[batch.instances] = torch.arange(len(batch.instances))
                places = torch.where(instances < 0, -1, rows[instances])
                if not bool((self.possible & (places >= 0)).any()):
                    continue
                problem = batch.problem
                names = problem.names[: len(problem.world)]
                self.sizes |= dict(zip(names, problem.world, strict=True))
                if number >= len(posed):
                    continue
                table = None
                if batch.given is None and problem.num_worlds <= TABLE:
                    table = torch.cat([problem(part) for part in _parts(problem.world)])
                columns = [list(self.sizes).index(name) for name in names]
                self.parts.append(_Posed(problem, batch.given, batch.observed, places, columns, table))

    def right(self, worlds: Tensor, numbers: Tensor) -> Tensor:
        """Are these worlds right under the observations of these numbers?"""
        found = self.possible[numbers]
        for part in self.parts:
            found = found & part.right(worlds, numbers)
        return found

    def all(self, limit: int, clock: Meter) -> tuple[Tensor, Tensor]:
        """All worlds that are right, and the numbers of observations under which they are."""
        possible = self.possible.nonzero().squeeze(1)
        sizes = list(self.sizes.values())
        count = math.prod(sizes)
        if count > limit:
            shown = f"{count:,}" if count < 10**15 else f"about 10^{len(str(count)) - 1}"
            raise too_many(f"there are {shown} worlds", limit)
        telling = next((p for p in self.parts if p.table is not None and bool((p.places[possible] >= 0).all())), None)
        if telling is None and count * len(possible) > 16 * limit:
            raise too_many(f"there are {count:,} worlds under each of {len(possible):,} observations", 16 * limit)
        found = []
        total = 0
        for part in _parts(sizes, CHUNK if telling else max(1, CHUNK // max(1, len(possible)))):
            clock.check_clock()
            if telling is None:
                rows = torch.arange(len(part)).repeat_interleave(len(possible))
                numbers = possible.repeat(len(part))
            else:
                rows, numbers = telling.matching(part, possible)
            right = self.right(part[rows], numbers)
            found.append((part[rows[right]], numbers[right]))
            total += int(right.sum())
            if total > limit:
                raise too_many("there are too many pairs of an observation and a right world", limit)
        return torch.cat([w for w, _ in found]), torch.cat([n for _, n in found])


def _strides(sizes: Sequence[int]) -> Tensor:
    return torch.tensor([math.prod(sizes[i + 1 :]) for i in range(len(sizes))])


def _parts(sizes: Sequence[int], chunk: int = CHUNK) -> Iterator[Tensor]:
    """All worlds, some at a time."""
    strides, total = _strides(sizes), math.prod(sizes)
    for start in range(0, total, chunk):
        numbers = torch.arange(start, min(start + chunk, total)).unsqueeze(-1)
        yield numbers // strides % torch.tensor(sizes) if len(sizes) else numbers[:, :0]


def pose_observations(
    kb: KnowledgeBase,
    axioms: Sequence[Axiom],
    symbols: Mapping[str, Any],
    layout: Layout,
    observations: Sequence[Observation],
    *,
    clock: Meter,
    one_row: bool,
) -> RightWorlds:
    """Pose axioms about objects and rows under every observation.

    Axioms about one row at a time are posed about all observations at once, as so many rows; others about one
    observation after the other. What is not bound in ``symbols`` is learned; ``one_row`` says that the axioms speak of
    one row, and of no other objects.
    """
    for axiom in axioms:
        if (count := layout.instances(axiom.formula)) > INSTANCES:
            said = f"axiom {axiom.name!r} has {count:,} instances, more than the limit of {INSTANCES:,}"
            raise BudgetError("entries", f"could not decide: {said}")
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

    learned = [s for s in symbols_of(kb) if s.name not in symbols and s.name in bound]
    parts = [(a, _by_row(a), mentions(a.formula, learned)) for a in axioms]
    if one_row and all(each or not ranged_rows(a.formula) for a, each, _ in parts):
        everyone = torch.arange(len(observations))
        events = [(a, each) for a, each, _ in parts] + [(Axiom("", f), each) for _, each, own in parts for f in own]
        found = pose([a if each else _one_event([a]) for a, each in events], interpretation, data(observations))
        instances = [everyone if each else torch.zeros_like(everyone) for _, each in events]
        pairs = list(zip(found, instances, strict=True))
        return RightWorlds(pairs[: len(axioms)], pairs[len(axioms) :], observations)
    wholes = [_one_event(axioms), *[_one_event([Axiom("", f)]) for _, _, own in parts for f in own]]
    first, others = [], []
    for k, seen in enumerate(observations):
        clock.check_clock()
        here = torch.full((len(observations),), -1).index_fill(0, torch.tensor(k), 0)
        whole, *rest = [(found, here) for found in pose(wholes, interpretation, data([seen]), whole=True)]
        first.append(whole)
        others += rest
    return RightWorlds(first, others, observations)


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
    if isinstance(symbol, Function) and symbol.result.values is None:
        raise KnowledgeError(
            f"{symbol.name} yields {symbol.result.name}, whose values cannot all be listed; give it a finite sort, "
            "or bind it in symbols if it is not learned"
        )
    shape = layout.shape(symbol)
    return probs(torch.full(shape, 0.5 if isinstance(symbol, Predicate) else 1 / shape[-1]))
