r"""MNIST addition by Logic Tensor Networks: the row that Chapter 4 sets beside refinement.

One axiom says that two digits with the right sum can be read from the two images,

.. math:: \forall (x, y, n)\; \exists d, e : d + e = n\; (digit(x, d) \wedge digit(y, e)),

in stable product logic. The loss is 1 minus its truth: :math:`\forall` is the p-mean error over the rows of a batch
with p = 2, :math:`\exists` the p-mean over the pairs of digits that the guard leaves, with p rising from 1 to 6
(Badreddine et al. 2022, who train so: Adam at 0.001, batches of 32, 20 epochs, their network and first weights).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from doxa.data import MNIST, Batches, digits_task
from doxa.errors import ConfigError
from doxa.fuzzy import stable_product
from doxa.logic import probs
from doxa.problem import addition
from doxa.reproduce._digits import percent
from doxa.reproduce._experiment import Entry, Given, Settings, Training, descend
from doxa.semantics import Fuzzy, Model

KNOWLEDGE = """
    sort Image
    sort Digit = 0..9
    data pairs(left: Image, right: Image, sum: Int)
    pred is(Image, Digit)
    [sum] forall p in pairs. exists d, e: Digit where d + e = p.sum. is(p.left, d) & is(p.right, e)
"""
EXPONENTS = (1.0, 2.0, 4.0, 6.0, 6.0)
"""Of the existential quantifier, in each fifth of the steps."""
LOCAL_MINIMUM = 60.0
"""Below this accuracy of sums, in percent, a run has ended in the local minimum where most digits are off by one."""


@dataclass(frozen=True)
class LTNAdditionConfig(Settings):
    """Learn digits from sums of two of them, by the truth of one axiom in stable product logic."""

    pairs: int = 30_000  # how many pairs of training digits there are, each digit being in one of them
    steps: int = 18_760  # batches to learn from
    batch_size: int = 32  # pairs in a batch
    learning_rate: float = 1e-3  # of Adam
    save_every: int = 1000  # steps between two checkpoints; the last one counts

    def training(self, given: Given) -> Training:
        mnist = given.mnist()
        task = digits_task(mnist, addition(1), seed=given.seed)
        if self.pairs > len(task):
            raise ConfigError(f"pairs is {self.pairs}, but the training digits make only {len(task)}")
        rows = (task.images[: self.pairs], task.digits[: self.pairs].sum(-1))
        batches = Batches(rows, self.batch_size, seed=given.seed)
        network = Reader()
        model = Model(KNOWLEDGE, **{"is": probs(network)})
        logics = [replace(stable_product(), exists=stable_product(p).exists) for p in EXPONENTS]
        stages = [Fuzzy(logic, quantifier="logic") for logic in logics]
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate, eps=1e-7, fused=True)

        def step(i: int) -> Tensor:
            images, sums = batches.next()
            stage = stages[min(len(stages) * i // self.steps, len(stages) - 1)]
            pairs = {"left": images[:, 0], "right": images[:, 1], "sum": sums}
            return descend(model.loss(semantics=stage, pairs=pairs), optimizer)

        state = {"network": network, "optimizer": optimizer, "batches": batches}
        return Training(step, state, lambda run: _measure(network, mnist))


class Reader(nn.Module):
    """The probabilities of ten digits ``(n, 10)``, from grey images ``(n, 28, 28)``."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((1, 6), (6, 16)):
            layers += [nn.Conv2d(inputs, outputs, 5), nn.ELU(), nn.MaxPool2d(2)]
        layers.append(nn.Flatten())
        for inputs, outputs in ((256, 100), (100, 84)):
            layers += [nn.Linear(inputs, outputs), nn.ELU()]
        self.layers = nn.Sequential(*layers, nn.Linear(84, 10), nn.Softmax(-1))
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.layers(images.unsqueeze(1).float() / 255)
        return found


@torch.inference_mode()
def _measure(network: nn.Module, mnist: MNIST) -> dict[str, float]:
    """``accuracy``: the percentage of pairs of test digits that are read so that the sum is right;
    ``digit_accuracy``: of the test digits; ``local_minimum``: 1 if most digits are read wrong, else 0."""
    labels = mnist.labels("test")
    seen = torch.cat([network(part) for part in torch.split(mnist.test_images, 1000)]).argmax(1)
    test = digits_task(mnist, addition(1), split="test", seed=0)
    read = torch.cat([network(part.flatten(0, 1)) for part in torch.split(test.images, 500)]).argmax(1).view(-1, 2)
    accuracy = percent(read.sum(-1) == test.digits.sum(-1))
    return {
        "accuracy": accuracy,
        "digit_accuracy": percent(seen == labels),
        "off_by_one": percent((seen - labels).abs() == 1),
        "local_minimum": float(accuracy < LOCAL_MINIMUM),
    }


LTN_ENTRIES = tuple(
    Entry(
        f"ltn/{pairs}",
        LTNAdditionConfig(pairs, steps=20 * -(-pairs // 32)),
        {"accuracy": published},
        "LTN, Chapter 4",
    )
    for pairs, published in ((3_000, 92.15), (30_000, 96.78))
)
"""20 epochs each."""
