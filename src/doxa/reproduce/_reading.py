"""Handwritten digits as the experiments read them, and a network that knows nothing: what reasoning gains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from doxa.data import MNIST, Batches, digits_task, normalize, split_indices, sudoku_problem, visual_sudoku
from doxa.problem import Belief, Problem, addition
from doxa.reproduce._experiment import Entry, Given, Settings, Training, descend
from doxa.train.tasks._network import digit_network

PAIRINGS = 100
"""Accuracies are averages over so many ways to make sums of the test digits, each digit being in one sum of each."""
FEWER_PAIRINGS = 10
"""Of the network that knows nothing, over so many of them."""


def perception(values: int = 10) -> nn.Sequential:
    """The network that reads digits below ``values``; channels last, which is twice as fast for so few of them."""
    network = digit_network()
    if values != 10:
        network[-1] = nn.Linear(84, values)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def believe(network: nn.Module, images: Tensor) -> Belief:
    """What a network believes of rows of grey images ``(rows, K, 28, 28)``."""
    logits: Tensor = network(normalize(images.flatten(0, 1).unsqueeze(1)))
    return Belief.from_logits(torch.unflatten(logits, 0, images.shape[:2]))


def read(network: nn.Module, images: Tensor) -> Tensor:
    """The logits of grey images ``(n, 28, 28)``, a thousand at a time."""
    return torch.cat([network(normalize(part.unsqueeze(1))) for part in torch.split(images, 1000)])


def percent(right: Tensor) -> float:
    """How many of a hundred are right."""
    return 100 * right.double().mean().item()


def held_out(mnist: MNIST, count: int, *, seed: int) -> MNIST:
    """MNIST's training digits alone, of which so many are for testing; with 0, MNIST as it is."""
    if not count:
        return mnist
    tested, rest = split_indices(len(mnist.train_labels), count, seed=seed)
    images, labels = mnist.train_images, mnist.train_labels
    return MNIST(images[rest], labels[rest], images[tested], labels[tested])


def shifted(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Images ``(..., h, w)``, each moved by its own whole number of pixels; what comes in at the border is 0."""
    if not most:
        return images
    height, width = images.shape[-2:]
    flat = nn.functional.pad(images.reshape(-1, height, width), [most] * 4)
    moves = torch.randint(2 * most + 1, (2, len(flat), 1), generator=generator)
    rows, columns = moves[0] + torch.arange(height), moves[1] + torch.arange(width)
    places = rows.unsqueeze(2) * flat.shape[2] + columns.unsqueeze(1)
    return flat.flatten(1).gather(1, places.flatten(1)).view(images.shape)


def pairings(mnist: MNIST, problem: Problem) -> Iterator[Tensor]:
    """Ways to make sums of the test digits: int64 ``(sums, 2N)``, which digits."""
    count, width = len(mnist.test_labels), len(problem.world)
    for seed in range(PAIRINGS):
        yield split_indices(count, count // width * width, seed=seed)[0].reshape(-1, width)


def reference(digits: int) -> str:
    """What to compare with: a network that reads 99 of 100 digits right adds up so many in a hundred sums."""
    return f"0.99^{2 * digits}: {100 * 0.99 ** (2 * digits):.2f}"


class DigitsBaseline(nn.Module):
    """A purely neural answer to `doxa.data.digits_task`: the images are read by one network, their features joined.

        L = - Σ_j log softmax(g(f(x_1), …, f(x_K)))_j[y_j],

    with f the network that perceives digits, without its last layer, and g two linear layers. It must learn the
    function as well as the digits; whatever reasons is to be compared with it.

    Args:
        problem: the function; only the numbers of its values are looked at.
        hidden: the width of g.
    """

    def __init__(self, problem: Problem, hidden: int = 256) -> None:
        super().__init__()
        self.sizes = problem.output
        self.features = digit_network()[:-1]
        self.join = nn.Sequential(
            nn.Linear(84 * len(problem.world), hidden), nn.ReLU(), nn.Linear(hidden, sum(problem.output))
        )

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """The logits of each output, ``(n, values)``, from normalised images ``(n, K, 28, 28)``."""
        features = self.features(images.reshape(-1, 1, *images.shape[-2:])).reshape(len(images), -1)
        logits: Tensor = self.join(features)
        return torch.split(logits, list(self.sizes), -1)

    def loss(self, images: Tensor, outputs: Tensor) -> Tensor:
        """The cross entropy of all outputs ``(n, Y)``, averaged over the rows."""
        found = self(images)
        return torch.stack([cross_entropy(x, y) for x, y in zip(found, outputs.unbind(-1), strict=True)]).sum()

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """The most probable value of each output, int64 ``(n, Y)``."""
        return torch.stack([x.argmax(-1) for x in self(images)], -1)


@dataclass(frozen=True)
class NeuralConfig(Settings):
    """Learn the sum of two numbers, or whether a grid is a Sudoku, straight from the images."""

    task: Literal["addition", "sudoku"] = "addition"  # what to learn
    size: int = 1  # the digits of each number, or the cells on a side of a grid
    steps: int = 3000  # batches to learn from
    batch_size: int = 64  # rows in a batch
    learning_rate: float = 1e-3  # of Adam
    hidden: int = 256  # the width of the layer that joins what is seen in the images
    puzzles: int = 200  # grids to train on, and as many to test on; half of them are correct
    save_every: int = 500  # steps between two checkpoints; the last one counts

    def training(self, given: Given) -> Training:
        mnist = given.mnist()
        problem = addition(self.size) if self.task == "addition" else sudoku_problem(self.size)
        if self.task == "addition":
            task = digits_task(mnist, problem, seed=given.seed)
            images, outputs = task.images, task.outputs
            ways = islice(pairings(mnist, problem), FEWER_PAIRINGS)
            tests = [(mnist.test_images[rows], problem(mnist.labels("test")[rows])) for rows in ways]
        else:
            known, unknown = visual_sudoku(mnist, self.size, puzzles=self.puzzles, seed=given.seed)
            images, outputs = known.images, known.correct.long().unsqueeze(1)
            tests = [(unknown.images, unknown.correct.long().unsqueeze(1))]
        batches = Batches((images, outputs), min(self.batch_size, len(images)), seed=given.seed, drop_last=True)
        network = DigitsBaseline(problem, self.hidden)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)

        def step(i: int) -> Tensor:
            rows, labels = batches.next()
            return descend(network.loss(normalize(rows), labels), optimizer)

        def right(images: Tensor, outputs: Tensor) -> float:
            found = torch.cat([network.predict(normalize(part)) for part in torch.split(images, 100)])
            return (found == outputs).all(-1).double().mean().item()

        return Training(
            step,
            {"network": network, "optimizer": optimizer, "batches": batches},
            lambda run: {"accuracy": 100 * sum([right(*test) for test in tests]) / len(tests)},
        )


NEURAL_ADDITION = tuple(
    Entry(f"neural/n-{digits}", NeuralConfig("addition", digits, steps=steps), {}, reference(digits))
    for digits, steps in ((1, 9380), (2, 4680), (4, 2340), (15, 620))
)
"""20 epochs each."""
NEURAL_SUDOKU = tuple(
    Entry(
        f"neural/{size}x{size}",
        NeuralConfig("sudoku", size, steps=1000, batch_size=20),
        {"accuracy": published},
        "a CNN, Chapter 6",
    )
    for size, published in ((4, 51.5), (9, 51.2))
)
"""100 epochs each."""
