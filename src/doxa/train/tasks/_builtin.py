"""Tasks that come with doxa: digits of MNIST, of which only what a formula makes of them is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from doxa.data import MNIST, digits_task, normalize
from doxa.errors import DataError
from doxa.logic import logits
from doxa.train.tasks._fit import Fitting
from doxa.train.tasks._network import digit_network
from doxa.train.tasks._task import Task

KNOWLEDGE = Path(__file__).parent / "knowledge"
FITTING = Fitting(steps=2500, learning_rate=1e-3, schedule="cosine", evaluate_every=250)


class _DigitReader(nn.Module):
    """Grey values ``(n, 28, 28)`` to the logits of ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.network = digit_network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.network(normalize(images).unsqueeze(1))
        return found


def addition_task(mnist: MNIST) -> Task:
    """Learn digits from the sums of two.

    >>> grey = torch.zeros(60, 28, 28, dtype=torch.uint8)
    >>> addition_task(MNIST(grey, torch.arange(60) % 10, grey, torch.arange(60) % 10))
    Task('addition': 30 rows to train, 30 to test)
    """
    return _told(mnist, "addition", "sum", lambda a, b: a + b, [*range(19)])


def multiplication_task(mnist: MNIST) -> Task:
    """Learn digits from the products of two.

    >>> grey = torch.zeros(60, 28, 28, dtype=torch.uint8)
    >>> len(multiplication_task(MNIST(grey, torch.arange(60) % 10, grey, torch.arange(60) % 10)).values)
    37
    """
    products = sorted({a * b for a in range(10) for b in range(10)})
    return _told(mnist, "multiplication", "product", lambda a, b: a * b, products)


def equation_task(mnist: MNIST) -> Task:
    """Three images x, y, z of which only x + y = z is known: reading all of them as 0 satisfies it.

    Each image is in one equation at most; there are as many as the digits allow when a total is drawn first, uniformly
    from 0..9, and then how it is split.

    >>> grey = torch.zeros(200, 28, 28, dtype=torch.uint8)
    >>> task = equation_task(MNIST(grey, torch.arange(200) % 10, grey, torch.arange(200) % 10))
    >>> digits = task.concepts["digit"]
    >>> bool((digits["equations.left"] + digits["equations.right"] == digits["equations.total"]).all())
    True
    """
    rows = (_equations(mnist.train_images, mnist.labels("train")), _equations(mnist.test_images, mnist.labels("test")))
    return _task("equation", "equations", ("left", "right", "total"), *rows)


BUILT_IN: dict[str, tuple[str, Callable[[MNIST], Task]]] = {
    "addition": ("Digits of MNIST, learnt from the sums of two.", addition_task),
    "multiplication": ("Digits of MNIST, learnt from the products of two.", multiplication_task),
    "equation": ("Images of digits of which only x + y = z is known; reading zeros is an optimum.", equation_task),
}
"""The tasks by name: what they are about, and how they are made from the digits."""


Rows = tuple[dict[str, Tensor], Tensor]
"""Fields by name, and the true digits of their images ``(rows, images)``."""


def _told(mnist: MNIST, name: str, field: str, function: Callable[[int, int], int], values: list[int]) -> Task:
    def rows(split: str) -> Rows:
        made = digits_task(mnist, function, digits=2, split=split)  # type: ignore[arg-type]
        left, right = made.images.unbind(1)
        return {"left": left, "right": right, field: made.outputs[:, 0]}, made.digits

    told = _task(name, "pairs", ("left", "right"), rows("train"), rows("test"))
    return replace(told, target=f"pairs.{field}", values=values)


def _task(name: str, rows: str, images: tuple[str, ...], train: Rows, test: Rows) -> Task:
    places = [f"{rows}.{image}" for image in images]
    return Task(
        name,
        BUILT_IN[name][0],
        KNOWLEDGE / f"{name}.doxa",
        lambda: {"digit": logits(_DigitReader())},
        {rows: train[0]},
        {rows: test[0]},
        concepts={"digit": dict(zip(places, test[1].unbind(1), strict=True))},
        images=places,
        fitting=FITTING,
    )


def _equations(images: Tensor, labels: Tensor) -> Rows:
    """Rows of three images whose digits add up, and these digits ``(n, 3)``."""
    random = torch.Generator().manual_seed(0)
    shuffled = torch.randperm(len(labels), generator=random)
    unused = [shuffled[labels[shuffled] == digit].tolist() for digit in range(10)]
    totals = torch.randint(10, (len(labels),), generator=random).tolist()
    shares = torch.rand(len(labels), generator=random).tolist()
    rows: list[list[int]] = []
    for total, share in zip(totals, shares, strict=True):
        left = int(share * (total + 1))
        wanted = (left, total - left, total)
        if all(len(unused[digit]) >= wanted.count(digit) for digit in wanted):
            rows.append([unused[digit].pop() for digit in wanted])
    if not rows:
        raise DataError(f"{len(labels)} digits make no equation; more of them are needed")
    chosen = torch.tensor(rows)
    fields = dict(zip(("left", "right", "total"), images[chosen].unbind(1), strict=True))
    return fields, labels[chosen]
