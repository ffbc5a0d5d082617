"""Reasoning shortcuts: wrong concepts that give right conclusions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa.doctor._finder import Finder, Moves
from doxa.doctor._mixtures import Mixture, mixtures
from doxa.errors import ProblemError
from doxa.problem import Problem

__all__ = ["Concept", "Shortcut", "Shortcuts", "shortcuts"]

_WORLDS = 1 << 22  # so many are gone through
_MIXED = 1 << 18  # so many worlds are looked at for mixtures


@dataclass(frozen=True)
class Concept:
    """What one network reads: the world variables that share it, and what their values are called.

    >>> Concept("digit", ("digit(left)", "digit(right)"), ("0", "1")).values[1]
    '1'
    """

    name: str
    variables: tuple[str, ...]
    values: tuple[str, ...]


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
    """What `shortcuts` found; prints as a few sentences. Values are counted from 0, as in a `Problem`.

    Args:
        count: how many maps explain everything, the identity among them; None where there are more than were counted.
        worlds: how many worlds had to be explained.
        concepts: what the maps are of.
        simplest: those that move the fewest values, in order.
        labels: concept and value for each label that is needed to leave only the identity.
        unmixable: outputs for which two worlds are right, but not everything between them.
        outputs: how many outputs there are.
        mixture: two worlds that give one output, and a world between them that does not; None if there is none.
        variables: the world variables: the name of each, and the number of its concept.

    >>> Shortcuts(1, 100, (Concept("digit", ("left", "right"), ("0", "1")),), (), (), 0, 19, None).free
    True
    """

    count: int | None
    worlds: int
    concepts: tuple[Concept, ...]
    simplest: tuple[Shortcut, ...]
    labels: tuple[tuple[int, int], ...]
    unmixable: int
    outputs: int
    mixture: Mixture | None
    variables: tuple[tuple[str, int], ...] = ()

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
            lines += [self.describe(shortcut) for shortcut in self.simplest]
            if self.labels:
                named = ", ".join(f"{c.name} = {c.values[v]}" for c, v in self.labelled)
                lines.append(f"labels for {named} rule out all of them")
        if self.mixture is not None:
            differ = [i for i, (a, b) in enumerate(zip(*self.mixture[:2], strict=True)) if a != b]
            first, second, between = [self._shown(world, differ) for world in self.mixture]
            lines.append(
                f"{self.unmixable:,} of {self.outputs:,} outputs have worlds that an independent belief cannot mix: "
                f"{first} and {second} give the same output, {between} between them does not"
            )
        return "\n".join(lines)

    @property
    def labelled(self) -> list[tuple[Concept, int]]:
        """The labels with their concepts."""
        return [(self.concepts[i], v) for i, v in self.labels]

    def describe(self, shortcut: Shortcut) -> str:
        """A shortcut in words: ``digit: 1 → 0, 2 → 0``.

        >>> concept = Concept("colour", ("colour(left)",), ("red", "green"))
        >>> Shortcuts(2, 2, (concept,), (), (), 0, 1, None).describe(Shortcut(({0: 1},)))
        'colour: red → green'
        """
        parts = []
        for concept, moves in zip(self.concepts, shortcut.moves, strict=True):
            if moves:
                shared = f" ({', '.join(concept.variables)})" if concept.name.startswith("concept ") else ""
                moved = ", ".join(f"{concept.values[v]} → {concept.values[u]}" for v, u in moves.items())
                parts.append(f"{concept.name}{shared}: {moved}")
        return "; ".join(parts)

    def _shown(self, world: tuple[int, ...], places: list[int]) -> str:
        named = [f"{self.variables[i][0]} = {self.concepts[self.variables[i][1]].values[world[i]]}" for i in places]
        return f"({', '.join(named)})"


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
    named = [
        Concept(
            names[0] if len(names) == 1 else f"concept {k + 1}",
            tuple(names),
            tuple(map(str, range(next(n for n, g in zip(problem.world, groups, strict=True) if g == k)))),
        )
        for k in range(max(groups) + 1)
        if (names := [problem.names[i] for i, g in enumerate(groups) if g == k])
    ]
    right: list[Tensor] = []
    if problem.num_worlds <= _MIXED:
        everything = problem.worlds(0, problem.num_worlds)
        outputs, numbers = torch.unique(problem(everything), dim=0, return_inverse=True)
        right = [everything[numbers == number] for number in range(len(outputs))]
    variables = tuple(zip(problem.names, groups, strict=False))
    return search(Finder(problem, groups, _support(problem, data)), named, right, variables, show, limit)


def search(
    finder: Finder,
    concepts: Sequence[Concept],
    right: Sequence[Tensor],
    variables: tuple[tuple[str, int], ...],
    show: int,
    limit: int,
) -> Shortcuts:
    """Ask a finder everything; ``right`` has the worlds of each output."""
    simplest = [Shortcut(finder.moves(model)) for model in finder.simplest(show)]
    count = finder.count(limit)
    unmixable, mixture = mixtures(right)
    labels = finder.labels() if simplest else ()
    worlds = len(finder.worlds)
    return Shortcuts(count, worlds, tuple(concepts), tuple(simplest), labels, unmixable, len(right), mixture, variables)


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
    if problem.num_worlds > _WORLDS:
        raise ProblemError(
            f"the problem has {problem.describe_size()} worlds, too many to go through; give those that occur as data"
        )
    return problem.worlds(0, problem.num_worlds)


def _are(count: int) -> str:
    return "is a shortcut" if count == 1 else "are shortcuts"
