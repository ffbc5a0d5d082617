"""What a network may take for what: concepts, the objects they are read from, and worlds that have to be explained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import BudgetError
from doxa.problem._budget import Meter

_PLACES = 8  # so many variables are tried on both sides of a mixture
_PAIRS = 4096  # so many pairs of worlds are tried for an example of one

# Worlds (n, W) and the rows (n,) that are taken for them, to whether the conclusions stay, bool (n,).
Explains = Callable[[Tensor, Tensor], Tensor]
Decoded = Mapping[int, tuple[int, int, int]]  # of each variable its object, and how to find it in a joint value
World = tuple[int, ...]
Mixture = tuple[World, World, World]  # two worlds that are right, and one between them that is not
Outputs = Sequence[tuple[str, ...]]  # for each concept the outputs that it consists of


def too_many(what: str, limit: int) -> BudgetError:
    """The error that there are more worlds than the limit."""
    remedy = "raise it (--worlds, Budget(worlds=...)), or give the worlds that occur as data"
    return BudgetError("worlds", f"could not decide: {what}, more than the limit of {limit:,}; {remedy}")


def seconds_left(clock: Meter) -> float | None:
    """How long work may still take; an error if time is over."""
    clock.check_clock()
    seconds = clock.budget.seconds
    return None if seconds is None else max(1e-3, seconds + clock._start - time.monotonic())


@dataclass(frozen=True)
class Concept:
    """What is mapped: one output of a network, or all that is read from one object, and its values in words.

    >>> Concept("digit", ("digit(left)", "digit(right)"), ("0", "1")).values[1]
    '1'
    """

    name: str
    variables: tuple[str, ...]
    values: tuple[str, ...]
    outputs: tuple[str, ...] = ()  # what is read from the object together
    sizes: tuple[int, ...] = ()  # how many values each output has; the last one changes fastest


class Variable(NamedTuple):
    """A world variable: its name, the output that says its value, the object it is read from, and its values."""

    name: str
    output: str
    object: Hashable
    values: tuple[str, ...]


class Scene(NamedTuple):
    """Worlds that have to be explained, ``(n, W)``, and the worlds of each output: those that are equally right.

    ``numbers`` says under which of the ``observations`` each world has to be explained.
    """

    variables: Sequence[Variable]
    worlds: Tensor
    explains: Explains
    right: Sequence[Tensor] = ()
    numbers: Tensor | None = None
    observations: Sequence[Mapping[tuple[str, str, int], Any]] = ()
    unlisted: Any = None  # which worlds are right, where they are too many to list


class Mapped(NamedTuple):
    """Worlds that have to be explained, ``(n, W)``; each variable has a concept, by number."""

    concepts: tuple[int, ...]
    worlds: Tensor
    explains: Explains
    objects: tuple[Hashable, ...]  # which object each variable is
    rows: Tensor  # which world of its scene each world is, ``(n,)``
    decode: Decoded = {}  # noqa: RUF012
    unlisted: Any = None  # which worlds are right, where they are too many to list


def arrange(scenes: Sequence[Scene], joint: int, worlds: int) -> tuple[list[Concept], list[Mapped], str]:
    """Concepts and scenes in which all that is read from one object is one variable; and the assumption made.

    An output that is not asked for in a scene may have any value there. Where a concept would have more than ``joint``
    values, or all scenes more than ``worlds`` worlds, outputs are mapped one by one.
    """
    groups = _read_together(scenes)
    sizes = {v.output: len(v.values) for scene in scenes for v in scene.variables}
    order = list(sizes)

    def split(apart: Outputs) -> Outputs:
        every = [*[g for g in groups if g not in apart], *[(o,) for g in apart for o in g]]
        return sorted(every, key=lambda g: order.index(g[0]))

    apart = [g for g in groups if len(g) > 1 and math.prod([sizes[o] for o in g]) > joint]
    if _expanded(scenes, split(apart), sizes) > worlds:
        apart = [g for g in groups if len(g) > 1]
    outputs = split(apart)
    if (count := _expanded(scenes, outputs, sizes)) > worlds:
        raise too_many(f"there are {count:,} worlds to explain", worlds)
    assumed = [f"{_listed(g)} are mapped one by one" for g in apart]
    if several := _about_several(scenes):
        assumed.append(f"what is said of several objects ({', '.join(several)}) is mapped apart from the rest")
    concepts = [_concept(group, scenes, sizes) for group in outputs]
    return concepts, [_joined(scene, outputs, sizes) for scene in scenes], " and ".join(assumed)


def _about_several(scenes: Sequence[Scene]) -> list[str]:
    """Outputs of several objects, where anything else is said of one of these objects."""
    found = {}
    for scene in scenes:
        objects = {v.object for v in scene.variables}
        for v in scene.variables:
            if isinstance(v.object, tuple) and len(set(v.object)) > 1:
                others = [o for o in objects if o != v.object and isinstance(o, tuple) and set(o) & set(v.object)]
                if others:
                    found[v.output] = True
    return list(found)


def _listed(names: Sequence[str]) -> str:
    shown = [*names[:3], f"{len(names) - 3} more"] if len(names) > 4 else list(names)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _read_together(scenes: Sequence[Scene]) -> list[tuple[str, ...]]:
    """Outputs that are read from one object, directly or through others."""
    together: dict[str, list[str]] = {}
    for scene in scenes:
        objects: dict[Hashable, str] = {}
        for variable in scene.variables:
            own = together.setdefault(variable.output, [variable.output])
            other = together[objects.setdefault(variable.object, variable.output)]
            if own is not other:
                other += own
                together |= dict.fromkeys(own, other)
    return [tuple(group) for group in {id(g): g for g in together.values()}.values()]


def _expanded(scenes: Sequence[Scene], outputs: Outputs, sizes: dict[str, int]) -> int:
    """How many worlds there are with every value of what is not asked for."""
    total = 0
    for scene in scenes:
        objects = _objects(scene.variables, outputs)
        hidden = [sizes[o] for _, group, asked in objects for o in group if o not in asked]
        total += len(scene.worlds) * math.prod(hidden)
    return total


def _objects(variables: Sequence[Variable], outputs: Outputs) -> list[tuple[int, tuple[str, ...], dict[str, int]]]:
    """The number of the concept, its outputs, and where among the variables each output that is asked for is."""
    found: dict[Hashable, tuple[int, tuple[str, ...], dict[str, int]]] = {}
    for place, variable in enumerate(variables):
        number, group = next((i, g) for i, g in enumerate(outputs) if variable.output in g)
        asked = found.setdefault((number, variable.object), (number, group, {}))[2]
        asked[variable.output] = place
    return list(found.values())


def _joined(scene: Scene, outputs: Outputs, sizes: dict[str, int]) -> Mapped:
    """A scene with one variable for each object."""
    worlds = scene.worlds
    objects = _objects(scene.variables, outputs)
    rows = torch.arange(len(worlds))
    columns: list[Tensor] = []
    decode: dict[int, tuple[int, int, int]] = {}  # of each variable its object, and how to find it in a joint value
    for number, (_, group, asked) in enumerate(objects):
        column, stride = torch.zeros(len(rows), dtype=torch.int64), 1
        for output in reversed(group):
            size = sizes[output]
            if output in asked:
                decode[asked[output]] = (number, stride, size)
                column = column + stride * worlds[rows, asked[output]]
            else:
                rows, column = rows.repeat_interleave(size), column.repeat_interleave(size)
                columns = [c.repeat_interleave(size) for c in columns]
                column = column + stride * torch.arange(size).repeat(len(rows) // size)
            stride *= size
        columns.append(column)

    def explained(taken_for: Tensor, numbers: Tensor) -> Tensor:
        parts = [taken_for[:, at] // stride % size for _, (at, stride, size) in sorted(decode.items())]
        return scene.explains(torch.stack(parts, -1), rows[numbers])

    concepts = tuple(number for number, _, _ in objects)
    seen = tuple(scene.variables[next(iter(asked.values()))].object for _, _, asked in objects)
    joined = torch.stack(columns, -1) if columns else worlds
    return Mapped(concepts, joined, explained, seen, rows, decode, scene.unlisted)


def _concept(group: tuple[str, ...], scenes: Sequence[Scene], sizes: dict[str, int]) -> Concept:
    every = {v.name: v for scene in scenes for v in scene.variables if v.output in group}
    numbers = tuple([sizes[output] for output in group])
    if len(group) == 1:
        return Concept(group[0], tuple(every), next(iter(every.values())).values, group, numbers)
    parts = [next(v.values for v in every.values() if v.output == output) for output in group]
    values = [f"({', '.join(choice)})" for choice in product(*parts)]
    return Concept(f"({', '.join(group)})", tuple(every), tuple(values), group, numbers)


def mixtures(right: Iterable[Tensor], clock: Meter) -> tuple[int, Mixture | None]:
    """How many sets of worlds are no product of sets, and an example.

    An independent belief that holds two worlds possible holds everything between them possible: every world that has
    each of its values from one of the two.
    """
    count, example = 0, None
    for members in right:
        clock.check_clock()
        spread = 1
        for column in members.unbind(-1):
            spread *= len(torch.unique(column))
        if spread == len(members) or not len(members):
            continue
        count += 1
        if example is None:
            example = _between(members, clock)
    return count, example


def _between(members: Tensor, clock: Meter) -> Mixture | None:
    """Two worlds that differ in as few variables as possible, and one between them that is not right."""
    right = set(map(tuple, members.tolist()))
    tried = 0
    for first in members:
        distance = (members != first).sum(-1)
        for second in members[distance.argsort(stable=True)]:
            clock.check_clock()
            tried += 1
            if tried > _PAIRS:
                return None
            places = (first != second).nonzero().flatten().tolist()[:_PLACES]
            for choice in range(1, 2 ** len(places) - 1):
                between = first.clone()
                for bit, place in enumerate(places):
                    if choice >> bit & 1:
                        between[place] = second[place]
                if tuple(between.tolist()) not in right:
                    return tuple(first.tolist()), tuple(second.tolist()), tuple(between.tolist())
    return None
