"""MNIST addition with exact inference: digits are learnt from sums alone (Chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from doxa.data import MNIST, Batches, digits_task
from doxa.exact import Elimination
from doxa.problem import Belief, addition
from doxa.reproduce._experiment import Entry, Given, Settings, Training, descend, moving_average
from doxa.reproduce.digits._reading import believe, held_out, pairings, percent, perception, read, reference, shifted


@dataclass(frozen=True)
class ExactAdditionConfig(Settings):
    """Learn digits from sums of two numbers, by -log p(sum) computed exactly.

    >>> ExactAdditionConfig(digits=4).validation
    0
    """

    zero = ("weight_decay",)
    digits: int = 1  # N, of each number; the training digits make 60,000 / 2N sums, each digit being in one of them
    steps: int = 10_000  # batches to learn from
    batch_size: int = 64  # sums in a batch
    learning_rate: float = 1e-3  # of AdamW at its highest
    warmup: int = 500  # so many steps in which the learning rate rises to it along a line
    decay: int = 10_000  # the step at which it has fallen to 0, along half a cosine
    weight_decay: float = 0.01  # of AdamW
    average: float = 0.999  # decay of the moving average of the parameters that is tested
    shift: int = 0  # each training image is moved by at most so many pixels each way, anew every time
    validation: int = 0  # so many training digits are held out and measured in place of the test digits
    save_every: int = 1000  # steps between two checkpoints; the last one counts

    def training(self, given: Given) -> Training:
        mnist = held_out(given.mnist(), self.validation, seed=given.seed)
        problem = addition(self.digits)
        reasoner = Elimination(problem)
        task = digits_task(mnist, problem, seed=given.seed)
        batches = Batches((task.images, task.outputs), min(self.batch_size, len(task)), seed=given.seed, drop_last=True)
        network = perception()
        average = moving_average(network, self.average)
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay, fused=True
        )
        noise = torch.Generator().manual_seed(given.seed)

        def step(i: int) -> Tensor:
            images, sums = batches.next()
            belief = believe(network, shifted(images, self.shift, noise))
            loss = descend(reasoner.loss(belief, sums).mean(), optimizer, rate=self.rate(self.learning_rate, i))
            average.update_parameters(network)
            return loss

        state = {"network": network, "average": average, "optimizer": optimizer, "batches": batches, "noise": noise}
        return Training(step, state, lambda run: measure(average, mnist, reasoner))


@torch.inference_mode()
def measure(network: nn.Module, mnist: MNIST, reasoner: Elimination) -> dict[str, float]:
    """The accuracies of a network that reads digits, in percent of the test digits' sums.

    ``accuracy``: those whose digits read one by one add up right, averaged over 100 ways to make sums of them;
    ``first_pairing``: the same for the first of these ways; ``most_probable``: for that one, those whose most probable
    sum under the belief is right. ``digit_accuracy`` is in percent of the test digits.
    """
    problem = reasoner.problem
    logits, labels = read(network, mnist.test_images), mnist.labels("test")
    seen = logits.argmax(1)
    right = [
        (problem(seen[rows]) == problem(labels[rows])).all(-1).double().mean() for rows in pairings(mnist, problem)
    ]
    first = next(pairings(mnist, problem))
    predicted = reasoner.predict(Belief.from_logits(logits[first]))
    return {
        "accuracy": 100 * torch.stack(right).mean().item(),
        "first_pairing": 100 * right[0].item(),
        "most_probable": percent((predicted == problem(labels[first])).all(-1)),
        "digit_accuracy": percent(seen == labels),
    }


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
