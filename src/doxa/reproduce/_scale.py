r"""Long sums: digits learnt from the addition of numbers of up to 1,000 digits, and from sums of up to 1,024 digits.

Every training digit is in one row, so long rows are few: 60,000 digits make 30 sums of two numbers of 1,000 digits, and
58 lists of 1,024. What a row tells differs. An addition tells N + 1 digits, about :math:`N \log_2 10` bits. A sum of a
list of n digits is one number; with standard deviation σ of a digit, about :math:`\log_2 (σ \sqrt{2πe\,n})` bits.

A network that reads 99 of 100 digits right gets :math:`0.99^n` of the sums of n digits right. Up to 200 images
(N = 100) that is compared; beyond, what is compared are the digits and the log-likelihood of the sums of test digits,
computed exactly whatever was learnt with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import torch
from torch import Tensor, nn

from doxa.data import MNIST, Batches, normalize, split_indices
from doxa.errors import ConfigError
from doxa.exact import Elimination
from doxa.logic import Ragged, logits
from doxa.problem import Belief, Budget, addition
from doxa.reproduce._addition import ExactAdditionConfig
from doxa.reproduce._aggregates import LISTS, lists, seen
from doxa.reproduce._amortized import AmortizedAdditionConfig
from doxa.reproduce._digits import held_out, pairings, percent, perception, read, reference
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, by_budget, descend, saved, train
from doxa.semantics import Amortized, Exact, Model, Semantics
from doxa.train import Result
from doxa.train.report._report import figure

LIKELIHOODS = 10
"""Log-likelihoods are averages over so many ways to make sums of the test digits."""
ROOM = Budget(entries=1 << 27)
"""The exact sum of 1,024 digits takes 86 million numbers, more than the usual budget."""


@dataclass(frozen=True)
class ExactLongConfig(ExactAdditionConfig):
    """Learn digits from sums of two long numbers, exactly; the log-likelihood of test sums is measured too."""

    def training(self, given: Given) -> Training:
        return _with_likelihood(super().training(given := replace(given, digits=given.mnist())), self, given)


@dataclass(frozen=True)
class AmortizedLongConfig(AmortizedAdditionConfig):
    """Learn digits from sums of two long numbers by an inference model; measured likewise, and exactly."""

    def training(self, given: Given) -> Training:
        return _with_likelihood(super().training(given := replace(given, digits=given.mnist())), self, given)


def _with_likelihood(made: Training, config: ExactLongConfig | AmortizedLongConfig, given: Given) -> Training:
    learnt = made.state["average"].module
    network = getattr(learnt, "perception", learnt)
    mnist = held_out(given.mnist(), config.validation, seed=given.seed)
    return replace(
        made, measure=lambda run: {**made.measure(run), **addition_likelihood(network, mnist, config.digits)}
    )


@torch.inference_mode()
def addition_likelihood(network: nn.Module, mnist: MNIST, digits: int) -> dict[str, float]:
    """``log_likelihood``: log p(sum | images) in nats, averaged over sums of test digits; ``per_digit``, of that for
    each digit of the sum.
    """
    problem = addition(digits)
    reasoner = Elimination(problem)
    network.eval()
    scores, labels = read(network, mnist.test_images).double(), mnist.labels("test")
    found = torch.cat(
        [
            reasoner.log_prob(Belief.from_logits(scores[rows]), problem(labels[rows]))
            for rows in islice(pairings(mnist, problem), LIKELIHOODS)
        ]
    )
    total = found.mean().item()
    return {"log_likelihood": total, "per_digit": total / (digits + 1)}


@dataclass(frozen=True)
class LongListsConfig(Settings):
    """Learn digits from the sums of lists of one length."""

    length: int = 16  # digits in a list; the training digits make 60,000 / length of them
    how: Literal["exact", "amortized"] = "exact"
    short: int = 0  # so many of the training digits are in lists of 2 to 10 instead, which come first
    short_steps: int = 0  # batches of 32 such lists, before the long ones
    steps: int = 600  # batches to learn from, the short ones included
    batch_size: int = 4  # long lists in a batch
    learning_rate: float = 1e-3  # of Adam at its highest, which is reached and left anew with the long lists
    warmup: int = 30
    decay: int = 600
    hidden: int = 128  # the width of the inference model
    pretrain: int = 500  # its updates before the first batch
    samples: int = 100  # beliefs in each of them
    inference_rate: float = 1e-3
    validation: int = 0  # so many training digits are held out and measured in place of the test digits
    save_every: int = 200

    def training(self, given: Given) -> Training:
        if bool(self.short) != bool(self.short_steps):
            raise ConfigError(f"short is {self.short} and short_steps {self.short_steps}, expected both or neither")
        mnist = held_out(given.mnist(), self.validation, seed=given.seed)
        few, rest = split_indices(len(mnist.train_labels), self.short, seed=given.seed)
        rows, sums = equal_lists(rest, mnist.labels("train"), self.length, given.seed)
        batches = Batches((rows, sums), min(self.batch_size, len(rows)), seed=given.seed, drop_last=True)
        network = perception()
        model = Model(LISTS.format(kind="sum"), self.semantics(), digit=logits(network))
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)
        noise = torch.Generator().manual_seed(given.seed)
        state: dict[str, Any] = {"model": model, "optimizer": optimizer, "batches": batches, "noise": noise}
        if self.short:
            drawn, values = lists(few, mnist.labels("train")[few], "sum", given.seed)
            state["short"] = Batches((torch.arange(len(values)),), 32, seed=given.seed, drop_last=True)

        def step(i: int) -> Tensor:
            if i < self.short_steps:
                (chosen,) = state["short"].next()
                places, told = drawn[chosen], values[chosen]
                rate = replace(self, decay=self.short_steps).rate(self.learning_rate, i)
            else:
                places, told = batches.next()
                rate = self.rate(self.learning_rate, i, self.short_steps)
            how = model.semantics if i >= self.short_steps else "exact"
            data = {"images": _images(mnist.train_images, places), "value": told}
            model.inference_step(semantics=how, lists=data, generator=noise)
            return descend(model.loss(semantics=how, lists=data, generator=noise), optimizer, rate=rate)

        return Training(step, state, lambda run: measure_lists(network, mnist, self.length))

    def semantics(self) -> Semantics:
        """How long lists are reasoned about."""
        if self.how == "exact":
            return Exact(budget=ROOM)
        return Amortized(
            "mlp",
            hidden=self.hidden,
            pretrain=self.pretrain,
            samples=self.samples,
            learning_rate=self.inference_rate,
            budget=ROOM,
        )


def _images(images: Tensor, places: Tensor | Ragged) -> Tensor | Ragged:
    """The images at some places, as the network sees them: in rows of one length, or of several."""
    if isinstance(places, Ragged):
        return seen(Ragged(images[places.values], places.lengths))
    return torch.unflatten(normalize(images[places.flatten()].unsqueeze(1)), 0, places.shape)


def equal_lists(places: Tensor, labels: Tensor, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Each of some digits in one list ``(lists, length)``, the last few in none; and the sum of each list.

    >>> rows, sums = equal_lists(torch.arange(10), torch.arange(10) % 10, 4, seed=0)
    >>> rows.shape, len(set(rows.flatten().tolist())), bool((rows.sum(1) == sums).all())
    (torch.Size([2, 4]), 8, True)
    """
    count = len(places) // length
    if not count:
        raise ConfigError(f"{len(places)} digits make no list of {length}; lower length")
    order = torch.randperm(len(places), generator=torch.Generator().manual_seed(seed))[: count * length]
    rows = places[order].view(count, length)
    return rows, labels[rows].sum(1)


