"""Training on `same` and `sum9` in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from doxa.data import MNIST, Batches, normalize
from doxa.errors import DataError
from doxa.reproduce._experiment import descend, run_experiment
from doxa.reproduce.same._config import PairsConfig
from doxa.reproduce.same._loss import PairLoss
from doxa.reproduce.same._network import PairNetwork
from doxa.train import GlobalRandom, Result, Run
from doxa.train.runs._state import seeded

__all__ = ["MEASURES", "train_pairs"]

MEASURES = ("cons", "cu_cons", "cu_ant")
"""The consequent ratio, and how much of what moves consequents and antecedents moves them rightly."""
LOG_EVERY = 100
SPLIT = 1
"""The seed of the split into labelled and unlabelled images, which is one for all runs."""


def train_pairs(config: PairsConfig, path: Path, *, seed: int, data: Path | None, progress: bool) -> Result:
    """Do one run, or go on with it.

    Args:
        config: what to do.
        path: the run folder.
        seed: of the first parameters, the order of the images, dropout, and the pairs that are drawn.
        data: a folder with idx files of the user's own, in place of MNIST.
        progress: show how far it is.

    Returns:
        The accuracy on the test images in percent after the last step, and the measures, averaged over the second half
        of the run.
    """
    mnist = MNIST.load(data, verify=data is None, progress=progress)
    if config.labelled >= len(mnist.train_labels):
        raise DataError(f"{len(mnist.train_labels)} training images cannot have {config.labelled} labelled among them")
    chosen, rest = mnist.split(config.labelled, seed=SPLIT)
    labelled, unlabelled = (
        Batches((mnist.train_images[rows], mnist.train_labels[rows]), config.batch_size, seed=2 * seed + part)
        for part, rows in enumerate((chosen, rest))
    )
    test_images, test_labels = mnist.images("test"), mnist.labels("test")
    with seeded(seed):
        network = PairNetwork()
        loss = PairLoss(network, config)
        optimizer = _optimizer(network, config)

        def step(number: int) -> Mapping[str, float | Tensor]:
            network.train()
            images, labels = labelled.next()
            others, hidden = unlabelled.next() if config.weight else (images[:0], labels[:0])
            parts = loss(_input(images), labels, _input(others))
            metrics: dict[str, float | Tensor] = {
                "cross_entropy": parts.cross_entropy.detach(),
                "relation": parts.relation.detach(),
                "knowledge": parts.knowledge.detach(),
            }
            if (number + 1) % LOG_EVERY == 0 or number + 1 == config.steps:
                metrics |= loss.measures(parts, hidden)
            return {"loss": descend(parts.loss, optimizer), **metrics}

        state = {"network": network, "optimizer": optimizer, "labelled": labelled, "unlabelled": unlabelled}
        run, result = run_experiment(
            config,
            path,
            step,
            {**state, "random": GlobalRandom()},
            seed=seed,
            evaluate=lambda: {"accuracy": accuracy(network, test_images, test_labels)},
            log_every=LOG_EVERY,
            evaluate_every=config.evaluate_every,
            progress=progress,
        )
    final = {name: value for name, value in result.metrics.items() if name not in MEASURES}
    return replace(result, metrics={**final, **second_half(run, config.steps)})


def second_half(run: Run, steps: int) -> dict[str, float]:
    """The measures, averaged over the second half of a run; those that never had a gradient are left out."""
    lines = [line for line in run.metrics() if 2 * line["step"] > steps]
    found = {name: [line[name] for line in lines if name in line] for name in MEASURES}
    return {name: sum(values) / len(values) for name, values in found.items() if values}


@torch.no_grad()
def accuracy(network: PairNetwork, images: Tensor, labels: Tensor) -> float:
    """How many of a hundred digits are read correctly, without dropout."""
    network.eval()
    guesses = torch.cat([network(some)[0].argmax(1) for some in torch.split(images, 1000)])
    return 100 * int((guesses == labels).sum()) / len(labels)


def _input(grey: Tensor) -> Tensor:
    return normalize(grey).unsqueeze(1)


def _optimizer(network: nn.Module, config: PairsConfig) -> torch.optim.Optimizer:
    if config.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), lr=config.learning_rate, momentum=config.momentum, fused=True)
    return torch.optim.Adam(network.parameters(), lr=config.learning_rate, fused=True)
