r"""What a model makes of test data: how it reads values, what they truly are, and which instances of axioms hold.

Let :math:`n_{ij}` count the objects that are i and are read as j, N of them in all. The accuracy is
:math:`\frac1N \sum_i n_{ii}`. A reader that has settled on a map α of the values, reading every i as α(i), is right
by its own lights on

.. math:: \frac1N \sum_i n_{i,α(i)}, \qquad α(i) = \arg\max_j n_{ij},

which the accuracy falls short of exactly if α is not the identity. Where it falls far short, knowledge was satisfied
by concepts that are not the intended ones: a reasoning shortcut, or a local minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa._numerics import safe_log
from doxa.data._batches import move_columns
from doxa.errors import ConfigError, DataError
from doxa.logic import Function, Ragged
from doxa.semantics import Model, Prediction
from doxa.train.tasks._task import Task, flat_labels

BINS = 10
MIN_EXAMPLES, MIN_GAIN = 10, 0.2
"""Where a value has fewer objects, it is settled by chance; then a map has to explain this much more than the truth."""
HARDLY = 0.1
"""A value is missed where it is read right less often than this."""


@dataclass(frozen=True)
class Reading:
    r"""Objects with finitely many values: what they are, what they were read as, and how sure the reader was.

    >>> reading = Reading.of("bit", ["0", "1"], torch.tensor([0, 1, 1]), torch.tensor([1, 0, 0]), torch.ones(3))
    >>> reading.accuracy, reading.calibration_error
    (0.0, 1.0)
    >>> print(reading.warning())
    bit: 0.0 % are read right, but 100.0 % are read by a map of the values: 0 → 1, 1 → 0 (a relabelling)
    """

    name: str  # of what was read, such as ``"digit"`` or ``"pairs.sum"``
    values: tuple[str, ...]  # their names
    counts: tuple[tuple[int, ...], ...]  # how many objects have value i and were read as value j
    bins: tuple[tuple[int, float, float], ...]  # objects, mean confidence and share read right, by tenths of confidence

    @classmethod
    def of(cls, name: str, values: Sequence[str], labels: Tensor, read: Tensor, confidence: Tensor) -> Reading:
        """From the positions of true and read values and the confidence in the latter, each ``(n,)``."""
        size = len(values)
        counts = torch.bincount(size * labels + read, minlength=size * size).reshape(size, size)
        right, confidence = (labels == read).double(), confidence.double()
        which = (confidence * BINS).long().clamp(0, BINS - 1)
        bins = []
        for b in range(BINS):
            inside = which == b
            count = int(inside.sum())
            bins.append(
                (count, float(confidence[inside].sum()) / max(1, count), float(right[inside].sum()) / max(1, count))
            )
        return cls(name, tuple(values), tuple(map(tuple, counts.tolist())), tuple(bins))

    @property
    def total(self) -> int:
        """How many objects there are."""
        return sum(map(sum, self.counts))

    @property
    def accuracy(self) -> float:
        """The share of objects read right."""
        return sum(row[i] for i, row in enumerate(self.counts)) / max(1, self.total)

    @property
    def calibration_error(self) -> float:
        """The expected calibration error Σ_b n_b/N |right_b - confidence_b| over ten bins of confidence."""
        return sum(count * abs(right - sure) for count, sure, right in self.bins) / max(1, self.total)

    @property
    def confidence(self) -> float:
        """The mean confidence in what was read."""
        return sum(count * sure for count, sure, _ in self.bins) / max(1, self.total)

    @property
    def map(self) -> dict[int, int]:
        """α: as what each value that occurs is mostly read."""
        return {i: max(range(len(row)), key=row.__getitem__) for i, row in enumerate(self.counts) if sum(row)}

    @property
    def mapped_accuracy(self) -> float:
        """The share of objects that are read as α says."""
        return sum(self.counts[i][j] for i, j in self.map.items()) / max(1, self.total)

    @property
    def moved(self) -> dict[int, int]:
        """The part of α that is settled and wrong: values of which most objects are taken for another value."""
        return {i: j for i, j in self.map.items() if j != i and 2 * self.counts[i][j] > sum(self.counts[i])}

    def warning(self) -> str:
        """Words about a reading that is wrong by rule and not by chance; empty if it is not."""
        alpha, moved = self.map, self.moved
        rarest = min((sum(self.counts[i]) for i in moved), default=0)
        if not moved or (rarest < MIN_EXAMPLES and self.mapped_accuracy - self.accuracy < MIN_GAIN):
            return self._missed()
        facts = (
            f"{self.name}: {100 * self.accuracy:.1f} % are read right, but {100 * self.mapped_accuracy:.1f} % are read"
        )
        if len(set(alpha.values())) == 1 and len(alpha) > 1:
            return f"{facts} by one rule: everything is {self.values[next(iter(alpha.values()))]}"
        shown = ", ".join(f"{self.values[i]} → {self.values[j]}" for i, j in moved.items())
        others = ", the others as they are" if len(moved) < len(alpha) else ""
        return f"{facts} by a map of the values: {shown}{others}{self._kind(moved)}"

    def _missed(self) -> str:
        """Words about values that are hardly ever read where they are, and not always taken for the same other one."""
        parts = []
        for i, row in enumerate(self.counts):
            if sum(row) >= MIN_EXAMPLES and row[i] < HARDLY * sum(row):
                others = sorted((j for j in range(len(row)) if j != i), key=row.__getitem__, reverse=True)
                taken = [self.values[j] for j in others if row[j] >= HARDLY * sum(row)]
                parts.append(f"{self.values[i]} is taken for {' or '.join(taken) or 'others'}")
        facts = f"{self.name}: {100 * self.accuracy:.1f} % are read right, but {', '.join(parts)}"
        return facts if parts else ""

    def _kind(self, moved: dict[int, int]) -> str:
        moves = {j - i for i, j in moved.items()}
        if not all(value.lstrip("-").isdigit() for value in self.values):
            moves = set()  # names have no order
        if len(moves) == 1:
            by = next(iter(moves))
            return f" ({abs(by)} too {'high' if by > 0 else 'low'})"
        if moves and moves <= {-1, 1} and len(moved) > 2:  # two that are swapped are just swapped
            return " (off by one)"
        return " (a relabelling)" if len(set(self.map.values())) == len(self.map) else ""


@dataclass(frozen=True)
class AxiomHeld:
    """How often an axiom holds classically on test data."""

    name: str
    instances: int
    holds: int

    @property
    def rate(self) -> float:
        """The share of instances that hold; 1 where there are none."""
        return self.holds / self.instances if self.instances else 1.0


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How a model reads test data, and how often knowledge holds of what it reads."""

    target: Reading | None = None
    concepts: tuple[Reading, ...] = ()  # where labels are known
    axioms: tuple[AxiomHeld, ...] = ()  # with every network at its most probable value

    @property
    def task_accuracy(self) -> float | None:
        """The share of test rows whose target was predicted right."""
        return None if self.target is None else self.target.accuracy

    @property
    def concept_accuracy(self) -> float | None:
        """The share of concepts read right, over all of them."""
        return self._over_concepts(lambda reading: reading.accuracy)

    @property
    def satisfaction(self) -> float:
        """The share of instances that hold, over all axioms."""
        return AxiomHeld("", sum(a.instances for a in self.axioms), sum(a.holds for a in self.axioms)).rate

    @property
    def target_calibration(self) -> float | None:
        """The expected calibration error of the predicted target."""
        return None if self.target is None else self.target.calibration_error

    @property
    def concept_calibration(self) -> float | None:
        """The expected calibration error of the concepts."""
        return self._over_concepts(lambda reading: reading.calibration_error)

    def _over_concepts(self, number: Callable[[Reading], float]) -> float | None:
        total = sum(reading.total for reading in self.concepts)
        return sum(number(reading) * reading.total for reading in self.concepts) / total if total else None

    @property
    def concept_confidence(self) -> float | None:
        """How sure of the concepts the reader is, on average: where shortcuts remain, it should not be near 1."""
        return self._over_concepts(lambda reading: reading.confidence)

    def scores(self) -> dict[str, float]:
        """The numbers for a learning curve."""
        names = ("task_accuracy", "concept_accuracy", "concept_calibration", "satisfaction")
        named = {name: getattr(self, name) for name in names}
        return {name: value for name, value in named.items() if value is not None}