@torch.no_grad()
def measure_lists(network: nn.Module, mnist: MNIST, length: int) -> dict[str, float]:
    """In percent: ``accuracy``, of the sums of digits read one by one, and ``digit_accuracy``. ``log_likelihood`` is
    log p(sum | images) in nats, averaged over lists of test digits.
    """
    network.eval()
    scores, labels = read(network, mnist.test_images), mnist.labels("test")
    digits = scores.argmax(1)
    network.train()
    model = Model(LISTS.format(kind="sum"), Exact(budget=ROOM), digit=logits(nn.Identity()))
    right, losses = [], []
    for way in range(LIKELIHOODS):
        rows, sums = equal_lists(torch.arange(len(labels)), labels, length, way)
        right.append((digits[rows].sum(1) == sums).double().mean())
        for part, told in zip(torch.split(rows, 16), torch.split(sums, 16), strict=True):
            losses.append(model.loss(reduction="none", lists={"images": scores[part], "value": told}))
    return {
        "accuracy": 100 * torch.stack(right).mean().item(),
        "digit_accuracy": percent(digits == labels),
        "log_likelihood": -torch.cat(losses).double().mean().item(),
    }


def _exact(digits: int, batch_size: int, epochs: int) -> Entry:
    steps = epochs * (30_000 // digits // batch_size)
    rate = 3e-3 if digits >= 100 else 1e-3  # of 1e-3 and 3e-3, better for N = 1,000 on training digits held out
    config = ExactLongConfig(digits, steps, batch_size, rate, warmup=steps // 20, decay=steps, average=0.99)
    return Entry(f"addition/exact-{digits}", config, {}, reference(digits))


def _amortized(digits: int, batch_size: int, epochs: int, samples: int) -> Entry:
    pretrain = 500
    steps = pretrain + epochs * (30_000 // digits // batch_size)
    config = AmortizedLongConfig(
        digits,
        steps=steps,
        pretrain=pretrain,
        batch_size=batch_size,
        samples=samples,
        learning_rate=3e-3 if digits >= 100 else 1e-3,
        inference_rate=1e-2,
        warmup=100,
        decay=steps,
        weight_decay=0.01,
        average=0.99,
    )
    return Entry(f"addition/amortized-{digits}", config, {}, reference(digits))


def _lists(length: int, batch_size: int, epochs: int, how: Literal["exact", "amortized"], short: int = 0) -> Entry:
    short_steps = 300 if short else 0
    steps = short_steps + epochs * ((60_000 - short) // length // batch_size)
    config = LongListsConfig(length, how, short, short_steps, steps, batch_size, decay=steps)
    name = f"lists/{how}-{length}" + "-after-short" * bool(short)
    return Entry(name, config, {}, f"0.99^{length}: {100 * 0.99**length:.2g}")


SHORT = 6_000
"""Digits in short lists, where these come first."""
ENTRIES = (
    _exact(1, 64, 10),
    _exact(10, 16, 20),
    _exact(100, 4, 30),
    _exact(1000, 1, 40),
    _amortized(1, 64, 10, 200),
    _amortized(10, 16, 20, 64),
    _amortized(100, 4, 30, 8),
    _amortized(1000, 1, 20, 1),
    *[_lists(length, batch, 10, "exact") for length, batch in ((4, 32), (16, 16), (64, 4), (256, 2), (1024, 1))],
    *[_lists(length, batch, 10, "amortized") for length, batch in ((4, 32), (16, 16), (64, 4), (256, 2), (1024, 1))],
    Entry("lists/short-alone", LongListsConfig(1024, "exact", SHORT, 300, 300, 1, decay=300)),
    _lists(1024, 1, 10, "exact", SHORT),
)


def _draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Sums, digits and log-likelihoods against the number of images in a row; lines join means, dots are seeds."""
    curves: dict[str, dict[int, list[Result]]] = {}
    for (name, _), group in by_budget(results).items():
        table, _, row = name.removeprefix("scale/").partition("/")
        how, _, size = row.partition("-")
        if size.isdigit():
            images = int(size) * (2 if table == "addition" else 1)
            curves.setdefault(f"{table}, {how}", {})[images] = group
    if not curves:
        return []
    drawing, cells = figure(1, 3, size=(13, 3.8))
    for axes, (metric, (title, most)) in zip(cells, _PANELS.items(), strict=True):
        for colour, (label, groups) in enumerate(curves.items()):
            points = {x: [r.metrics[metric] for r in group] for x, group in sorted(groups.items()) if x <= most}
            style = {"color": f"C{colour}", "linestyle": "--" if "amortized" in label else "-"}
            axes.plot([*points], [mean(values) for values in points.values()], label=label, **style)
            dots = [(x, y) for x, ys in points.items() for y in ys]
            axes.plot([x for x, _ in dots], [y for _, y in dots], "o", color=f"C{colour}", markersize=3)
        axes.set(title=title, xlabel="images in a row", xscale="log")
        axes.grid(alpha=0.3)
    several = [2**i for i in range(1, 8)] + [200]
    cells[0].plot(several, [100 * 0.99**n for n in several], color="grey", linestyle=":", label="0.99ⁿ")
    cells[2].set(yscale="symlog")
    cells[0].legend(fontsize=8)
    return [saved(drawing, folder / "scale.png")]


_PANELS = {
    "accuracy": ("sums right, %", 200),
    "digit_accuracy": ("digits right, %", 2000),
    "log_likelihood": ("log-likelihood of a test sum, nats", 2000),
}
SCALE = Experiment(
    name="scale",
    about="Digits learnt from sums of up to 2,000 of them",
    entries=ENTRIES,
    train=train,
    metrics=("accuracy", "digit_accuracy", "log_likelihood", "neural", "divergence"),
    draw=_draw,
)
"""Entries ``addition/exact-1000`` (two numbers of 1,000 digits) and ``lists/amortized-1024`` (the sum of 1,024 digits);
``lists/exact-1024-after-short`` learns from short lists first, and ``lists/short-alone`` from these only."""
