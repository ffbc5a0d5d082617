"""MNIST addition with exact inference: digits are learnt from sums alone (Chapter 6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from doxa.data import MNIST, Batches, digits_task, normalize, split_indices
from doxa.exact import Elimination
from doxa.problem import Belief, Problem, addition
from doxa.reproduce._experiment import Entry, descend, moving_average, run_experiment
from doxa.train import Result
from doxa.train.runs._state import seeded
from doxa.train.tasks._network import digit_network
from doxa.train.tasks._settings import half_cosine, require_decay, require_nonnegative, require_positive

PAIRINGS = 100
"""Accuracies are averages over so many ways to make sums of the test digits, each digit being in one sum of each."""


@dataclass(frozen=True)
class ExactAdditionConfig:
    """Learn digits from sums of two numbers, by -log p(sum) computed exactly.

    Args:
        digits: N, of each number; the training digits make 60,000 / 2N sums, each digit being in one of them.
        steps: batches to learn from.
        batch_size: sums in a batch.
        learning_rate: of AdamW at its highest.
        warmup: so many steps in which the learning rate rises to it along a line.
        decay: the step at which it has fallen to 0, along half a cosine.
        weight_decay: of AdamW.
        average: decay of the moving average of the parameters that is tested.
        shift: each training image is moved by at most so many pixels up or down and left or right, anew every time.
        validation: so many training digits are held out and measured instead of the test digits, to choose settings.
        save_every: steps between two checkpoints; the last one counts.

    >>> ExactAdditionConfig(digits=4).validation
    0
    """

    digits: int = 1
    steps: int = 10_000
    batch_size: int = 64
    learning_rate: float = 1e-3
    warmup: int = 500
    decay: int = 10_000
    weight_decay: float = 0.01
    average: float = 0.999
    shift: int = 0
    validation: int = 0
    save_every: int = 1000

    def __post_init__(self) -> None:
        require_positive(self, "digits", "steps", "batch_size", "learning_rate", "warmup", "decay", "save_every")
        require_nonnegative(self, "weight_decay", "validation", "shift")
        require_decay(self, "average")

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return self.learning_rate * min(1.0, (step + 1) / self.warmup) * half_cosine(step, self.decay)


def train_exact_addition(
    config: ExactAdditionConfig, path: Path, *, seed: int, data: Path | None, progress: bool
) -> Result:
    """Train in a run folder, or go on with it, and test the moving average of the parameters at the last step.

    Metrics of the result, in percent of the test digits' sums: ``accuracy``, those whose digits read one by one add up
    right, averaged over 100 ways to make sums of them; ``first_pairing``, the same for the first of these ways;
    ``most_probable``, for that one, those whose most probable sum under the belief is right. ``digit_accuracy`` is in
    percent of the test digits. ``loss`` is -log p(sum) of the last batch, in nats.
    """
    mnist = MNIST.load(data, verify=data is None, progress=progress)
    if config.validation:
        mnist = held_out(mnist, config.validation, seed=seed)
    problem = addition(config.digits)
    reasoner = Elimination(problem)
    task = digits_task(mnist, problem, seed=seed)
    batches = Batches((task.images, task.outputs), min(config.batch_size, len(task)), seed=seed, drop_last=True)
    with seeded(seed):
        network = digit_network()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # twice as fast for so few channels
    average = moving_average(network, config.average)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )

    noise = torch.Generator().manual_seed(seed)

    def step(i: int) -> Tensor:
        images, sums = batches.next()
        if config.shift:
            images = shifted(images, config.shift, noise)
        logits = network(normalize(images.flatten(0, 1).unsqueeze(1))).view(*images.shape[:2], 10)
        loss = reasoner.loss(Belief.from_logits(logits), sums).mean()
        loss = descend(loss, optimizer, rate=config.rate(i))
        average.update_parameters(network)
        return loss

    state = {"network": network, "average": average, "optimizer": optimizer, "batches": batches, "noise": noise}
    _, result = run_experiment(config, path, step, state, seed=seed, save_every=config.save_every, progress=progress)
    return replace(result, metrics={**result.metrics, **measure(average, mnist, reasoner)})


def held_out(mnist: MNIST, count: int, *, seed: int) -> MNIST:
    """MNIST's training digits alone, of which so many are for testing."""
    tested, rest = split_indices(len(mnist.train_labels), count, seed=seed)
    images, labels = mnist.train_images, mnist.train_labels
    return MNIST(images[rest], labels[rest], images[tested], labels[tested])