CHUNK = 500
"""So many rows are looked at together."""


@dataclass(frozen=True, kw_only=True)
class Measured(Scores):
    """What `measure` found."""

    # positions of the true and of the chosen value, (rows,), and what each value weighs, (rows, values)
    guesses: tuple[Tensor, Tensor, Tensor] | None
    beliefs: dict[str, dict[str, Tensor]]  # of the values of a concept, by symbol and field, (rows, values)


@torch.no_grad()
def measure(task: Task, model: Model | Sequence[Model], rows: int | None = None, *, seed: int = 0) -> Measured:
    """Ask a model, in evaluation mode, about the first test rows, or all, a few hundred at a time.

    Several models are asked together: what they believe is the mean of what each believes, and knowledge holds as often
    as it does for one of them on average. An axiom that speaks about several rows at once is judged within each part.
    """
    models = [model] if isinstance(model, Model) else list(model)
    rows = min(rows or task.size(), task.size())
    random = torch.Generator().manual_seed(seed)
    device = next((p.device for p in models[0].parameters()), torch.device("cpu"))
    numbers: list[int] = []
    read: list[Tensor] = []
    weights: list[Tensor] = []
    held: dict[str, tuple[int, int]] = {}
    beliefs: dict[str, dict[str, list[Tensor]]] = {s: {p: [] for p in places} for s, places in task.concepts.items()}
    for start in range(0, rows, CHUNK):
        part = move_columns(task.part(start, min(rows, start + CHUNK)), device)
        if task.target:
            guesses = [m.predict(task.target, values=task.values, generator=random, **part) for m in models]
            numbers = guesses[0].candidates.tolist()
            weights.append(_pooled([guess.truths.cpu().double() for guess in guesses]))
            read.append(_places(guesses[0], numbers) if len(models) == 1 else weights[-1].argmax(1))
        for own in models:
            for axiom in own.satisfaction(examples=0, generator=random, **part).axioms:
                instances, holds = held.get(axiom.name, (0, 0))
                held[axiom.name] = (instances + axiom.instances, holds + axiom.holds)
        for symbol, places in beliefs.items():
            for place, found in places.items():
                each = [concept_belief(task, m, symbol, place, part).cpu() for m in models]
                found.append(each[0] if len(each) == 1 else torch.stack(each).double().mean(0))
    whole = {symbol: {place: torch.cat(found) for place, found in places.items()} for symbol, places in beliefs.items()}
    target, guessed = None, None
    if read:
        index = {value: i for i, value in enumerate(numbers)}
        truth = _as_numbers(task, task.column(task.target)[:rows])
        if missing := [value for value in truth if value not in index]:
            raise DataError(f"{task.target} is {missing[0]} in the test data, which is not among its values {numbers}")
        weight, seen = torch.cat(weights), torch.cat(read)
        sure = weight.gather(1, seen[:, None])[:, 0] / weight.sum(1).clamp(min=1e-300)
        labels = torch.tensor([index[value] for value in truth])
        names = _target_names(task, numbers)
        target, guessed = Reading.of(task.target, names, labels, seen, sure), (labels, seen, weight)
    concepts = tuple(_concept(task, symbol, places) for symbol, places in whole.items())
    axioms = tuple(AxiomHeld(name, *counts) for name, counts in held.items())
    return Measured(target=target, guesses=guessed, concepts=concepts, beliefs=whole, axioms=axioms)


