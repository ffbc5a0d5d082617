r"""MNIST addition with a refinement layer: digits are learnt from sums, which a Gödel step infers (Chapter 4).

The layer holds a rule :math:`x_i ∧ y_j → s_{i+j}` for each pair of digits. The truths of the digits are what the
network says, those of the sums start at 0; one minimal refinement with the Gödel t-norm and its residuum, to target 1,
makes

.. math:: s_k = \max_{i+j=k} \min(x_i, y_j).

As these do not add up to one, the loss is the cross entropy of :math:`\mathrm{softmax}(\log s)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from doxa._numerics import safe_log
from doxa.data import MNIST, Batches, digits_task, normalize
from doxa.errors import ConfigError
from doxa.logic import propositions
from doxa.problem import addition
from doxa.refine import Refine
from doxa.reproduce._experiment import Entry, Given, Settings, Training, descend
from doxa.reproduce.digits._reading import percent, perception, read

LOCAL_MINIMUM = 60.0
"""Below this accuracy of sums, in percent, a run has ended in the local minimum where most digits are off by one."""


@dataclass(frozen=True)
class RefineAdditionConfig(Settings):
    """Learn digits from sums of two of them, through a Gödel refinement layer.

    >>> RefineAdditionConfig(pairs=3000, steps=720).learning_rate
    0.01
    """

    pairs: int = 30_000  # how many pairs of training digits there are, each digit being in one of them
    steps: int = 1175  # batches to learn from
    batch_size: int = 128  # pairs in a batch
    learning_rate: float = 0.01  # of Adam
    save_every: int = 200  # steps between two checkpoints; the last one counts

    def training(self, given: Given) -> Training:
        mnist = given.mnist()
        task = digits_task(mnist, addition(1), seed=given.seed)
        if self.pairs > len(task):
            raise ConfigError(f"pairs is {self.pairs}, but the training digits make only {len(task)}")
        rows = (task.images[: self.pairs], task.digits[: self.pairs].sum(-1))
        batches = Batches(rows, self.batch_size, seed=given.seed)
        network, layer = perception(), addition_layer()
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)

        def step(_: int) -> Tensor:
            images, sums = batches.next()
            return descend(cross_entropy(safe_log(_refined(network, layer, images)), sums), optimizer)

        state = {"network": network, "optimizer": optimizer, "batches": batches}
        return Training(step, state, lambda run: _measure(network, layer, mnist), log_every=20)


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


def _refined(network: nn.Module, layer: Refine, images: Tensor) -> Tensor:
    """The refined truths of the sums, ``(pairs, 19)``, of images ``(pairs, 2, 28, 28)``."""
    truths = network(normalize(images.flatten(0, 1).unsqueeze(1))).softmax(-1).view(len(images), 20)
    refined: Tensor = layer(torch.cat([truths, truths.new_zeros(len(images), 19)], -1))
    return refined[:, 20:]


@torch.inference_mode()
def _measure(network: nn.Module, layer: Refine, mnist: MNIST) -> dict[str, float]:
    """``accuracy``: the percentage of pairs of test digits whose most true refined sum is right; ``digit_accuracy``: of
    the test digits; ``off_by_one``: of those whose reading is one too high or too low; ``local_minimum``: 1 if the run
    ended where most digits are off by one, else 0; and how often each digit is read as each.
    """
    test = digits_task(mnist, addition(1), split="test", seed=0)
    truths = torch.cat([_refined(network, layer, part) for part in torch.split(test.images, 500)])
    seen, labels = read(network, mnist.test_images).argmax(1), mnist.labels("test")
    accuracy = percent(truths.argmax(-1) == test.digits.sum(-1))
    counts = torch.bincount(10 * labels + seen, minlength=100).tolist()
    return {
        "accuracy": accuracy,
        "digit_accuracy": percent(seen == labels),
        "off_by_one": percent((seen - labels).abs() == 1),
        "local_minimum": float(accuracy < LOCAL_MINIMUM),
        **{f"read {k // 10} as {k % 10}": float(count) for k, count in enumerate(counts)},
    }


def _entry(pairs: int, epochs: int, published: float) -> Entry:
    config = RefineAdditionConfig(pairs, steps=epochs * -(-pairs // 128))
    return Entry(f"refine/{pairs}", config, {"accuracy": published}, "Chapter 4")


REFINE_ENTRIES = (_entry(3_000, 30, 93.38), _entry(30_000, 5, 96.67))
