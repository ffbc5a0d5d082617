"""What a network may take for what: concepts, the objects they are read from, and worlds that have to be explained."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from doxa.errors import BudgetError

__all__ = ["Concept", "Scene", "Variable", "arrange"]

Explains = Callable[[Tensor, Tensor], Tensor]
"""Worlds ``(n, W)`` and the rows ``(n,)`` that are taken for them, to whether the conclusions stay, bool ``(n,)``."""


@dataclass(frozen=True)
class Concept:
    """What is mapped: one output of a network, or all that is read from one object, and its values in words.

    >>> Concept("digit", ("digit(left)", "digit(right)"), ("0", "1")).values[1]
    '1'
    """

    name: str
    variables: tuple[str, ...]
    values: tuple[str, ...]


class Variable(NamedTuple):
    """A world variable: its name, the output that says its value, the object it is read from, and its values."""

    name: str
    output: str
    object: Hashable
    values: tuple[str, ...]


class Scene(NamedTuple):
    """Worlds that have to be explained, ``(n, W)``; each variable has a concept, by number."""

    concepts: tuple[int, ...]
    worlds: Tensor
    explains: Explains


def arrange(
    variables: Sequence[Sequence[Variable]], scenes: Sequence[tuple[Tensor, Explains]], joint: int, worlds: int
) -> tuple[list[Concept], list[Scene], str]:
    """Concepts and scenes in which all that is read from one object is one variable; and the assumption made.

    Outputs that are read from the same object are one concept, whose values are combinations. An output that is not
    asked for in a scene may have any value there. Where that would be more than ``joint`` values, or more than
    ``worlds`` worlds, outputs are mapped one by one.

    Args:
        variables: for each scene the variables of its worlds.
        scenes: the worlds of each, and what explains them.
        joint: the most values of a concept of several outputs.
        worlds: the most worlds of all scenes.
    """
    groups = _read_together(variables)
    sizes = {v.output: len(v.values) for scene in variables for v in scene}
    apart = [g for g in groups if len(g) > 1 and math.prod([sizes[o] for o in g]) > joint]
    kept = [g for g in groups if g not in apart]
    alone = [(o,) for g in apart for o in g]
    if _expanded(variables, scenes, [*kept, *alone], sizes) > worlds:
        apart = [g for g in groups if len(g) > 1]
        kept, alone = [g for g in groups if len(g) == 1], [(o,) for g in apart for o in g]
    order = list(sizes)
    outputs = sorted([*kept, *alone], key=lambda g: order.index(g[0]))
    if (count := _expanded(variables, scenes, outputs, sizes)) > worlds:
        raise BudgetError(
            "worlds",
            f"could not decide: there are {count:,} worlds to explain, more than the limit of {worlds:,}; raise "
            "it (--worlds, Budget(worlds=...)), or give the worlds that occur as data",
        )
    found = [
        _joined(part, worlds_, explains, outputs, sizes)
        for part, (worlds_, explains) in zip(variables, scenes, strict=True)
    ]
    assumed = [f"{_listed(g)} are mapped one by one" for g in apart]
    if several := _about_several(variables):
        assumed.append(f"what is said of several objects ({', '.join(several)}) is mapped apart from the rest")
    return [_concept(g, variables) for g in outputs], found, " and ".join(assumed)


def _about_several(variables: Sequence[Sequence[Variable]]) -> list[str]:
    """Outputs of several objects, where anything else is said of one of these objects."""
    found = {}
    for scene in variables:
        objects = {v.object for v in scene}
        for v in scene:
            if isinstance(v.object, tuple) and len(set(v.object)) > 1:
                others = [o for o in objects if o != v.object and isinstance(o, tuple) and set(o) & set(v.object)]
                if others:
                    found[v.output] = True
    return list(found)


def _listed(names: Sequence[str]) -> str:
    shown = [*names[:3], f"{len(names) - 3} more"] if len(names) > 4 else list(names)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _read_together(variables: Sequence[Sequence[Variable]]) -> list[tuple[str, ...]]:
    """Outputs that are read from one object, directly or through others."""
    together: dict[str, list[str]] = {}
    for scene in variables:
        objects: dict[Hashable, str] = {}
        for variable in scene:
            own = together.setdefault(variable.output, [variable.output])
            other = together[objects.setdefault(variable.object, variable.output)]
            if own is not other:
                other += own
                together |= dict.fromkeys(own, other)
    return [tuple(group) for group in {id(g): g for g in together.values()}.values()]


def _expanded(
    variables: Sequence[Sequence[Variable]],
    scenes: Sequence[tuple[Tensor, Explains]],
    outputs: Sequence[tuple[str, ...]],
    sizes: dict[str, int],
) -> int:
    """How many worlds there are with every value of what is not asked for."""
    total = 0
    for part, (worlds, _) in zip(variables, scenes, strict=True):
        hidden = [sizes[o] for _, group, asked in _objects(part, outputs) for o in group if o not in asked]
        total += len(worlds) * math.prod(hidden)
    return total


def _objects(
    variables: Sequence[Variable], outputs: Sequence[tuple[str, ...]]
) -> list[tuple[int, tuple[str, ...], dict[str, int]]]:
    """The number of the concept, its outputs, and where among the variables each output that is asked for is."""
    found: dict[Hashable, tuple[int, tuple[str, ...], dict[str, int]]] = {}
    for place, variable in enumerate(variables):
        number, group = next((i, g) for i, g in enumerate(outputs) if variable.output in g)
        asked = found.setdefault((number, variable.object), (number, group, {}))[2]
        asked[variable.output] = place
    return list(found.values())


def _joined(
    variables: Sequence[Variable],
    worlds: Tensor,
    explains: Explains,
    outputs: Sequence[tuple[str, ...]],
    sizes: dict[str, int],
) -> Scene:
    """A scene with one variable for each object."""
    objects = _objects(variables, outputs)
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
        return explains(torch.stack(parts, -1), rows[numbers])

    concepts = tuple(number for number, _, _ in objects)
    return Scene(concepts, torch.stack(columns, -1) if columns else worlds, explained)


def _concept(group: tuple[str, ...], variables: Sequence[Sequence[Variable]]) -> Concept:
    every = {v.name: v for scene in variables for v in scene if v.output in group}
    if len(group) == 1:
        return Concept(group[0], tuple(every), next(iter(every.values())).values)
    parts = [next(v.values for v in every.values() if v.output == output) for output in group]
    values = [f"({', '.join(choice)})" for choice in product(*parts)]
    return Concept(f"({', '.join(group)})", tuple(every), tuple(values))