def _places(guess: Prediction, numbers: list[int]) -> Tensor:
    index = {value: i for i, value in enumerate(numbers)}
    return torch.tensor([index[value] for value in guess.values.tolist()])


def _pooled(weights: list[Tensor]) -> Tensor:
    """What models together say of each value: each has one vote to share out."""
    if len(weights) == 1:
        return weights[0]
    return torch.stack([w / w.sum(1, keepdim=True).clamp(min=1e-300) for w in weights]).mean(0)


def concept_belief(task: Task, model: Model, symbol: str, place: str, part: dict[str, Any]) -> Tensor:
    """What a model believes of the objects in a field of some rows: a probability for each value, ``(n, values)``.

    Where symbols share one belief, such as a mixture, what they say of an object depends on its row, and this is the
    mean over all that the row may be.
    """
    if symbol in model.interpretation.joint_symbols:
        return _alone(model.marginals(symbol, place, **part))
    return belief(model, symbol, _field(task, part, place))


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
    return _alone(found)


def mean_entropy(model: Model, concepts: Mapping[str, Iterable[str]], rows: Mapping[str, Any]) -> Tensor:
    """The entropy of what is believed of the objects of some rows on average, summed over concepts.

    It is largest where all values are believed alike often; of each object, a network may be sure.

    Args:
        concepts: symbols, and where their objects are, such as ``{"digit": ["pairs.left"]}``.
        rows: the columns, by field.
    """
    if not concepts:
        raise ConfigError("spread is for concepts, and the task has none; give Task(concepts=...), or leave spread out")
    found = torch.zeros(())
    for symbol, places in concepts.items():
        columns = [rows[place.partition(".")[2]] for place in places]
        objects = torch.cat([column.values if isinstance(column, Ragged) else column for column in columns])
        mean = belief(model, symbol, objects).mean(0)
        found = found - (mean * safe_log(mean)).sum()
    return found


def _alone(truths: Tensor) -> Tensor:
    """Probabilities that may each be of their own truth, as shares; the largest is read."""
    return truths / truths.sum(-1, keepdim=True).clamp(min=1e-30)


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
    sort = _sorts(task, rows).get(field)
    values = None if sort is None else sort.values
    return [str(values[number]) if isinstance(values, tuple) else str(number) for number in numbers]


def _sorts(task: Task, rows: str) -> dict[str, Any]:
    """The sorts of the fields of rows."""
    declared = task.kb.signature.rows.get(rows)
    return {} if declared is None else {name: sort for name, sort, _ in declared.fields}


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
    sort = _sorts(task, task.rows).get(name)
    objects = None if sort is None else part.get(sort.name)
    return objects[found] if isinstance(objects, Tensor) and objects is not rows else found
