"""Learning from a few concept labels, so that a network believes them of all objects of a kind.

A network of many parameters can learn one labelled picture by heart and read all others as before. This keeps it from
that:

- Labelled rows are part of every step, from the first on, before the network has chosen how to read.
- They are shown in changed versions: a picture is moved by a few pixels.
- What is told of a labelled row counts as much as its labels, so that it says what its other objects are as well.
- Which reading a network falls into is decided in its first steps, much by chance. So several are begun, and the one
  goes on that explains labels and knowledge best. Reading all but the labelled pictures wrongly costs loss, for it has
  to tell them apart from others of their kind.
- In these first steps exact reasoning keeps all worlds open that fit, less and less (`Model.diversity`). Otherwise it
  takes the worlds for which the least has to be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from doxa.data._batches import move_columns, take_rows
from doxa.errors import BudgetError
from doxa.semantics import Auto, Exact, Model
from doxa.semantics._labels import label_loss
from doxa.semantics._semantics import Generator
from doxa.train.tasks._task import Task, columns

SHOWN = 8
"""So many labelled rows are shown in each step."""
MOVED = 14
"""Pictures are moved by up to one of so many parts of their height and width."""
TRIED = 60
"""So many steps each start is tried; the better half of them twice as many."""
LAST = 20
"""The mean loss of so many of these, the last, says how good a start is."""
OPEN = 1.0
"""How much `Model.diversity` weighs in the first step; in the last that a start is tried, it weighs nothing."""
M = TypeVar("M", bound=nn.Module)


class Labelled:
    """The labelled training rows of a task.

    >>> from dataclasses import replace
    >>> from doxa.train.tasks._shortcuts import driving_drawn
    >>> made = driving_drawn((8, 4))
    >>> some = {"red": {"streets.view": torch.tensor([-1, 0, -1, -1, 1, -1, -1, -1])}}
    >>> Labelled(replace(made.task, labels=some)).rows
    tensor([1, 4])
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        told = [(s, place, column) for s, own in task.labels.items() for place, column in own.items()]
        every = [(column >= 0).nonzero().squeeze(1) for _, _, column in told]
        self.rows = torch.unique(torch.cat(every)) if every else torch.zeros(0, dtype=torch.int64)
        self.fields = take_rows(columns(task.train, task.rows, "train"), self.rows)
        self.told = [(symbol, place.partition(".")[2], column[self.rows]) for symbol, place, column in told]
        fields = [place.partition(".")[2] for place in task.images]
        self.pictures = [name for name in fields if isinstance(self.fields.get(name), Tensor)]

    def __bool__(self) -> bool:
        return bool(len(self.rows))

    def loss(self, model: Model, *, generator: Generator = None) -> dict[str, Tensor]:
        """Of some labelled rows, drawn and changed: the mean of −log p(label), and the loss of the knowledge."""
        at = torch.randint(len(self.rows), (SHOWN,), generator=generator)
        if len(self.rows) > SHOWN:
            at = torch.randperm(len(self.rows), generator=generator)[:SHOWN]
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        rows = move_columns(take_rows(self.fields, at), device)
        rows |= {name: moved(rows[name], generator=generator) for name in self.pictures}
        said, count = torch.zeros(()), 0
        for symbol, field, labels in self.told:
            known = (labels[at] >= 0).nonzero().squeeze(1)
            if len(known):
                own, values = take_rows(rows, known), labels[at][known].to(device)
                said = said + label_loss(model, symbol, field, values, rows=own, generator=generator)
                count += len(known)
        knowledge = model.loss(generator=generator, **self.task.with_rows(self.task.train, rows))
        weight = self.task.label_weight
        return {"loss of labels": weight * said / max(1, count), "loss of labelled rows": weight * knowledge}


def moved(pictures: Tensor, *, generator: Generator = None) -> Tensor:
    """Pictures ``(n, ..., height, width)``, each moved by a whole number of pixels of its own; edges are repeated.

    >>> moved(torch.eye(14)[None].expand(500, -1, -1)).unique(dim=0).shape  # by up to one pixel: nine versions
    torch.Size([9, 14, 14])
    """
    found = pictures
    for axis in (-2, -1):
        size = pictures.shape[axis]
        most = size // MOVED
        by = torch.randint(-most, most + 1, (len(pictures), 1), generator=generator)
        at = (torch.arange(size) + by).clamp(0, size - 1).to(pictures.device)
        shape = [len(pictures), *[1] * (pictures.ndim - 1)]
        shape[axis] = size
        found = found.gather(pictures.ndim + axis, at.view(shape).expand(pictures.shape))
    return found


def start_seed(seed: int, start: int) -> int:
    """The seed of one of the starts of a run with this seed; the first has that of the run."""
    return seed + 1_000_003 * start


def kept_open(model: Model, data: Mapping[str, Any], share: float, *, generator: Generator = None) -> Tensor:
    """What keeps all worlds open that fit: a share of `OPEN` times the diversity; 0 where reasoning is not exact."""
    if not isinstance(model.semantics, Exact | Auto):
        return torch.zeros(())
    try:
        return share * OPEN * model.diversity(generator=generator, **data).total
    except BudgetError:
        if isinstance(model.semantics, Exact):
            raise
        return torch.zeros(())  # it is not exact either where that is too much


def best_start(
    starts: Iterable[M],
    loss: Callable[[M], Callable[[float], Tensor]],
    optimizer: Callable[[M], torch.optim.Optimizer],
    steps: int = TRIED,
) -> M:
    """The best of some new models, after some steps: the one whose loss is the lowest in the end.

    After so many steps the better half goes on for as many more, and the best of these is returned as it is then.

    Args:
        starts: the models.
        loss: makes, for a model, what gives the loss of the next step; for all models the same batches. It takes the
            share of the steps that are left, for `kept_open`.
        optimizer: makes the optimiser of a model.
        steps: at first; at least `LAST`.

    >>> def square(model):
    ...     return lambda left: (model.weight - 1).square().sum() + (model.bias.square() - 1).square().sum()
    >>> layers = [nn.Linear(1, 1) for _ in range(3)]
    >>> found = best_start(iter(layers), square, lambda layer: torch.optim.SGD(layer.parameters(), 0.1))
    >>> round(found.weight.item(), 3)
    1.0
    """
    going = [(model, loss(model), optimizer(model)) for model in starts]
    for number, kept in enumerate(((len(going) + 1) // 2, 1)):
        ends = []
        for _, step, descent in going:
            last = []
            for i in range(steps):
                found = step(1 - (number * steps + i) / (2 * steps))
                descent.zero_grad()
                torch.autograd.backward(found)
                descent.step()
                if i >= steps - LAST:
                    last.append(found.detach())
            ends.append(torch.stack(last).double().mean().item())
        best = sorted(range(len(going)), key=ends.__getitem__)[:kept]
        going = [going[i] for i in best]
    return going[0][0]
