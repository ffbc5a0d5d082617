"""What a model makes of test data: predictions, beliefs about concepts, and which instances of axioms hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.data._columns import move_columns
from doxa.errors import ConfigError, DataError
from doxa.logic import Function, Ragged
from doxa.semantics import Model
from doxa.train.tasks._reading import Reading
from doxa.train.tasks._task import Task, flat_labels

__all__ = ["Measured", "measure"]

CHUNK = 500
"""So many rows are looked at together."""


@dataclass(frozen=True)
class Measured:
    """What `measure` found.

    Attributes:
        target: how the target was read, where the task has one.
        guesses: the positions of the true and of the chosen value and what each value weighs, ``(rows,)``, ``(rows,)``
            and ``(rows, values)``.
        concepts: how each concept was read, over all fields together.
        beliefs: the probabilities of its values by symbol and field, ``(rows, values)``.
        held: how many instances each axiom has, and how many of them hold classically, by name.
    """

    target: Reading | None
    guesses: tuple[Tensor, Tensor, Tensor] | None
    concepts: tuple[Reading, ...]
    beliefs: dict[str, dict[str, Tensor]]
    held: dict[str, tuple[int, int]]

    def scores(self) -> dict[str, float]:
        """The numbers for a learning curve."""
        found = {} if self.target is None else {"task_accuracy": self.target.accuracy}
        if self.concepts:
            right = sum(reading.accuracy * reading.total for reading in self.concepts)
            found["concept_accuracy"] = right / sum(reading.total for reading in self.concepts)
        instances = sum(count for count, _ in self.held.values())
        found["satisfaction"] = sum(holds for _, holds in self.held.values()) / max(1, instances)
        return found


@torch.no_grad()
def measure(task: Task, model: Model, rows: int | None = None, *, seed: int = 0) -> Measured:
    """Ask a model about test rows, a few hundred at a time.

    An axiom that speaks about several rows at once is judged within each such part.

    Args:
        task: whose data, target and concepts are meant.
        model: is asked as it is; put it into evaluation mode before.
        rows: look at so many test rows only, the first ones.
        seed: of what is sampled.
    """
    rows = min(rows or task.size(), task.size())
    random = torch.Generator().manual_seed(seed)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    values, truths, candidates = [], [], None
    held: dict[str, tuple[int, int]] = {}
    beliefs: dict[str, dict[str, list[Tensor]]] = {s: {p: [] for p in places} for s, places in task.concepts.items()}
    for start in range(0, rows, CHUNK):
        part = move_columns(task.part(start, min(rows, start + CHUNK)), device)
        if task.target:
            guess = model.predict(task.target, values=task.values, generator=random, **part)
            values.append(guess.values.cpu())
            truths.append(guess.truths.cpu())
            candidates = guess.candidates.cpu()
        for axiom in model.satisfaction(examples=0, generator=random, **part).axioms:
            instances, holds = held.get(axiom.name, (0, 0))
            held[axiom.name] = (instances + axiom.instances, holds + axiom.holds)
        for symbol, places in beliefs.items():
            for place, found in places.items():
                found.append(belief(model, symbol, _field(task, part, place)).cpu())
    whole = {symbol: {place: torch.cat(found) for place, found in places.items()} for symbol, places in beliefs.items()}
    target, guesses = None, None
    if candidates is not None:
        weights, chosen = torch.cat(truths).double(), torch.cat(values)
        numbers = candidates.tolist()
        index = {value: i for i, value in enumerate(numbers)}
        truth = _as_numbers(task, task.column(task.target)[:rows])
        if missing := [value for value in truth if value not in index]:
            raise DataError(f"{task.target} is {missing[0]} in the test data, which is not among its values {numbers}")
        read = torch.tensor([index[value] for value in chosen.tolist()])
        sure = weights.gather(1, read[:, None])[:, 0] / weights.sum(1).clamp(min=1e-300)
        labels = torch.tensor([index[value] for value in truth])
        names = _target_names(task, numbers)
        target, guesses = Reading.of(task.target, names, labels, read, sure), (labels, read, weights)
    concepts = tuple(_concept(task, symbol, places) for symbol, places in whole.items())
    return Measured(target, guesses, concepts, whole, held)


def belief(model: Model, symbol: str, objects: Tensor) -> Tensor:
    """What the network of a symbol believes about objects: a probability for each value, ``(n, values)``."""
    meaning: Any = model.interpretation.meaning(symbol)
    output = getattr(meaning, "call", None)
    inputs = getattr(meaning, "inputs", ())
    if meaning is None or output is None or len(inputs) != 1 or meaning.returns == "value":
        raise ConfigError(
            f"concepts: {symbol} is not bound to a network of one object, so there is no belief to compare with labels"
        )
    found: Tensor = output(objects)
    exclusive = isinstance(meaning.symbol, Function) or meaning.exclusive
    if meaning.returns == "logit":
        found = found.softmax(-1) if exclusive else found.sigmoid()
    elif meaning.returns == "log_prob":
        found = found.exp()
    if exclusive:
        return found
    if not meaning.axes:
        found = found.reshape(len(objects))
        return torch.stack([1 - found, found], -1)
    return found / found.sum(-1, keepdim=True).clamp(min=1e-30)  # truth values of their own; the largest is read


def value_names(model_kb: Any, symbol: str) -> tuple[list[str], int]:
    """The values of a concept as text, and the number of the first: labels of ranges are numbers of the range."""
    signature = model_kb.signature
    if symbol in signature.functions:
        sort = signature.functions[symbol].result
    else:
        finite = [s for s in signature.predicates[symbol].sorts if s.values is not None]
        if not finite:
            return ["false", "true"], 0
        sort = finite[-1]
    if sort.values is None:
        raise ConfigError(f"concepts: {symbol} has values in {sort.name}, which is not finite")
    return [str(value) for value in sort.values], sort.values[0] if isinstance(sort.values, range) else 0


def _target_names(task: Task, numbers: list[int]) -> list[str]:
    """The values of the target as text: of a sort that lists names, which has numbers in data, these names."""
    rows, _, field = task.target.partition(".")
    declared = task.kb.signature.rows.get(rows)
    sorts = {} if declared is None else {name: sort for name, sort, _ in declared.fields}
    values = sorts[field].values if field in sorts else None
    return [str(values[number]) if isinstance(values, tuple) else str(number) for number in numbers]


def _as_numbers(task: Task, column: Any) -> list[int]:
    """The true values of the target as numbers; of names, their positions in the sort."""
    if isinstance(column, Tensor):
        return [int(value) for value in column.tolist()]
    sorts = task.kb.signature.value_sorts
    return [list(sorts[name].values or ()).index(name) if isinstance(name, str) else int(name) for name in column]


def concept_labels(task: Task, symbol: str, place: str) -> Tensor:
    """The labels of a concept as positions among its values."""
    names, first = value_names(task.kb, symbol)
    labels = flat_labels(task.concepts[symbol][place]).long() - first
    if bool(((labels < 0) | (labels >= len(names))).any()):
        wrong = int(labels[(labels < 0) | (labels >= len(names))][0]) + first
        raise DataError(f"the labels of {symbol} on {place} hold {wrong}; its values are {', '.join(names)}")
    return labels


def _concept(task: Task, symbol: str, places: dict[str, Tensor]) -> Reading:
    probs = torch.cat([*places.values()]).double()
    labels = torch.cat([concept_labels(task, symbol, place)[: len(found)] for place, found in places.items()])
    sure, read = probs.max(-1)
    return Reading.of(symbol, value_names(task.kb, symbol)[0], labels, read, sure)


def _field(task: Task, part: dict[str, Any], place: str) -> Tensor:
    """The objects in a field; where it holds numbers of objects of an open sort, those objects."""
    name = place.partition(".")[2]
    rows = part[task.rows]
    column = rows if isinstance(rows, Tensor) else rows[name]
    found: Tensor = column.values if isinstance(column, Ragged) else column
    declared = task.kb.signature.rows.get(task.rows)
    sorts = {} if declared is None else {field: sort.name for field, sort, _ in declared.fields}
    objects = part.get(sorts.get(name, ""))
    return objects[found] if isinstance(objects, Tensor) and objects is not rows else found
