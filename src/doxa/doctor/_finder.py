"""Which maps of concepts explain everything: a SAT solver proposes maps, and learns from the worlds they get wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from pysat.examples.hitman import Hitman
from pysat.examples.rc2 import RC2
from pysat.formula import WCNF
from pysat.solvers import Cadical153
from torch import Tensor

from doxa.exact.circuits import compile_cnf
from doxa.logic import CNF
from doxa.problem import Problem

__all__ = ["KNOWN", "Finder", "Moves"]

_COUNTED = 1 << 20  # so many pairs of a world and a world it may be taken for are written out as clauses to count
_LISTED = 200  # so many maps are listed before anything is compiled
_LEARNED = 64  # clauses learned from one wrong map

KNOWN = -1
"""In place of a concept: a variable that is observed, and so is taken for nothing else."""

Moves = dict[int, int]


class Finder:
    """Maps α as models of clauses: variable (g, v, u) says that concept g takes value v for u.

    Args:
        problem: worlds, outputs and the function between them.
        groups: for each world variable the number of its concept, or `KNOWN`.
        worlds: those that have to be explained.
    """

    def __init__(self, problem: Problem, groups: Sequence[int], worlds: Tensor) -> None:
        self.problem, self.groups = problem, groups
        concepts = max([*groups, KNOWN]) + 1
        self.sizes = [next(s for s, g in zip(problem.world, groups, strict=True) if g == k) for k in range(concepts)]
        self.starts = [sum(n * n for n in self.sizes[:k]) for k in range(concepts)]
        # Worlds with few different values forbid more, and come first.
        different = torch.tensor([len({(g, v) for g, v in zip(groups, w, strict=True)}) for w in worlds.tolist()])
        order = different.argsort(stable=True)
        self.worlds, self.outputs = worlds[order], problem(worlds)[order]
        # A value that never occurs may be taken for anything; the identity stands for all of that.
        occurs = [
            set(torch.unique(worlds[:, [i for i, g in enumerate(groups) if g == k]]).tolist()) for k in range(concepts)
        ]
        self.base: list[list[int]] = []
        for k, size in enumerate(self.sizes):
            for value in range(size):
                row = [self.variable(k, value, u) for u in range(size)]
                self.base.append(row)
                self.base += [[-a, -b] for i, a in enumerate(row) for b in row[i + 1 :]]
                if value not in occurs[k]:
                    self.base.append([self.variable(k, value, value)])
        self.learned: list[list[int]] = []

    def variable(self, concept: int, value: int, taken_for: int) -> int:
        return 1 + self.starts[concept] + value * self.sizes[concept] + taken_for

    @property
    def variables(self) -> int:
        return sum(n * n for n in self.sizes)

    def identity(self) -> list[int]:
        return [self.variable(k, v, v) for k, size in enumerate(self.sizes) for v in range(size)]

    def table(self, model: Sequence[int]) -> list[list[int]]:
        """What each concept takes each value for."""
        true = {literal for literal in model if literal > 0}
        return [
            [next(u for u in range(size) if self.variable(k, v, u) in true) for v in range(size)]
            for k, size in enumerate(self.sizes)
        ]

    def moves(self, model: Sequence[int]) -> tuple[Moves, ...]:
        return tuple({v: u for v, u in enumerate(row) if u != v} for row in self.table(model))

    def wrong(self, model: Sequence[int]) -> list[list[int]]:
        """Clauses that forbid what the map does to worlds it gets wrong; none if it explains everything."""
        table = [torch.tensor(row) for row in self.table(model)]
        pairs = zip(self.groups, self.worlds.T, strict=True)
        columns = [column if group == KNOWN else table[group][column] for group, column in pairs]
        mapped = torch.stack(columns, -1)
        bad = (self.problem(mapped) != self.outputs).any(-1).nonzero().flatten()[:_LEARNED]
        return [self.clause(w, u) for w, u in zip(self.worlds[bad].tolist(), mapped[bad].tolist(), strict=True)]

    def clause(self, world: Sequence[int], taken_for: Sequence[int]) -> list[int]:
        """Not all values of a world are taken for these."""
        triples = zip(self.groups, world, taken_for, strict=True)
        return sorted({-self.variable(g, v, u) for g, v, u in triples if g != KNOWN})

    def simplest(self, show: int) -> Iterator[list[int]]:
        """Shortcuts that move the fewest values, in order."""
        formula = WCNF()
        for clause in (*self.base, [-v for v in self.identity()]):
            formula.append(clause)
        for literal in self.identity():
            formula.append([literal], weight=1)
        with RC2(formula) as solver:
            while show:
                model = solver.compute()
                if model is None:
                    return
                forbidden = self.wrong(model)
                if not forbidden:
                    yield model
                    show -= 1
                    forbidden = [[-v for v in model if 0 < v <= self.variables]]
                else:
                    self.learned += forbidden
                for clause in forbidden:
                    solver.add_clause(clause)

    def count(self, limit: int) -> int | None:
        """How many maps explain everything: by listing them where they are few, else by compiling a circuit."""
        found = self._listed(min(limit, _LISTED))
        if found is not None or limit <= _LISTED:
            return found
        ways = 1
        for size, group in zip(self.problem.world, self.groups, strict=True):
            ways *= 1 if group == KNOWN else size
        if len(self.worlds) * ways <= _COUNTED:
            return compile_cnf(CNF.from_clauses([*self.base, *self._everything()], self.variables)).count()
        return self._listed(limit)

    def _listed(self, limit: int) -> int | None:
        found = 0
        with Cadical153(bootstrap_with=[*self.base, *self.learned]) as solver:
            while found <= limit:
                if not solver.solve():
                    return found
                model = solver.get_model()
                forbidden = self.wrong(model)
                if not forbidden:
                    found += 1
                    forbidden = [[-v for v in model if v > 0]]
                else:
                    self.learned += forbidden
                for clause in forbidden:
                    solver.add_clause(clause)
        return None

    def _everything(self) -> Iterator[list[int]]:
        """Every way in which a world is taken for one with another output."""
        ranges = [torch.arange(1 if g == KNOWN else n) for n, g in zip(self.problem.world, self.groups, strict=True)]
        everything = torch.cartesian_prod(*ranges).reshape(-1, len(ranges))
        known = [i for i, g in enumerate(self.groups) if g == KNOWN]
        for world, output in zip(self.worlds, self.outputs, strict=True):
            everything[:, known] = world[known]
            # two variables of one concept with one value are taken for one value
            key = [(g, v) for g, v in zip(self.groups, world.tolist(), strict=True)]
            same = torch.ones(len(everything), dtype=torch.bool)
            for i, k in enumerate(key):
                if k[0] != KNOWN:
                    same &= everything[:, i] == everything[:, key.index(k)]
            candidates = everything[same]
            for taken_for in candidates[(self.problem(candidates) != output).any(-1)].tolist():
                yield self.clause(world.tolist(), taken_for)

    def labels(self) -> tuple[tuple[int, int], ...]:
        """The fewest labels, as concept and value, that leave only the identity: every shortcut moves one of them."""
        with (
            Cadical153(bootstrap_with=[*self.base, *self.learned, [-v for v in self.identity()]]) as solver,
            Hitman(solver="g3", htype="sorted") as hitting,
        ):
            chosen: list[int] = []
            while solver.solve(assumptions=chosen):
                model = solver.get_model()
                forbidden = self.wrong(model)
                for clause in forbidden:
                    solver.add_clause(clause)
                if not forbidden:
                    true = set(model)
                    hitting.hit([v for v in self.identity() if v not in true])
                    chosen = list(hitting.get())
        return tuple(sorted(self._label(v) for v in chosen))

    def _label(self, literal: int) -> tuple[int, int]:
        concept = max(k for k, start in enumerate(self.starts) if start < literal)
        return concept, (literal - 1 - self.starts[concept]) // self.sizes[concept]
