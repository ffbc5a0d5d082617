"""Reasoning shortcuts: wrong concepts that give right conclusions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from doxa import _html
from doxa.doctor._maps import MapSearch, Moves, Told
from doxa.doctor._scenes import Concept, Mapped, Mixture, Scene, Variable, arrange, mixtures, too_many
from doxa.errors import BudgetError, ConfigError, ProblemError
from doxa.problem import Budget, Problem
from doxa.problem._budget import Meter

LIMITS = Budget(worlds=1 << 20, operations=1 << 25)
"""What the search may cost unless told otherwise: it fits 1 GB, and answers within seconds."""
_MIXED = 1 << 18  # so many worlds are looked at for mixtures


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
        count: so many maps explain everything, the identity among them.
        complete: whether these are all; otherwise there are more, or it could not be decided.
        worlds: how many worlds had to be explained; 0 where they were too many to list.
        concepts: what the maps are of.
        simplest: those that move the fewest values, in order.
        labels: concept and value for each label that is needed to leave only the identity.
        unmixable: outputs for which two worlds are right, but not everything between them.
        outputs: how many outputs there are.
        mixture: two worlds that give one output, and a world between them that does not; None if there is none.
        variables: the world variables of a mixture: the name of each, and its values in words.
        assumption: what was assumed about the maps; empty if nothing was.
        undecided: what could not be decided, and why; empty if everything was.

    >>> Shortcuts(1, True, 100, (Concept("digit", ("left", "right"), ("0", "1")),), (), (), 0, 19, None).free
    True
    """

    count: int
    complete: bool
    worlds: int
    concepts: tuple[Concept, ...]
    simplest: tuple[Shortcut, ...]
    labels: tuple[tuple[int, int], ...]
    unmixable: int
    outputs: int
    mixture: Mixture | None
    variables: tuple[tuple[str, tuple[str, ...]], ...] = ()
    assumption: str = ""
    undecided: str = ""

    @property
    def free(self) -> bool:
        """Is the identity the only map that explains everything?"""
        return self.complete and self.count == 1

    def __str__(self) -> str:
        explain = f"all {self.worlds:,} worlds" if self.worlds else "all worlds"
        wrong = self.count - 1
        if self.free:
            verdict = f"no shortcut: only the true concepts explain {explain}"
        elif self.complete:
            are = "is a shortcut" if wrong == 1 else "are shortcuts"
            verdict = f"{self.count:,} maps of the concepts explain {explain}; {wrong:,} of them {are}"
        elif self.count > 1:
            much = "at least" if self.undecided else "more than"
            verdict = f"{much} {self.count:,} maps of the concepts explain {explain}; all but one are shortcuts"
        else:
            verdict = "could not decide whether there are shortcuts"
        lines = [f"under the assumption that {self.assumption}: {verdict}" if self.assumption else verdict]
        lines += [self.describe(shortcut) for shortcut in self.simplest]
        if self.labels:
            named = ", ".join(f"{c.name} = {c.values[v]}" for c, v in self.labelled)
            lines.append(f"labels for {named} rule out all of them")
        if self.undecided:
            lines.append(f"could not decide {self.undecided}")
        if self.mixture is not None:
            differ = [i for i, (a, b) in enumerate(zip(*self.mixture[:2], strict=True)) if a != b]
            first, second, between = [self._shown(world, differ) for world in self.mixture]
            lines.append(
                f"{self.unmixable:,} of {self.outputs:,} outputs have worlds that an independent belief cannot mix: "
                f"{first} and {second} give the same output, {between} between them does not"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        verdict, *rest = str(self).split("\n")
        colour = "good" if self.free else "bad" if self.count > 1 else "quiet"
        shown = [self.describe(shortcut) for shortcut in self.simplest]
        rows = [(text, shortcut.moved) for text, shortcut in zip(shown, self.simplest, strict=True)]
        table = [_html.table(("the simplest wrong maps of concepts", "values moved"), rows)] if rows else []
        return _html.box(_html.line(_html.span(colour, verdict)), *table, *map(_html.line, rest[len(rows) :]))

    @property
    def labelled(self) -> list[tuple[Concept, int]]:
        """The labels with their concepts."""
        return [(self.concepts[i], v) for i, v in self.labels]

    def describe(self, shortcut: Shortcut) -> str:
        """A shortcut in words: ``digit: 1 → 0, 2 → 0``.

        >>> concept = Concept("colour", ("colour(left)",), ("red", "green"))
        >>> Shortcuts(2, True, 2, (concept,), (), (), 0, 1, None).describe(Shortcut(({0: 1},)))
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
        named = [f"{self.variables[i][0]} = {self.variables[i][1][world[i]]}" for i in places]
        return f"({', '.join(named)})"


def shortcuts(
    problem: Problem,
    concepts: Sequence[int] | None = None,
    *,
    objects: Sequence[int] | None = None,
    data: Tensor | None = None,
    show: int = 5,
    limit: int = 10_000,
    joint: int = 64,
    budget: Budget = LIMITS,
    seconds: float | None = None,
) -> Shortcuts:
    """Find the maps of concepts that leave all conclusions as they are.

    World variables of one concept are read by one network, and so share a map. Concepts of one object are mapped
    together, for a network sees all of it: it may take *small and red* for *large and green*. Maps are found by a SAT
    solver that learns, from each map that fails on a world, the clause that forbids it; the simplest by bounding how
    much is moved; the labels as a smallest set that every shortcut moves one of. What is said is exact; what would cost
    more than the limits is not said.

    Args:
        problem: worlds, outputs and the function between them.
        concepts: for each world variable the number of its concept; by default all variables with equally many values
            are one.
        objects: for each world variable the number of the object it is read from; by default each has its own, which
            the answer names as an assumption where it matters.
        data: the worlds that occur, int64 ``(n, W)``, such as the true digits of a training set; by default all.
        show: how many of the simplest shortcuts to list.
        limit: list no more maps than this to count them.
        joint: concepts of one object with more joint values than this are mapped one by one.
        budget: its ``worlds`` have to be explained at most, and ``operations`` worlds are looked at, for all maps.
        seconds: stop after this time; what is then not known is said to be undecided.

    Raises:
        ProblemError: the concepts or the data do not fit the problem.
        BudgetError: there are more worlds than the budget allows.

    >>> from doxa.problem import addition
    >>> print(shortcuts(addition(1)))
    no shortcut: only the true concepts explain all 100 worlds
    17 of 19 outputs have worlds that an independent belief cannot mix: ...
    >>> of_one = Problem((2, 2), (2, 2), lambda w: torch.stack([w[..., 0] ^ w[..., 1], w[..., 0] & w[..., 1]], -1))
    >>> shortcuts(of_one, concepts=[0, 1], objects=[0, 0]).count
    4
    """
    search = Search(show, limit, joint, budget, seconds)
    groups = _groups(problem, concepts)
    if objects is not None and len(objects) != len(problem.world):
        raise ProblemError(f"objects has {len(objects)} numbers, expected one for each variable: {len(problem.world)}")
    titles = {}
    for k in set(groups):
        names = [problem.names[i] for i, g in enumerate(groups) if g == k]
        titles[k] = names[0] if len(names) == 1 else f"concept {k + 1}"
    owners: Sequence[Hashable] = range(len(groups)) if objects is None else objects
    variables = [
        Variable(name, titles[group], owner, tuple(map(str, range(size))))
        for name, group, owner, size in zip(problem.names, groups, owners, problem.world, strict=False)
    ]
    if len({(v.output, v.object) for v in variables}) < len(variables):
        raise ProblemError("two variables are the same concept of the same object; give them different objects")
    worlds = _support(problem, data, budget)
    outputs = problem(worlds)
    right: list[Tensor] = []
    if problem.num_worlds <= _MIXED:
        everything = problem.worlds(0, problem.num_worlds)
        right = by_number(everything, torch.unique(problem(everything), dim=0, return_inverse=True)[1])
    assumption = "no two concepts are read from the same object" if objects is None and len(titles) > 1 else ""
    scene = Scene(variables, worlds, lambda taken_for, rows: (problem(taken_for) == outputs[rows]).all(-1), right)
    return search([scene], assumption)


def by_number(worlds: Tensor, numbers: Tensor) -> list[Tensor]:
    """The worlds of each number that has any, such as those of each output."""
    order = numbers.argsort(stable=True)
    return [part for part in torch.split(worlds[order], numbers.bincount().tolist()) if len(part)]


Tell = Callable[[Sequence[Concept], Sequence[Mapped]], list[list[list[Told]]]]


class Search:
    """A search for maps, with the options of `shortcuts`; its clock starts when it is made."""

    def __init__(self, show: int, limit: int, joint: int, budget: Budget, seconds: float | None) -> None:
        if show < 0 or limit < 1 or joint < 1:
            raise ConfigError(f"show is {show}, limit {limit} and joint {joint}, expected at least 0, 1 and 1")
        self.show, self.limit, self.joint = show, limit, joint
        self.budget = budget if seconds is None else replace(budget, seconds=seconds)
        self.meter = Meter(self.budget, "looking for shortcuts")

    def __call__(self, scenes: Sequence[Scene], assumption: str = "", tell: Tell | None = None) -> Shortcuts:
        """``tell`` makes of concepts and scenes what labels say."""
        concepts, arranged, one_by_one = arrange(scenes, self.joint, self.budget.worlds)
        told = [] if tell is None else tell(concepts, arranged)
        found: list[Shortcut] = []
        count, complete = 1, False
        labels: tuple[tuple[int, int], ...] = ()
        step = "whether there are shortcuts"
        undecided = ""
        try:
            with MapSearch([len(c.values) for c in concepts], arranged, self.meter, told) as maps:
                if (some := maps.find(maps.shortcut)) is None:
                    complete = True
                else:
                    count = 2
                    step = "which shortcuts are the simplest"
                    found = [Shortcut(maps.moves(some))]
                    found = [Shortcut(maps.moves(model)) for model in maps.simplest(self.show)]
                    count = max(count, len(found) + 1)
                    step = "how many maps there are"
                    count, complete = maps.count(self.limit)
                    step = "which labels rule them out"
                    labels = maps.labels()
        except BudgetError as error:
            if error.field in ("entries", "worlds"):  # a concept of too many values; worlds that cannot be searched
                raise
            late = error.field == "seconds"
            undecided = f"{step} within {self.budget.seconds:g} seconds" if late else f"{step}: {error}"
        unmixable, mixture, named = 0, None, scenes[0].variables
        try:
            for scene in scenes:
                here, example = mixtures(scene.right, self.meter)
                unmixable += here
                if mixture is None and example is not None:
                    mixture, named = example, scene.variables
        except BudgetError:
            unmixable, mixture = 0, None
            undecided = undecided or f"which worlds a belief can mix within {self.budget.seconds:g} seconds"
        return Shortcuts(
            count,
            complete,
            sum(len(scene.worlds) for scene in arranged),
            tuple(concepts),
            tuple(found),
            labels,
            unmixable,
            sum(len(scene.right) for scene in scenes),
            mixture,
            tuple((v.name, v.values) for v in named),
            " and ".join(filter(None, [assumption, one_by_one])),
            undecided,
        )


def _groups(problem: Problem, concepts: Sequence[int] | None) -> list[int]:
    sizes = problem.world
    if concepts is None:
        order = list(dict.fromkeys(sizes))
        return [order.index(size) for size in sizes]
    groups = list(concepts)
    if len(groups) != len(sizes) or set(groups) != set(range(max(groups, default=0) + 1)):
        wanted = f"a number for each of the {len(sizes)} world variables, from 0 and none left out"
        raise ProblemError(f"concepts is {groups}, expected {wanted}")
    for group in set(groups):
        found = {size for size, g in zip(sizes, groups, strict=True) if g == group}
        if len(found) > 1:
            raise ProblemError(f"the variables of concept {group} have {sorted(found)} values, expected equally many")
    return groups


def _support(problem: Problem, data: Tensor | None, budget: Budget) -> Tensor:
    if data is not None:
        sizes = torch.tensor(problem.world)
        if data.dtype != torch.int64 or data.ndim < 1 or data.shape[-1] != len(sizes):
            found = f"{data.dtype} {tuple(data.shape)}"
            raise ProblemError(f"data is {found}, expected worlds, int64 (n, {len(sizes)})")
        if not bool(((data >= 0) & (data < sizes)).all()):
            raise ProblemError(f"data has values outside of the domains {problem.world} of the world variables")
        occurring: Tensor = torch.unique(data.reshape(-1, len(problem.world)), dim=0)
        return occurring
    if problem.num_worlds > budget.worlds:
        raise too_many(f"the problem has {problem.describe_size()} worlds", budget.worlds)
    return problem.worlds(0, problem.num_worlds)