def shifted(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Images ``(..., h, w)``, each moved by its own whole number of pixels; what comes in at the border is 0.

    >>> images = torch.eye(3).expand(100, 3, 3)
    >>> sorted(shifted(images, 1, torch.Generator().manual_seed(0)).sum((1, 2)).unique().tolist())
    [1.0, 2.0, 3.0]
    """
    height, width = images.shape[-2:]
    flat = nn.functional.pad(images.reshape(-1, height, width), [most] * 4)
    moves = torch.randint(2 * most + 1, (2, len(flat), 1), generator=generator)
    rows, columns = moves[0] + torch.arange(height), moves[1] + torch.arange(width)
    places = rows.unsqueeze(2) * flat.shape[2] + columns.unsqueeze(1)
    return flat.flatten(1).gather(1, places.flatten(1)).view(images.shape)


@torch.inference_mode()
def measure(network: nn.Module, mnist: MNIST, reasoner: Elimination) -> dict[str, float]:
    """The accuracies of a network that reads digits, in percent."""
    problem = reasoner.problem
    logits = torch.cat([network(normalize(part.unsqueeze(1))) for part in torch.split(mnist.test_images, 1000)])
    read, labels = logits.argmax(1), mnist.labels("test")
    right = [
        (problem(read[rows]) == problem(labels[rows])).all(-1).double().mean() for rows in pairings(mnist, problem)
    ]
    first = next(pairings(mnist, problem))
    predicted = reasoner.predict(Belief.from_logits(logits[first]))
    return {
        "accuracy": 100 * torch.stack(right).mean().item(),
        "first_pairing": 100 * right[0].item(),
        "most_probable": 100 * (predicted == problem(labels[first])).all(-1).double().mean().item(),
        "digit_accuracy": 100 * (read == labels).double().mean().item(),
    }


def pairings(mnist: MNIST, problem: Problem) -> Iterator[Tensor]:
    """Ways to make sums of the test digits: int64 ``(sums, 2N)``, which digits."""
    count, width = len(mnist.test_labels), len(problem.world)
    for seed in range(PAIRINGS):
        yield split_indices(count, count // width * width, seed=seed)[0].reshape(-1, width)


def reference(digits: int) -> str:
    """What to compare with: a network that reads 99 of 100 digits right adds up so many in a hundred sums.

    >>> reference(15)
    '0.99^30: 73.97'
    """
    return f"0.99^{2 * digits}: {100 * 0.99 ** (2 * digits):.2f}"


def _entry(digits: int, epochs: int, batch_size: int, published: float | None, shift: int = 0) -> Entry:
    steps = epochs * (60_000 // (2 * digits) // batch_size)
    return Entry(
        f"exact/n-{digits}" + "-shifted" * bool(shift),
        ExactAdditionConfig(digits, steps, batch_size, warmup=steps // 20, decay=steps, shift=shift),
        {} if published is None else {"accuracy": published},
        reference(digits) if published is None else f"A-NeSI; {reference(digits)}",
    )


EXACT_ENTRIES = (
    _entry(1, 60, 64, 97.66),
    _entry(2, 60, 32, 96.04),
    _entry(4, 80, 32, 92.56),
    _entry(15, 100, 16, 76.84),
    _entry(15, 100, 16, 76.84, shift=2),
    _entry(50, 100, 8, None),
)
