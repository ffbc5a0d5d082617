r"""MNIST addition: digits are learnt from sums alone, by one way of reasoning or another.

By exact inference (Chapter 6), or with a refinement layer (Chapter 4). The layer holds a rule
:math:`x_i ∧ y_j → s_{i+j}` for each pair of digits. The truths of the digits are what the network says, those of the
sums start at 0; one minimal refinement with the Gödel t-norm and its residuum, to target 1, makes

.. math:: s_k = \max_{i+j=k} \min(x_i, y_j).

As these do not add up to one, the loss is the cross entropy of :math:`\mathrm{softmax}(\log s)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from doxa._numerics import safe_log
from doxa.data import MNIST, Batches, digits_task
from doxa.errors import ConfigError
from doxa.exact import Elimination
from doxa.logic import propositions
from doxa.problem import Belief, addition
from doxa.refine import Refine
from doxa.reproduce import _digits
from doxa.reproduce._amortized import AMORTIZED_ENTRIES
from doxa.reproduce._digits import believe, held_out, pairings, percent, perception, read, reference, shifted
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, descend, saved, train
from doxa.reproduce._ltn import LOCAL_MINIMUM, LTN_ENTRIES
from doxa.train import GlobalRandom, Result
from doxa.train.report._report import draw_confusion, figure
from doxa.train.tasks._fit import moving_average
from doxa.train.tasks._labelled import best_start


@dataclass(frozen=True)
class ExactAdditionConfig(Settings):
    """Learn digits from sums of two numbers, by -log p(sum) computed exactly."""

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
    dropout: float = 0.0  # the share of its inputs that each linear layer is trained without
    validation: int = 0  # so many training digits are held out and measured in place of the test digits
    save_every: int = 1000  # steps between two checkpoints; the last one counts

    def training(self, given: Given) -> Training:
        mnist = held_out(given.mnist(), self.validation, seed=given.seed)
        problem = addition(self.digits)
        reasoner = Elimination(problem)
        task = digits_task(mnist, problem, seed=given.seed)
        batches = Batches((task.images, task.outputs), min(self.batch_size, len(task)), seed=given.seed, drop_last=True)
        network = perception(dropout=self.dropout)
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

        state: dict[str, Any] = {"network": network, "average": average, "optimizer": optimizer}
        state |= {"batches": batches, "noise": noise}
        if self.dropout:
            state["random"] = GlobalRandom()
        return Training(step, state, lambda run: measure(average, mnist, reasoner))


@torch.inference_mode()
def measure(network: nn.Module, mnist: MNIST, reasoner: Elimination) -> dict[str, float]:
    """The accuracies of a network that reads digits, in percent of the test digits' sums.

    ``accuracy``: those whose digits read one by one add up right, averaged over 100 ways to make sums of them;
    ``first_pairing``: the same for the first of these ways; ``most_probable``: for that one, those whose most probable
    sum under the belief is right. ``digit_accuracy`` is in percent of the test digits.
    """
    problem = reasoner.problem
    network.eval()
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


def _entry(
    digits: int, epochs: int, batch_size: int, published: float | None, *, shift: int = 0, dropout: float = 0.0
) -> Entry:
    steps = epochs * (60_000 // (2 * digits) // batch_size)
    config = ExactAdditionConfig(digits, steps, batch_size, warmup=steps // 20, decay=steps)
    return Entry(
        f"exact/n-{digits}" + "-shifted" * bool(shift) + "-dropout" * bool(dropout),
        replace(config, shift=shift, dropout=dropout),
        {} if published is None else {"accuracy": published},
        reference(digits) if published is None else f"A-NeSI; {reference(digits)}",
    )


EXACT_ENTRIES = (
    _entry(1, 60, 64, 97.66),
    _entry(2, 60, 32, 96.04),
    _entry(4, 80, 32, 92.56),
    _entry(15, 100, 16, 76.84),
    _entry(15, 100, 16, 76.84, shift=2),
    _entry(15, 100, 16, 76.84, dropout=_digits.DROPOUT),
    _entry(50, 100, 8, None),
)


@dataclass(frozen=True)
class RefineAdditionConfig(Settings):
    """Learn digits from sums of two of them, through a Gödel refinement layer."""

    pairs: int = 30_000  # how many pairs of training digits there are, each digit being in one of them
    steps: int = 1175  # batches to learn from
    batch_size: int = 128  # pairs in a batch
    learning_rate: float = 0.01  # of Adam
    starts: int = 1  # networks that are begun; the one whose training loss is the lowest goes on
    tried: int = 120  # steps after which the better half of them goes on, for as many more
    save_every: int = 200  # steps between two checkpoints; the last one counts

    def training(self, given: Given) -> Training:
        mnist = given.mnist()
        task = digits_task(mnist, addition(1), seed=given.seed)
        if self.pairs > len(task):
            raise ConfigError(f"pairs is {self.pairs}, but the training digits make only {len(task)}")
        rows = (task.images[: self.pairs], task.digits[: self.pairs].sum(-1))
        batches, layer = Batches(rows, self.batch_size, seed=given.seed), addition_layer()

        def loss_of(network: nn.Module, images: Tensor, sums: Tensor) -> Tensor:
            return cross_entropy(safe_log(_refined(network, layer, images)), sums)

        def tried(network: nn.Module) -> Callable[[float], Tensor]:
            same = Batches(rows, self.batch_size, seed=given.seed)
            return lambda left: loss_of(network, *same.next())

        def learner(network: nn.Module) -> torch.optim.Optimizer:
            return torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)

        begun = (perception() for _ in range(self.starts))
        network = next(begun) if self.starts == 1 else best_start(begun, tried, learner, self.tried)
        optimizer = learner(network)

        def step(_: int) -> Tensor:
            return descend(loss_of(network, *batches.next()), optimizer)

        state = {"network": network, "optimizer": optimizer, "batches": batches}
        return Training(step, state, lambda run: _measure(network, layer, mnist), log_every=20)


def addition_layer() -> Refine:
    """The layer: truths of the two digits and of the 19 sums ``(*batch, 39)``, sums at 0, to refined truths."""
    names = [f"x{i}" for i in range(10)] + [f"y{i}" for i in range(10)] + [f"s{i}" for i in range(19)]
    atoms = propositions(" ".join(names))
    x, y, s = atoms[:10], atoms[10:20], atoms[20:]
    rules = {f"{i}+{j}": (x[i] & y[j]) >> s[i + j] for i, j in product(range(10), repeat=2)}
    return Refine(rules, "godel:r", 1.0, steps=1, atoms=atoms)


def _grey(images: Tensor) -> Tensor:
    """Images as numbers from 0 to 1. Normalised ones are too bright for this rate: two points fewer are learnt."""
    return images.unsqueeze(1).float() / 255


def _refined(network: nn.Module, layer: Refine, images: Tensor) -> Tensor:
    """The refined truths of the sums, ``(pairs, 19)``, of images ``(pairs, 2, 28, 28)``."""
    truths = network(_grey(images.flatten(0, 1))).softmax(-1).view(len(images), 20)
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
    seen = torch.cat([network(_grey(part)) for part in torch.split(mnist.test_images, 1000)]).argmax(1)
    labels = mnist.labels("test")
    accuracy = percent(truths.argmax(-1) == test.digits.sum(-1))
    counts = torch.bincount(10 * labels + seen, minlength=100).tolist()
    return {
        "accuracy": accuracy,
        "digit_accuracy": percent(seen == labels),
        "off_by_one": percent((seen - labels).abs() == 1),
        "local_minimum": float(accuracy < LOCAL_MINIMUM),
        **{f"read {k // 10} as {k % 10}": float(count) for k, count in enumerate(counts)},
    }


REFINE_ENTRIES = tuple(
    Entry(
        f"refine/{pairs}" + "-starts" * (starts > 1),
        RefineAdditionConfig(pairs, steps=epochs * -(-pairs // 128), starts=starts),
        {"accuracy": published},
        "Chapter 4",
    )
    for pairs, epochs, published, starts in ((3_000, 30, 93.38, 1), (3_000, 30, 93.38, 2), (30_000, 5, 96.67, 1))
)


def _draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """How each digit is read, summed over the runs of each entry that counted it."""
    names = sorted({r.experiment for r in results if "read 0 as 0" in r.metrics})
    if not names:
        return []
    drawing, cells = figure(1, len(names), size=(5 * len(names), 5))
    for axes, name in zip(cells, names, strict=True):
        runs = [r for r in results if r.experiment == name]
        counts = torch.tensor(
            [[sum(r.metrics[f"read {i} as {j}"] for r in runs) for j in range(10)] for i in range(10)]
        )
        shares = counts / counts.sum(1, keepdim=True)
        draw_confusion(axes, counts, [[f"{100 * share:.1f}" for share in row] for row in shares.tolist()])
        axes.set(title=f"{name} (seeds {', '.join(str(r.seed) for r in runs)}), %")
    return [saved(drawing, folder / "confusion.png")]


ADDITION = Experiment(
    name="addition",
    about="Digits learnt from sums of MNIST digits",
    entries=(*REFINE_ENTRIES, *LTN_ENTRIES, *EXACT_ENTRIES, *AMORTIZED_ENTRIES, *_digits.NEURAL_ADDITION),
    train=train,
    metrics=("accuracy", "neural", "digit_accuracy", "most_probable", "off_by_one", "local_minimum"),
    draw=_draw,
)
"""Entries ``refine/3000`` and ``ltn/3000`` (pairs of digits), ``exact/n-4`` (numbers of four digits),
``amortized/scan-predict-n-4``, and ``neural/n-4``, which does not reason."""
