"""Handwritten digits as the experiments read them: one network, rows of images, and ways to make sums of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from doxa.data import MNIST, normalize, split_indices
from doxa.problem import Belief, Problem
from doxa.train.tasks._network import digit_network

PAIRINGS = 100
"""Accuracies are averages over so many ways to make sums of the test digits, each digit being in one sum of each."""


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
