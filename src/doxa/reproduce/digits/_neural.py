"""Addition and Sudoku by a network that knows nothing: what there is to be gained by reasoning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from doxa.data import MNIST, Batches, digits_task, normalize, sudoku_problem, visual_sudoku
from doxa.problem import addition
from doxa.reproduce._experiment import Entry, descend, run_experiment
from doxa.reproduce.addition._exact import pairings, reference
from doxa.reproduce.digits._baselines import DigitsBaseline
from doxa.train import Result
from doxa.train.runs._state import seeded
from doxa.train.tasks._settings import require_one_of, require_positive

NeuralTask = Literal["addition", "sudoku"]
PAIRINGS = 10
"""Accuracies of sums are averages over so many ways to make them of the test digits."""


@dataclass(frozen=True)
class NeuralConfig:
    """Learn the sum of two numbers, or whether a grid is a Sudoku, straight from the images.

    Args:
        task: what to learn.
        size: the digits of each number, or the cells on a side of a grid.
        steps: batches to learn from.
        batch_size: rows in a batch.
        learning_rate: of Adam.
        hidden: the width of the layer that joins what is seen in the images.
        puzzles: grids to train on, and as many to test on; half of them are correct.
        save_every: steps between two checkpoints; the last one counts.

    >>> NeuralConfig("sudoku", 9).puzzles
    200
    """

    task: NeuralTask = "addition"
    size: int = 1
    steps: int = 3000
    batch_size: int = 64
    learning_rate: float = 1e-3
    hidden: int = 256
    puzzles: int = 200
    save_every: int = 500

    def __post_init__(self) -> None:
        require_one_of(self, "task", NeuralTask)
        require_positive(self, "size", "steps", "batch_size", "learning_rate", "hidden", "puzzles", "save_every")


def train_neural(config: NeuralConfig, path: Path, *, seed: int, data: Path | None, progress: bool) -> Result:
    """Train in a run folder, or go on with it.

    Metrics of the result: ``accuracy``, of the last network on test data in percent, and ``loss``, the cross entropy of
    the last batch in nats.
    """
    mnist = MNIST.load(data, verify=data is None, progress=progress)
    problem = addition(config.size) if config.task == "addition" else sudoku_problem(config.size)
    if config.task == "addition":
        task = digits_task(mnist, problem, seed=seed)
        images, outputs = task.images, task.outputs
        ways = islice(pairings(mnist, problem), PAIRINGS)
        tests = [(mnist.test_images[rows], problem(mnist.labels("test")[rows])) for rows in ways]
    else:
        known, unknown = visual_sudoku(mnist, config.size, puzzles=config.puzzles, seed=seed)
        images, outputs = known.images, known.correct.long().unsqueeze(1)
        tests = [(unknown.images, unknown.correct.long().unsqueeze(1))]
    batches = Batches((images, outputs), min(config.batch_size, len(images)), seed=seed, drop_last=True)
    with seeded(seed):
        network = DigitsBaseline(problem, config.hidden)
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate, fused=True)

    def step(i: int) -> Tensor:
        rows, labels = batches.next()
        return descend(network.loss(normalize(rows), labels), optimizer)

    state = {"network": network, "optimizer": optimizer, "batches": batches}
    _, result = run_experiment(config, path, step, state, seed=seed, save_every=config.save_every, progress=progress)
    right = [
        torch.cat([(network.predict(normalize(x)) == y).all(-1) for x, y in _parts(*test)]).double().mean().item()
        for test in tests
    ]
    return replace(result, metrics={**result.metrics, "accuracy": 100 * sum(right) / len(right)})


def _parts(images: Tensor, outputs: Tensor) -> zip[tuple[Tensor, Tensor]]:
    return zip(torch.split(images, 100), torch.split(outputs, 100), strict=True)


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
