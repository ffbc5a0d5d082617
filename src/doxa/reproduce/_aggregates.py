"""Digits learnt from what is computed of many of them: sums and maxima of lists, the cheapest way through a grid.

A list has 2 to 10 images, and every training digit is in one list. Only the sum of its digits is told, or the greatest:

    forall l in lists. (sum x in l.images. digit(x)) = l.value

A grid has n × n images of digits below 5. What is told is the least sum of digits on a way from the first to the last
cell that goes right or down; the cost of a cell is its digit plus the lesser of the costs before it. Learning is by
exact inference up to 3 × 3, and by sampling beyond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from doxa.data import MNIST, Batches, normalize
from doxa.errors import DataError
from doxa.logic import Ragged, logits
from doxa.reproduce._digits import held_out, percent, perception, read
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, descend, train
from doxa.semantics import Exact, Model, Sampled, Semantics
from doxa.stochastic import LeaveOneOut

SHORTEST, LONGEST = 2, 10
LISTS = """
sort Image
sort Digit = 0..9
func digit(Image) -> Digit
data lists(images: Image*, value: Int)
[value] forall l in lists. ({kind} x in l.images. digit(x)) = l.value
"""
GRIDS = """
sort Image
sort Digit = 0..{last}
sort Way = 0..1
func digit(Image) -> Digit
data grids(cells: Image*, cost: Int)
[cost] forall g in grids. {cost} = g.cost
"""


@dataclass(frozen=True)
class ListsConfig(Settings):
    """Learn digits from the sums or the maxima of lists, by -log p(value) computed exactly."""

    kind: Literal["sum", "max"] = "sum"
    steps: int = 600  # batches to learn from
    batch_size: int = 32  # lists in a batch
    learning_rate: float = 1e-3  # of Adam at its highest
    warmup: int = 30
    decay: int = 600
    validation: int = 0  # so many training digits are held out and measured in place of the test digits
    evaluate_every: int = 600

    def training(self, given: Given) -> Training:
        mnist = held_out(given.mnist(), self.validation, seed=given.seed)
        images, values = lists(mnist.train_images, mnist.train_labels, self.kind, given.seed)
        batches = Batches((torch.arange(len(values)),), self.batch_size, seed=given.seed, drop_last=True)
        network = perception()
        model = Model(LISTS.format(kind=self.kind), "exact", digit=logits(network))
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)

        def step(i: int) -> Tensor:
            (rows,) = batches.next()
            loss = model.loss(lists={"images": seen(images[rows]), "value": values[rows]})
            return descend(loss, optimizer, rate=self.rate(self.learning_rate, i))

        state = {"network": network, "optimizer": optimizer, "batches": batches}
        return Training(step, state, lambda run: measure_lists(network, model, mnist, self.kind))


def lists(images: Tensor, labels: Tensor, kind: str, seed: int) -> tuple[Ragged, Tensor]:
    """Each image in one list of 2 to 10, a few left over; and the sum or the maximum of each list.

    >>> drawn, values = lists(torch.arange(50), torch.arange(50) % 10, "max", 0)
    >>> len(drawn) == len(values), int(drawn.lengths.min()) >= 2, int(drawn.lengths.max()) <= 10
    (True, True, True)
    """
    random = torch.Generator().manual_seed(seed)
    if len(images) < LONGEST:
        raise DataError(f"{len(images)} images make no lists of {SHORTEST} to {LONGEST}")
    lengths = torch.randint(SHORTEST, LONGEST + 1, (len(images) // SHORTEST,), generator=random)
    lengths = lengths[lengths.cumsum(0) <= len(images)]
    order = torch.randperm(len(images), generator=random)[: int(lengths.sum())]
    parts = torch.split(labels[order], lengths.tolist())
    return Ragged(images[order], lengths), torch.stack([_aggregate(kind, part) for part in parts])


def _aggregate(kind: str, digits: Tensor) -> Tensor:
    return digits.sum() if kind == "sum" else digits.max()


def seen(images: Ragged) -> Ragged:
    """Grey images as the network sees them."""
    return Ragged(normalize(images.values.unsqueeze(1)), images.lengths)


@torch.no_grad()
def measure_lists(network: nn.Module, model: Model, mnist: MNIST, kind: str) -> dict[str, float]:
    """In percent: ``accuracy`` of the most probable values of lists of test digits; ``one_by_one``, of the values of
    digits read one by one; ``digit_accuracy``, of the digits; and ``accuracy`` of lists of each length.
    """
    network.eval()
    images, values = lists(mnist.test_images, mnist.test_labels, kind, 0)
    places, _ = lists(torch.arange(len(mnist.test_labels)), mnist.test_labels, kind, 0)
    digits = read(network, mnist.test_images).argmax(1)
    parts = torch.split(digits[places.values], images.lengths.tolist())
    guesses = torch.stack([_aggregate(kind, part) for part in parts])
    found = []
    for rows in torch.split(torch.arange(len(values)), 200):
        prediction = model.predict("lists.value", lists={"images": seen(images[rows])})
        found.append(prediction.values)
    right = torch.cat(found) == values
    network.train()
    by_length = {f"length_{n}": percent(right[images.lengths == n]) for n in range(SHORTEST, LONGEST + 1)}
    return {
        "accuracy": percent(right),
        "one_by_one": percent(guesses == values),
        "digit_accuracy": percent(digits == mnist.labels("test")),
        **by_length,
    }


@dataclass(frozen=True)
class GridsConfig(Settings):
    """Learn digits from what the cheapest way through a grid of them costs."""

    size: int = 3  # of a side
    values: int = 5  # digits below this one
    how: Literal["exact", "sampled"] = "exact"
    samples: int = 64  # worlds drawn for each grid, by sampling
    steps: int = 300
    batch_size: int = 32  # grids in a batch
    learning_rate: float = 1e-3  # of Adam at its highest
    warmup: int = 30
    decay: int = 300
    validation: int = 0  # so many training digits are held out and measured in place of the test digits
    evaluate_every: int = 300

    def training(self, given: Given) -> Training:
        mnist = held_out(given.mnist(), self.validation, seed=given.seed)
        images, costs = grids(mnist.train_images, mnist.train_labels, self.size, self.values, given.seed)
        batches = Batches((images, costs), self.batch_size, seed=given.seed, drop_last=True)
        network = perception(self.values)
        how: Semantics = Exact() if self.how == "exact" else Sampled(LeaveOneOut(self.samples))
        model = Model(grid_knowledge(self.size, self.values), how, digit=logits(network))
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)
        noise = torch.Generator().manual_seed(given.seed)

        def step(i: int) -> Tensor:
            cells, cost = batches.next()
            grey = normalize(cells.flatten(0, 1).unsqueeze(1))
            data = {"cells": grey.reshape(*cells.shape[:2], *grey.shape[1:]), "cost": cost}
            loss = model.loss(grids=data, generator=noise)
            return descend(loss, optimizer, rate=self.rate(self.learning_rate, i))

        state = {"network": network, "optimizer": optimizer, "batches": batches, "noise": noise}
        return Training(step, state, lambda run: measure_grids(network, mnist, self.size, self.values))


def grid_knowledge(size: int, values: int) -> str:
    """What a way costs: for each cell its digit, and the lesser of what the cells above and to the left cost."""

    def cost(row: int, column: int) -> str:
        digit = f"digit(g.cells[{row * size + column}])"
        if row == column == 0:
            return digit
        if row == 0 or column == 0:
            before = cost(0, column - 1) if row == 0 else cost(row - 1, 0)
        else:
            way = f"k{row}{column}"  # 1 from above, 0 from the left
            before = f"(min {way}: Way. {cost(row - 1, column)} * {way} + {cost(row, column - 1)} * (1 - {way}))"
        return f"({before} + {digit})"

    return GRIDS.format(last=values - 1, cost=cost(size - 1, size - 1))


def cheapest(digits: Tensor, size: int) -> Tensor:
    """The cost of the cheapest way through each grid ``(n, size²)``.

    >>> cheapest(torch.tensor([[1, 5, 0, 2], [1, 0, 5, 2]]), 2)
    tensor([3, 3])
    """
    grid = digits.view(-1, size, size)
    costs: dict[tuple[int, int], Tensor] = {}
    for i in range(size):
        for j in range(size):
            before = [costs[at] for at in ((i - 1, j), (i, j - 1)) if at in costs]
            costs[i, j] = grid[:, i, j] + (torch.stack(before).amin(0) if before else 0)
    return costs[size - 1, size - 1]


def grids(images: Tensor, labels: Tensor, size: int, values: int, seed: int) -> tuple[Tensor, Tensor]:
    """Each image of a digit below ``values`` in one grid ``(n, size², 28, 28)``; and what the cheapest way costs."""
    few = (labels < values).nonzero().squeeze(1)
    order = few[torch.randperm(len(few), generator=torch.Generator().manual_seed(seed))]
    order = order[: len(order) // size**2 * size**2].view(-1, size**2)
    return images[order], cheapest(labels[order].long(), size)


@torch.no_grad()
def measure_grids(network: nn.Module, mnist: MNIST, size: int, values: int) -> dict[str, float]:
    """In percent: ``accuracy`` of the costs of grids of test digits read one by one, and ``digit_accuracy``."""
    network.eval()
    images, costs = grids(mnist.test_images, mnist.test_labels, size, values, 0)
    digits = read(network, images.flatten(0, 1)).argmax(1)
    labels = mnist.labels("test")
    few = labels < values
    right = read(network, mnist.test_images[few]).argmax(1) == labels[few]
    network.train()
    return {"accuracy": percent(cheapest(digits, size) == costs), "digit_accuracy": percent(right)}


Config = ListsConfig | GridsConfig
ENTRIES: Mapping[str, Config] = {
    "lists/sum": ListsConfig("sum"),
    "lists/max": ListsConfig("max"),
    "grids/exact-2": GridsConfig(2),
    "grids/exact-3": GridsConfig(3),
    "grids/sampled-3": GridsConfig(3, how="sampled"),
    "grids/sampled-4": GridsConfig(4, how="sampled"),
}
AGGREGATES = Experiment(
    name="aggregates",
    about="Digits learnt from sums and maxima of lists, and from the cheapest ways through grids",
    entries=tuple(Entry(name, config) for name, config in ENTRIES.items()),
    train=train,
    metrics=("accuracy", "one_by_one", "digit_accuracy"),
)
