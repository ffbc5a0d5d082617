"""Reasoning shortcuts: wrong concepts that give right conclusions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from pysat.examples.hitman import Hitman
from pysat.examples.rc2 import RC2
from pysat.formula import WCNF
from torch import Tensor

from doxa.errors import ProblemError
from doxa.exact import compile_cnf
from doxa.logic import CNF
from doxa.problem import Problem

__all__ = ["Shortcut", "Shortcuts", "shortcuts"]

_COUNTED = 1 << 20  # so many pairs of a world and a world it may be taken for are written out as clauses to count
_LEARNED = 64  # clauses learned from one wrong map
_MIXED = 1 << 18  # so many worlds are looked at for mixtures

Moves = dict[int, int]


@dataclass(frozen=True)
class Shortcut:
    """A map of concepts that leaves every conclusion as it is: for each concept, which values it takes for others.

    >>> Shortcut(({0: 1, 1: 0},))
    Shortcut(moves=({0: 1, 1: 0},))
    """

    moves: tuple[Moves, ...]

    @property
    def moved(self) -> int:
        """How many values are taken for others."""
        return sum(map(len, self.moves))


@dataclass(frozen=True)
class Shortcuts:
    """What `shortcuts` found; prints as a few sentences.

    Args:
        count: how many maps explain everything, the identity among them; None where there are more than were counted.
        worlds: how many worlds had to be explained.
        concepts: the names of the world variables that share a map.
        simplest: those that move the fewest values, in order.
        labels: concept and value for each label that is needed to leave only the identity.
        unmixable: outputs for which two worlds are right, but not everything between them.
        outputs: how many outputs there are.
        mixture: two worlds that give one output, and a world between them that does not; None if there is none.

    >>> Shortcuts(1, 100, (("w0", "w1"),), (), (), 0, 19, None).free
    True
    """

    count: int | None
    worlds: int
    concepts: tuple[tuple[str, ...], ...]
    simplest: tuple[Shortcut, ...]
    labels: tuple[tuple[int, int], ...]
    unmixable: int
    outputs: int
    mixture: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None

    @property
    def free(self) -> bool:
        """Is the identity the only map that explains everything?"""
        return self.count == 1

    def __str__(self) -> str:
        lines = []
        if self.free:
            lines.append(f"no shortcut: only the true concepts explain all {self.worlds:,} worlds")
        else:
            number = "more maps than were counted" if self.count is None else f"{self.count:,} maps of the concepts"
            others = "" if self.count is None else f"; {self.count - 1:,} of them {_are(self.count - 1)}"
            lines.append(f"{number} explain all {self.worlds:,} worlds{others}")
            for shortcut in self.simplest:
                parts = [
                    f"{self._name(i)}: " + ", ".join(f"{v} → {u}" for v, u in moves.items())
                    for i, moves in enumerate(shortcut.moves)
                    if moves
                ]
                lines.append("; ".join(parts))
            named = ", ".join(f"{self._name(i, short=True)} = {v}" for i, v in self.labels)
            lines.append(f"labels for {named} rule out all of them")
        if self.mixture is not None:
            first, second, between = self.mixture
            lines.append(
                f"{self.unmixable:,} of {self.outputs:,} outputs have worlds that an independent belief cannot mix: "
                f"{first} and {second} give the same output, {between} between them does not"
            )
        return "\n".join(lines)

    def _name(self, concept: int, *, short: bool = False) -> str:
        names = self.concepts[concept]
        if len(names) == 1:
            return names[0]
        return f"concept {concept + 1}" if short else f"concept {concept + 1} ({', '.join(names)})"


def shortcuts(
    problem: Problem,
    concepts: Sequence[int] | None = None,
    *,
    data: Tensor | None = None,
    show: int = 5,
    limit: int = 100_000,
) -> Shortcuts:
    """Find the maps of concepts that leave all conclusions as they are.

    World variables of one concept are read by one network, and so share a map. Maps are found by a SAT solver that
    learns, from each map that fails on a world, the clause that forbids it; the simplest by weighted MaxSAT; the
    labels as a smallest set that every shortcut moves one of. All of this is exact.

    Args:
        problem: worlds, outputs and the function between them.
        concepts: for each world variable the number of its concept; by default all variables with equally many values
            are one.
        data: the worlds that occur, int64 ``(n, W)``, such as the true digits of a training set; by default all.
        show: how many of the simplest shortcuts to list.
        limit: count no further than this where counting needs listing.

    Raises:
        ProblemError: the concepts or the data do not fit the problem, or there are too many worlds to go through.

    >>> from doxa.problem import addition
    >>> print(shortcuts(addition(1)))
    no shortcut: only the true concepts explain all 100 worlds
    17 of 19 outputs have worlds that an independent belief cannot mix: ...
    """
    groups = _groups(problem, concepts)
    worlds = _support(problem, data)
    finder = _Finder(problem, groups, worlds)
    simplest = [Shortcut(finder.moves(model)) for model in finder.simplest(show)]
    count = finder.count(limit)
    unmixable, outputs, mixture = _mixtures(problem)
    names = tuple(
        tuple(problem.names[i] for i, group in enumerate(groups) if group == g) for g in range(max(groups) + 1)
    )
    labels = finder.labels() if simplest else ()
    return Shortcuts(count, len(worlds), names, tuple(simplest), labels, unmixable, outputs, mixture)


def _groups(problem: Problem, concepts: Sequence[int] | None) -> list[int]:
    sizes = problem.world
    if concepts is None:
        order = list(dict.fromkeys(sizes))
        return [order.index(size) for size in sizes]
    groups = list(concepts)
    if len(groups) != len(sizes) or set(groups) != set(range(max(groups, default=0) + 1)):
        raise ProblemError(
            f"concepts is {groups}, expected a number for each of the {len(sizes)} world variables, from 0 and none "
            "left out"
        )
    for group in set(groups):
        found = {size for size, g in zip(sizes, groups, strict=True) if g == group}
        if len(found) > 1:
            raise ProblemError(f"the variables of concept {group} have {sorted(found)} values, expected equally many")
    return groups


def _support(problem: Problem, data: Tensor | None) -> Tensor:
    if data is not None:
        sizes = torch.tensor(problem.world)
        if data.dtype != torch.int64 or data.ndim < 1 or data.shape[-1] != len(sizes):
            raise ProblemError(
                f"data has dtype {data.dtype} and shape {tuple(data.shape)}, expected worlds, int64 (n, {len(sizes)})"
            )
        if not bool(((data >= 0) & (data < sizes)).all()):
            raise ProblemError(f"data has values outside of the domains {problem.world} of the world variables")
        occurring: Tensor = torch.unique(data.reshape(-1, len(problem.world)), dim=0)
        return occurring
    if problem.num_worlds > 1 << 22:
        raise ProblemError(
            f"the problem has {problem.describe_size()} worlds, too many to go through; give those that occur as data"
        )
    return problem.worlds(0, problem.num_worlds)


class _Finder:
    """Maps α as models of clauses: variable (g, v, u) says that concept g takes value v for u."""

    def __init__(self, problem: Problem, groups: list[int], worlds: Tensor) -> None:
        self.problem, self.groups, self.worlds = problem, groups, worlds
        self.sizes = [
            next(s for s, g in zip(problem.world, groups, strict=True) if g == k) for k in range(max(groups) + 1)
        ]
        self.starts = [sum(n * n for n in self.sizes[:k]) for k in range(len(self.sizes))]
        self.outputs = problem(worlds)
        # Worlds with few different values forbid more, and come first.
        different = torch.tensor([len({(g, v) for g, v in zip(groups, w, strict=True)}) for w in worlds.tolist()])
        order = different.argsort(stable=True)
        self.worlds, self.outputs = worlds[order], self.outputs[order]
        # A value that never occurs may be taken for anything; the identity stands for all of that.
        occurs = [
            set(torch.unique(worlds[:, [i for i, g in enumerate(groups) if g == k]]).tolist())
            for k in range(len(self.sizes))
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
        return self.starts[-1] + self.sizes[-1] ** 2

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
        table = self.table(model)
        columns = [torch.tensor(table[g])[self.worlds[:, i]] for i, g in enumerate(self.groups)]
        mapped = torch.stack(columns, -1)
        bad = (self.problem(mapped) != self.outputs).any(-1).nonzero().flatten()[:_LEARNED]
        return [self.clause(w, u) for w, u in zip(self.worlds[bad].tolist(), mapped[bad].tolist(), strict=True)]

    def clause(self, world: Sequence[int], taken_for: Sequence[int]) -> list[int]:
        """Not all values of a world are taken for these."""
        return sorted({-self.variable(g, v, u) for g, v, u in zip(self.groups, world, taken_for, strict=True)})

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
        """How many maps explain everything."""
        if len(self.worlds) * self.problem.num_worlds <= _COUNTED:
            return compile_cnf(CNF.from_clauses([*self.base, *self._everything()], self.variables)).count()
        from pysat.solvers import Cadical153

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
                for clause in forbidden:
                    solver.add_clause(clause)
        return None

    def _everything(self) -> Iterator[list[int]]:
        """Every way in which a world is taken for one with another output."""
        everything = self.problem.worlds(0, self.problem.num_worlds)
        outputs = self.problem(everything)
        for world, output in zip(self.worlds, self.outputs, strict=True):
            # two variables of one concept with one value are taken for one value
            key = [(g, v) for g, v in zip(self.groups, world.tolist(), strict=True)]
            same = torch.ones(len(everything), dtype=torch.bool)
            for i, k in enumerate(key):
                same &= everything[:, i] == everything[:, key.index(k)]
            for taken_for in everything[same & (outputs != output).any(-1)].tolist():
                yield self.clause(world.tolist(), taken_for)

    def labels(self) -> tuple[tuple[int, int], ...]:
        """The fewest labels, as concept and value, that leave only the identity: every shortcut moves one of them."""
        from pysat.solvers import Cadical153

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


def _mixtures(problem: Problem) -> tuple[int, int, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None]:
    """Outputs whose worlds are no box: two of them are right, and something between them is not.

    An independent belief that holds two worlds possible holds everything between them possible.
    """
    if problem.num_worlds > _MIXED:
        return 0, 0, None
    worlds = problem.worlds(0, problem.num_worlds)
    outputs = problem(worlds)
    distinct, numbers = torch.unique(outputs, dim=0, return_inverse=True)
    unmixable, example = 0, None
    for number in range(len(distinct)):
        members = worlds[numbers == number]
        spread = 1
        for column in members.unbind(-1):
            spread *= len(torch.unique(column))
        if spread == len(members):
            continue
        unmixable += 1
        if example is None:
            example = _between(problem, members, distinct[number])
    return unmixable, len(distinct), example


def _between(
    problem: Problem, members: Tensor, output: Tensor
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Two worlds that differ in as few variables as possible, and one between them with another output."""
    for first in members:
        distance = (members != first).sum(-1)
        for second in members[distance.argsort(stable=True)]:
            places = (first != second).nonzero().flatten().tolist()
            for choice in range(1, 2 ** min(len(places), 12) - 1):
                between = first.clone()
                for bit, place in enumerate(places[:12]):
                    if choice >> bit & 1:
                        between[place] = second[place]
                if bool((problem(between) != output).any()):
                    return tuple(first.tolist()), tuple(second.tolist()), tuple(between.tolist())
    return None


def _are(count: int) -> str:
    return "is a shortcut" if count == 1 else "are shortcuts"
