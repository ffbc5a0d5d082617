"""Digits to a function: images are seen, and of their digits only what a function makes of them is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from doxa.data._batches import split_indices
from doxa.data._mnist import MNIST
from doxa.errors import ConfigError, DataError
from doxa.problem import Problem

LISTED = 10**5  # worlds that are listed to find out which values a function takes


@dataclass(frozen=True, eq=False, repr=False)
class DigitsTask:
    """Rows of K digits with the output of a function; each image of the split is in one row at most.

    Args:
        problem: the function from K digits to its outputs.
        images: uint8 ``(n, K, 28, 28)``, to be `normalize`-d.
        outputs: int64 ``(n, Y)``: what is told.
        digits: int64 ``(n, K)``: what is not told; for measuring only.

    >>> import torch
    >>> grey = torch.zeros(60, 28, 28, dtype=torch.uint8)
    >>> mnist = MNIST(grey, torch.arange(60) % 10, grey, torch.arange(60) % 10)
    >>> task = digits_task(mnist, max, digits=3)
    >>> task
    DigitsTask(20 rows of 3 digits, outputs (10,))
    >>> bool((task.outputs[:, 0] == task.digits.amax(1)).all())
    True
    """

    problem: Problem
    images: Tensor
    outputs: Tensor
    digits: Tensor

    def __len__(self) -> int:
        return len(self.outputs)

    def __repr__(self) -> str:
        return f"DigitsTask({len(self)} rows of {self.digits.shape[1]} digits, outputs {self.problem.output})"


def digits_task(
    mnist: MNIST,
    function: Callable[..., Any] | Problem,
    *,
    digits: int | None = None,
    output: Sequence[int] | None = None,
    split: Literal["train", "test"] = "train",
    seed: int = 0,
) -> DigitsTask:
    """The task of learning digits from any function of them: data and the `Problem` that they pose.

    The images of a split are shuffled and taken K at a time, each once: 60,000 images make 60,000 / K rows, and what is
    left over is dropped.

    Args:
        mnist: the digits.
        function: a Python function of K digits that returns an int or a sequence of ints; or a `Problem` over digits,
            such as ``addition(2)`` or ``multiplication()``.
        digits: K, for a Python function.
        output: how many values each output has, for a Python function; by default found by trying all digits.
        split: of the images.
        seed: of the shuffle.

    Raises:
        ConfigError: the arguments do not go together.
        DataError: there are fewer than K images.

    >>> import torch
    >>> from doxa.problem import multiplication
    >>> grey = torch.zeros(60, 28, 28, dtype=torch.uint8)
    >>> mnist = MNIST(grey, torch.arange(60) % 10, grey, torch.arange(60) % 10)
    >>> digits_task(mnist, multiplication())
    DigitsTask(30 rows of 2 digits, outputs (10, 10))
    >>> digits_task(mnist, lambda a, b: (a + b, abs(a - b)), digits=2)
    DigitsTask(30 rows of 2 digits, outputs (19, 10))
    """
    problem = _problem(function, digits, output)
    count = len(problem.world)
    images = mnist.train_images if split == "train" else mnist.test_images
    labels = mnist.labels(split)
    rows = len(labels) // count
    if not rows:
        raise DataError(f"{len(labels)} {split} images make no row of {count} digits")
    order, _ = split_indices(len(labels), rows * count, seed=seed)
    order = order.reshape(rows, count).to(labels.device)
    return DigitsTask(problem, images[order], problem(labels[order]), labels[order])


def _problem(function: Callable[..., Any] | Problem, digits: int | None, output: Sequence[int] | None) -> Problem:
    if isinstance(function, Problem):
        if digits is not None or output is not None:
            raise ConfigError("digits and output are for Python functions; a Problem says itself what they are")
        if set(function.world) != {10}:
            raise ConfigError(f"the problem has a world of {function.world}, expected ten values for each digit")
        return function
    if digits is None or digits < 1:
        raise ConfigError(f"digits is {digits}, expected the number of digits that the function takes, 1 or more")
    world = (10,) * digits
    if output is not None:
        return Problem.from_function(function, world, tuple(output))
    if 10**digits > LISTED:
        raise ConfigError(f"10^{digits} worlds are too many to find out the values of the function; give output=")
    first = function(*(0,) * digits)
    outputs = len(first) if isinstance(first, Sequence) else 1
    unbounded = Problem.from_function(function, world, (2**31,) * outputs)
    found = unbounded(unbounded.worlds())
    return Problem.from_function(function, world, tuple((found.amax(0) + 1).tolist()))
