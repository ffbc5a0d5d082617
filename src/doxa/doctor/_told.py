"""What labels of training rows say about maps of concepts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from doxa.doctor._maps import Told
from doxa.doctor._scenes import Concept, Mapped, Scene
from doxa.errors import DataError
from doxa.logic import Field, Ragged, postorder
from doxa.train.tasks._labels import Labels
from doxa.train.tasks._measure import value_names
from doxa.train.tasks._task import Task, columns

_Part = tuple[int, int, int]  # the concept, which of its outputs, and the value that it has


class Rows:
    """The training rows of a task, by what is observed of them."""

    def __init__(self, task: Task) -> None:
        self.task = task
        declared = task.kb.signature.rows.get(task.rows)
        if declared is None:
            raise DataError(
                f"labels are for rows of data, but {task.rows} is no such rows; declare them: data rows(field: Sort, …)"
            )
        if many := [name for name, _, several in declared.fields if several]:
            raise DataError(f"{task.rows}.{many[0]} holds several objects; labels are for fields that hold one")
        fields = columns(task.train, task.rows, "train")
        used = {node.name for axiom in task.kb.axioms for node in postorder(axiom.formula) if isinstance(node, Field)}
        self.observed: dict[str, list[Any]] = {}
        for name, sort, _ in declared.fields:
            if name in used and name in fields and (sort.values is not None or sort.is_integer or sort.name == "Real"):
                self.observed[name] = _values(fields[name], sort.values)
        self.of_number: dict[int, list[int]] = {}
        self.number: dict[int, int] = {}

    def distinct(self) -> dict[str, list[Any]]:
        """What is observed, each combination once."""
        every = dict.fromkeys(zip(*self.observed.values(), strict=True)) if self.observed else {}
        return {name: [row[i] for row in every] for i, name in enumerate(self.observed)}

    def sort_into(self, scene: Scene) -> None:
        """Find the observation of each row among those of a scene."""
        names = [name for name in self.observed if (self.task.rows, name, 0) in (scene.observations or [{}])[0]]
        places = {
            tuple(seen[self.task.rows, name, 0] for name in names): k for k, seen in enumerate(scene.observations)
        }
        for row in range(self.task.size("train")):
            number = places.get(tuple(self.observed[name][row] for name in names))
            if number is not None:
                self.number[row] = number
                self.of_number.setdefault(number, []).append(row)

    def said(self, row: int) -> str:
        """What is observed of a row, in words."""
        return ", ".join(f"{name} = {column[row]}" for name, column in self.observed.items()) or "nothing"


def _values(column: Any, values: Any) -> list[Any]:
    assert not isinstance(column, Ragged)
    cells = column.tolist() if isinstance(column, Tensor) else list(column)
    return [values[c] if isinstance(values, tuple) and not isinstance(c, str) else c for c in cells]


def told(
    task: Task, labels: Labels, rows: Rows, scene: Scene, concepts: Sequence[Concept], arranged: Sequence[Mapped]
) -> list[list[list[Told]]]:
    """For each labelled row what the labels say under each world that it may truly be.

    Raises:
        DataError: no world that fits what is told of a row fits its labels.
    """
    mapped, found = arranged[0], dict[tuple[Any, ...], None]()
    objects: list[Hashable] = [*zip(mapped.concepts, mapped.objects, strict=True)]
    assert scene.numbers is not None
    numbers = scene.numbers[mapped.rows]
    for row, said in sorted(_by_row(task, labels).items()):
        parts: dict[Hashable, list[_Part]] = {}
        for symbol, place, value in said:
            for about, part in _parts(task, concepts, symbol, place, value):
                parts.setdefault(about, []).append(part)
        if row not in rows.number:
            raise DataError(f"row {row}: {rows.said(row)} is told of it, which no world that occurs gives")
        worlds = mapped.worlds[numbers == rows.number[row]]
        for about, own in parts.items():
            if about in objects:
                column = worlds[:, objects.index(about)]
                worlds = worlds[torch.isin(column, torch.tensor(_with(concepts, own)))]
        if not len(worlds):
            listed = ", ".join(f"{s} of {p} = {value_names(task.kb, s)[0][v]}" for s, p, v in said)
            raise DataError(f"row {row}: {listed} contradicts the knowledge; told of it is {rows.said(row)}")
        asked = [about for about in parts if about in objects]
        places = [objects.index(about) for about in asked]
        possible = torch.unique(worlds[:, places], dim=0).tolist() if places else [[]]
        if asked:
            found[_alternatives(concepts, [parts[about] for about in asked], possible)] = None
        for about in parts:
            if about not in objects:  # nothing is known of what else is read from it
                own = parts[about]
                found[_alternatives(concepts, [own], [[v] for v in _with(concepts, own)])] = None
    return [[list(one) for one in alternatives] for alternatives in found]


def _alternatives(
    concepts: Sequence[Concept], parts: Sequence[list[_Part]], possible: Sequence[Sequence[int]]
) -> tuple[tuple[Told, ...], ...]:
    allowed = [tuple(_with(concepts, own)) for own in parts]
    return tuple(
        tuple((own[0][0], v, u) for own, v, u in zip(parts, world, allowed, strict=True)) for world in possible
    )


def _with(concepts: Sequence[Concept], parts: Sequence[_Part]) -> list[int]:
    """The joint values of a concept that have these values of its outputs."""
    concept = concepts[parts[0][0]]
    values = torch.arange(math.prod(concept.sizes))
    keep = torch.ones(len(values), dtype=torch.bool)
    for _, place, value in parts:
        stride = math.prod(concept.sizes[place + 1 :])
        keep &= values // stride % concept.sizes[place] == value
    found: list[int] = values[keep].tolist()
    return found


def _parts(
    task: Task, concepts: Sequence[Concept], symbol: str, place: str, value: int
) -> Iterator[tuple[Hashable, _Part]]:
    """Which outputs of which object a label tells; those of a predicate over a finite sort are told together."""
    signature = task.kb.signature
    declared = signature.predicates.get(symbol) or signature.functions[symbol]
    about = ((declared.sorts[0].name, place),)
    names = value_names(task.kb, symbol)[0]
    titles = {symbol: value}
    if symbol in signature.predicates and len(declared.sorts) > 1:
        titles = {f"{symbol}(_, {name})": int(i == value) for i, name in enumerate(names)}
    for number, concept in enumerate(concepts):
        for output, own in titles.items():
            if output in concept.outputs:
                yield (number, about), (number, concept.outputs.index(output), own)


def _by_row(task: Task, labels: Labels) -> dict[int, list[tuple[str, str, int]]]:
    found: dict[int, list[tuple[str, str, int]]] = {}
    for symbol, places in labels.items():
        for place, column in places.items():
            for row in (column >= 0).nonzero().flatten().tolist():
                found.setdefault(row, []).append((symbol, place, int(column[row])))
    return found
