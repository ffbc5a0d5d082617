r"""MNIST addition with a refinement layer: digits are learnt from sums, which a Gödel step infers (Chapter 4).

The layer holds a rule :math:`x_i ∧ y_j → s_{i+j}` for each pair of digits. The truths of the digits are what the
network says, those of the sums start at 0; one minimal refinement with the Gödel t-norm and its residuum, to target 1,
makes

.. math:: s_k = \max_{i+j=k} \min(x_i, y_j).

As these do not add up to one, the loss is the cross entropy of :math:`\mathrm{softmax}(\log s)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from doxa._numerics import safe_log
from doxa.data import MNIST, Batches, digits_task, normalize
from doxa.errors import ConfigError
from doxa.logic import propositions
from doxa.problem import addition
from doxa.refine import Refine
from doxa.reproduce._experiment import Entry, descend, run_experiment
from doxa.train import Result
from doxa.train.runs._state import seeded
from doxa.train.tasks._network import digit_network
from doxa.train.tasks._settings import require_positive

__all__ = ["REFINE_ENTRIES", "RefineAdditionConfig", "addition_layer", "train_refine_addition"]

LOCAL_MINIMUM = 60.0
"""Below this accuracy of sums, in percent, a run has ended in the local minimum where most digits are off by one."""


@dataclass(frozen=True)
class RefineAdditionConfig:
    """Learn digits from sums of two of them, through a Gödel refinement layer.

    Args:
        pairs: how many pairs of training digits there are, each digit being in one of them.
        steps: batches to learn from.
        batch_size: pairs in a batch.
        learning_rate: of Adam.
        save_every: steps between two checkpoints; the last one counts.

    >>> RefineAdditionConfig(pairs=3000, steps=720).learning_rate
    0.01
    """

    pairs: int = 30_000
    steps: int = 1175
    batch_size: int = 128
    learning_rate: float = 0.01
    save_every: int = 200

    def __post_init__(self) -> None:
        require_positive(self, "pairs", "steps", "batch_size", "learning_rate", "save_every")


def addition_layer() -> Refine:
    """The layer: truths of the two digits and of the 19 sums ``(*batch, 39)``, sums at 0, to refined truths.

    >>> layer = addition_layer()
    >>> truths = torch.zeros(39)
    >>> truths[3], truths[10 + 5] = 0.9, 0.7                               # a three and a five
    >>> layer(truths)[20:].nonzero().tolist(), layer(truths)[20 + 8]
    ([[8]], tensor(0.7000))
    """
    names = [f"x{i}" for i in range(10)] + [f"y{i}" for i in range(10)] + [f"s{i}" for i in range(19)]
    atoms = propositions(" ".join(names))
    x, y, s = atoms[:10], atoms[10:20], atoms[20:]
    rules = {f"{i}+{j}": (x[i] & y[j]) >> s[i + j] for i, j in product(range(10), repeat=2)}
    return Refine(rules, "godel:r", 1.0, steps=1, atoms=atoms)


def train_refine_addition(
    config: RefineAdditionConfig, path: Path, *, seed: int, data: Path | None, progress: bool
) -> Result:
    """Train in a run folder, or go on with it, and test the network of the last step.

    Metrics of the result: ``accuracy``, the percentage of pairs of test digits whose most true refined sum is right;
    ``digit_accuracy``, of the test digits; ``off_by_one``, of those whose reading is one too high or too low;
    ``local_minimum``, 1 if the run ended where most digits are off by one, else 0.
    """
    mnist = MNIST.load(data, verify=data is None, progress=progress)
    task = digits_task(mnist, addition(1), seed=seed)
    if config.pairs > len(task):
        raise ConfigError(f"pairs is {config.pairs}, but the training digits make only {len(task)}")
    images, sums = task.images[: config.pairs], _sums(task.digits[: config.pairs])
    batches = Batches((images, sums), config.batch_size, seed=seed)
    with seeded(seed):
        network: nn.Module = digit_network()
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    layer = addition_layer()
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate, fused=True)

    def step(_: int) -> Tensor:
        images, sums = batches.next()
        log_truth = safe_log(_refined(network, layer, images))
        return descend(torch.nn.functional.cross_entropy(log_truth, sums), optimizer)

    state = {"network": network, "optimizer": optimizer, "batches": batches}
    _, result = run_experiment(
        config, path, step, state, seed=seed, log_every=20, save_every=config.save_every, progress=progress
    )
    return replace(result, metrics={**result.metrics, **_measure(network, layer, mnist)})


def _sums(digits: Tensor) -> Tensor:
    return digits.sum(-1)


def _refined(network: nn.Module, layer: Refine, images: Tensor) -> Tensor:
    """The refined truths of the sums, ``(pairs, 19)``, of images ``(pairs, 2, 28, 28)``."""
    truths = network(normalize(images.flatten(0, 1).unsqueeze(1))).softmax(-1).view(len(images), 20)
    refined: Tensor = layer(torch.cat([truths, truths.new_zeros(len(images), 19)], -1))
    return refined[:, 20:]


@torch.inference_mode()
def _measure(network: nn.Module, layer: Refine, mnist: MNIST) -> dict[str, float]:
    test = digits_task(mnist, addition(1), split="test", seed=0)
    truths = torch.cat([_refined(network, layer, part) for part in torch.split(test.images, 500)])
    images = mnist.test_images
    read = torch.cat([network(normalize(part.unsqueeze(1))).argmax(1) for part in torch.split(images, 1000)])
    labels = mnist.labels("test")
    accuracy = 100 * (truths.argmax(-1) == _sums(test.digits)).double().mean().item()
    counts = torch.bincount(10 * labels + read, minlength=100).reshape(10, 10)
    return {
        "accuracy": accuracy,
        "digit_accuracy": 100 * (read == labels).double().mean().item(),
        "off_by_one": 100 * ((read - labels).abs() == 1).double().mean().item(),
        "local_minimum": float(accuracy < LOCAL_MINIMUM),
        **{f"read {i} as {j}": float(counts[i, j]) for i, j in product(range(10), repeat=2)},
    }


def _entry(pairs: int, epochs: int, published: float) -> Entry:
    config = RefineAdditionConfig(pairs, steps=epochs * -(-pairs // 128))
    return Entry(f"refine/{pairs}", config, {"accuracy": published}, "Chapter 4")


REFINE_ENTRIES = (_entry(3_000, 30, 93.38), _entry(30_000, 5, 96.67))
