"""Digits to a function: every image once, outputs as told by plain Python, and a network that learns them unaided."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from doxa.data import MNIST, Batches, digits_task, normalize
from doxa.errors import ConfigError, DataError, ProblemError
from doxa.problem import addition, multiplication, remainder
from doxa.reproduce._digits import DigitsBaseline, reference


def marked(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images that are all different: the number of the image is written into two pixels, its digit into a bar."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (n,), generator=random)
    images = torch.zeros(n, 28, 28, dtype=torch.uint8)
    images[:, 0, 0], images[:, 0, 1] = torch.arange(n) // 256, torch.arange(n) % 256
    for row in range(2):
        images[torch.arange(n), 4 + 2 * labels + row, 4:24] = 255
    return images, labels


@pytest.fixture(scope="module")
def mnist() -> MNIST:
    return MNIST(*marked(1003, 1), *marked(200, 2))


def number(images: torch.Tensor) -> torch.Tensor:
    return 256 * images[..., 0, 0].long() + images[..., 0, 1].long()


def value(digits: list[int]) -> int:
    return int("".join(map(str, digits)))


TASKS: dict[str, tuple[Any, dict[str, Any], Callable[[list[int]], list[int]]]] = {
    "addition of 3 digits": (
        addition(3),
        {},
        lambda d: [int(c) for c in f"{value(d[:3]) + value(d[3:]):04}"],
    ),
    "multiplication": (multiplication(), {}, lambda d: [d[0] * d[1] // 10, d[0] * d[1] % 10]),
    "multiplication of 2 digits": (
        multiplication(2),
        {},
        lambda d: [int(c) for c in f"{value(d[:2]) * value(d[2:]):04}"],
    ),
    "remainder": (remainder(7, digits=4), {}, lambda d: [value(d) % 7]),
    "largest": (max, {"digits": 3}, lambda d: [max(d)]),
    "two outputs": (lambda a, b: (a + b, int(a < b)), {"digits": 2}, lambda d: [sum(d), int(d[0] < d[1])]),
    "sorted": (lambda *d: sorted(d), {"digits": 3}, sorted),
    "output given": (math.gcd, {"digits": 2, "output": (10,)}, lambda d: [math.gcd(*d)]),
    "seven digits": (lambda *d: sum(d), {"digits": 7, "output": (64,)}, lambda d: [sum(d)]),
}


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", TASKS)
def test_every_image_once_and_outputs_of_plain_python(mnist: MNIST, name: str, split: Any) -> None:
    function, arguments, plain = TASKS[name]
    task = digits_task(mnist, function, split=split, seed=5, **arguments)
    count, images = len(task.problem.world), 1003 if split == "train" else 200
    assert len(task) == images // count
    assert task.images.shape == (len(task), count, 28, 28)
    seen = Counter(number(task.images).flatten().tolist())
    assert max(seen.values()) == 1 and len(seen) == len(task) * count
    labels = mnist.labels(split)[number(task.images)]
    assert torch.equal(task.digits, labels), "the digits are those of the images"
    for digits, output in zip(labels.tolist(), task.outputs.tolist(), strict=True):
        assert output == plain(digits)


def test_values_are_found_by_trying_all_digits(mnist: MNIST) -> None:
    assert digits_task(mnist, lambda a, b: (a * b, a + b), digits=2).problem.output == (82, 19)
    assert digits_task(mnist, lambda a: a // 4, digits=1).problem.output == (3,)
    assert digits_task(mnist, addition(2)).problem.output == (2, 10, 10)


def test_the_seed_decides_who_is_with_whom(mnist: MNIST) -> None:
    one, same, other = (digits_task(mnist, max, digits=2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.images, same.images)
    assert not torch.equal(one.images, other.images)


def test_reference() -> None:
    assert reference(1) == "0.99^2: 98.01"
    power, percentage = reference(15).split(": ")
    assert power == "0.99^30" and float(percentage) == pytest.approx(100 * math.prod([0.99] * 30), abs=0.005)


def test_bad_arguments(mnist: MNIST) -> None:
    for function, arguments, message in [
        (addition(1), {"digits": 2}, "a Problem says itself"),
        (addition(1, base=2), {}, "expected ten values for each digit"),
        (max, {}, "digits is None"),
        (max, {"digits": 0}, "digits is 0"),
        (lambda *d: sum(d), {"digits": 8}, "give output="),
        (max, {"digits": 2, "split": "val"}, "split is 'val'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            digits_task(mnist, function, **arguments)
    with pytest.raises(DataError, match="1003 train images make no row of 2000"):
        digits_task(mnist, addition(1000))
    with pytest.raises(ProblemError, match="expected 0 to"):
        digits_task(mnist, lambda a, b: a - b, digits=2)
    with pytest.raises(ProblemError, match=r"expected 1 int"):
        digits_task(mnist, lambda a, b: a / 2, digits=2)


def test_the_baseline_learns(mnist: MNIST) -> None:
    """On easy images it learns the digits and the function; outputs that it saw it knows again."""
    task = digits_task(mnist, multiplication())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = DigitsBaseline(task.problem, hidden=128)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    batches = Batches((task.images, task.outputs), 50, seed=0)
    first = None
    for _ in range(150):
        images, outputs = batches.next()
        loss = network.loss(normalize(images), outputs)
        first = loss.item() if first is None else first
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = network.predict(normalize(task.images))
    right = (found == task.outputs).all(-1).double().mean()
    assert loss.item() < 0.3 * first
    assert right > 0.8
