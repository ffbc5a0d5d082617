"""Tasks in which a network may be right for the wrong reasons: what is told does not say what is seen.

MNIST-EvenOdd and MNIST-Half are those of the literature on reasoning shortcuts (Marconato et al. 2023); each shows some
pairs of digits only. The pictures of the last two are drawn. Rows are drawn uniformly from the worlds that occur, with
a fixed seed; an image is used again only where there are too few of its digit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from doxa.data import MNIST, draw_objects, draw_streets, normalize
from doxa.errors import DataError
from doxa.logic import logits
from doxa.train.tasks._fit import Fitting
from doxa.train.tasks._task import Task

KNOWLEDGE = Path(__file__).parent / "knowledge"
FITTING = Fitting(steps=600, learning_rate=3e-3, schedule="cosine", evaluate_every=200)
Two = tuple[int, int]
ROWS: Two = (2000, 500)
"""So many rows to train on and to test on."""
SEEDS: Two = (0, 1)
"""Of the rows to train on, and of those to test on."""


class Reader(nn.Module):
    """A small network from pictures ``(n, height, width)`` or ``(n, 3, height, width)`` to logits of some values.

    >>> Reader(5)(torch.zeros(2, 28, 28, dtype=torch.uint8)).shape, Reader(1, 3, 16)(torch.zeros(2, 3, 16, 16)).shape
    (torch.Size([2, 5]), torch.Size([2, 1]))
    """

    def __init__(self, values: int, channels: int = 1, size: int = 28) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(channels, 12, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24 * _after(size) ** 2, 64),
            nn.ReLU(),
            nn.Linear(64, values),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        seen = normalize(pictures).unsqueeze(1) if pictures.ndim == 3 else pictures - 0.5
        found: Tensor = self.network(seen)
        return found


def _after(size: int) -> int:
    """Pixels along a side after the two convolutions."""
    return ((size - 5) // 2 + 1 - 3) // 2 + 1


@dataclass(frozen=True, eq=False)
class Drawn:
    """A task, and what its symbols truly mean on the training rows: by symbol and field, one label for each row."""

    task: Task
    truth: Mapping[str, Mapping[str, Tensor]]


@dataclass(frozen=True)
class _Digits:
    """Rows of digits: which occur together, and what is told of them."""

    about: str
    rows: str
    images: tuple[str, ...]
    told: str  # the field, or nothing where only that the knowledge holds is known
    function: Callable[[Tensor], Tensor]
    worlds: tuple[tuple[int, ...], ...]
    symbol: str = "digit"
    values: int = 10

    @property
    def some(self) -> bool:
        """Whether there are worlds that do not occur, but give what occurs."""
        told = {int(self.function(torch.tensor(world))) for world in self.worlds}
        every = product(range(self.values), repeat=len(self.images))
        return sum(int(self.function(torch.tensor(world))) in told for world in every) > len(self.worlds)


def _both(pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted({pair for a, b in pairs for pair in ((a, b), (b, a))}))


def _sum(digits: Tensor) -> Tensor:
    return digits.sum(-1)


DIGITS = {
    "evenodd": _Digits(
        "MNIST-EvenOdd: sums of two even or two odd digits, of which only some pairs are shown.",
        "pairs",
        ("left", "right"),
        "sum",
        _sum,
        _both([(0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)]),
    ),
    "half": _Digits(
        "MNIST-Half: sums of two digits below five, of which only some pairs are shown.",
        "pairs",
        ("left", "right"),
        "sum",
        _sum,
        _both([(0, 0), (0, 1), (2, 3), (2, 4)]),
        values=5,
    ),
    "xor": _Digits(
        "Do two images of zeros and ones differ?",
        "pairs",
        ("left", "right"),
        "differ",
        lambda bits: bits.sum(-1) % 2,
        tuple(product(range(2), repeat=2)),
        "bit",
        2,
    ),
    "parity": _Digits(
        "Is the number of ones among four images odd?",
        "rows",
        ("first", "second", "third", "fourth"),
        "odd",
        lambda bits: bits.sum(-1) % 2,
        tuple(product(range(2), repeat=4)),
        "bit",
        2,
    ),
    "mod10": _Digits(
        "The last digit of the sum of two digits.",
        "pairs",
        ("left", "right"),
        "last",
        lambda digits: digits.sum(-1) % 10,
        tuple(product(range(10), repeat=2)),
    ),
    "equation": _Digits(
        "Images of digits of which only x + y = z is known; reading zeros is an optimum.",
        "equations",
        ("left", "right", "total"),
        "",
        lambda digits: digits[..., 0] + digits[..., 1] - digits[..., 2],
        tuple((a, b, a + b) for a, b in product(range(10), repeat=2) if a + b < 10),
    ),
}


def digits_drawn(name: str, mnist: MNIST, rows: Two = ROWS, *, seeds: Two = SEEDS) -> Drawn:
    """One of the tasks about digits, with so many rows to train and to test on.

    >>> grey = torch.zeros(200, 28, 28, dtype=torch.uint8)
    >>> drawn = digits_drawn("half", MNIST(grey, torch.arange(200) % 10, grey, torch.arange(200) % 10), (30, 20))
    >>> drawn.task, sorted(drawn.task.worlds), drawn.truth["digit"]["pairs.left"].amax()
    (Task('half': 30 rows to train, 20 to test), ['left', 'right', 'sum'], tensor(4))
    """
    about = DIGITS[name]
    worlds = torch.tensor(about.worlds)
    data: list[dict[str, Tensor]] = []
    truths: list[dict[str, dict[str, Tensor]]] = []
    for seed, split, count in zip(seeds, ("train", "test"), rows, strict=True):
        random = torch.Generator().manual_seed(seed)
        digits = worlds[torch.randint(len(worlds), (count,), generator=random)]
        images = mnist.train_images if split == "train" else mnist.test_images
        found = _pictured(images, mnist.labels(split), digits, random)  # type: ignore[arg-type]
        fields = dict(zip(about.images, found.unbind(1), strict=True))
        data.append(fields | ({about.told: about.function(digits)} if about.told else {}))
        labels = zip([f"{about.rows}.{image}" for image in about.images], digits.unbind(1), strict=True)
        truths.append({about.symbol: dict(labels)})
    columns = dict(zip(about.images, worlds.T.tolist(), strict=True))
    told = sorted({int(value) for value in about.function(worlds)}) if about.told else None
    task = Task(
        name,
        about.about,
        KNOWLEDGE / f"{name}.doxa",
        lambda: {about.symbol: logits(Reader(about.values))},
        {about.rows: data[0]},
        {about.rows: data[1]},
        target=f"{about.rows}.{about.told}" if about.told else "",
        values=told,
        concepts=truths[1],
        images=[f"{about.rows}.{image}" for image in about.images],
        worlds={**columns, about.told: about.function(worlds).tolist()} if about.told and about.some else None,
        fitting=FITTING,
    )
    return Drawn(task, truths[0])


def _pictured(images: Tensor, labels: Tensor, digits: Tensor, random: torch.Generator) -> Tensor:
    """An image of each of these digits, ``(n, K, height, width)``."""
    found = torch.empty(digits.numel(), dtype=torch.int64)
    for digit in torch.unique(digits).tolist():
        places = (digits.flatten() == digit).nonzero().squeeze(1)
        own = (labels == digit).nonzero().squeeze(1)
        if not len(own):
            raise DataError(f"there is no image of the digit {digit}")
        order = own[torch.randperm(len(own), generator=random)]
        found[places] = order.repeat(-(-len(places) // len(order)))[: len(places)]
    return images[found].reshape(*digits.shape, *images.shape[1:])


def driving_drawn(rows: Two = ROWS, *, seeds: Two = SEEDS) -> Drawn:
    """Streets with a traffic light and perhaps an obstacle; whether to stop or to go is told.

    >>> driving_drawn((20, 10)).task
    Task('driving': 20 rows to train, 10 to test)
    """
    data, truths = [], []
    for seed, count in zip(seeds, rows, strict=True):
        red, obstacle = torch.randint(2, (2, count), generator=torch.Generator().manual_seed(seed))
        view = draw_streets(red, 1 - red, obstacle, seed=seed)
        data.append({"streets": {"view": view, "action": ((1 - red) * (1 - obstacle))}})
        symbols = {"red": red, "green": 1 - red, "obstacle": obstacle}
        truths.append({symbol: {"streets.view": truth} for symbol, truth in symbols.items()})
    task = Task(
        "driving",
        DRAWN["driving"][0],
        KNOWLEDGE / "driving.doxa",
        lambda: {symbol: logits(Reader(1, 3, 24)) for symbol in ("red", "green", "obstacle")},
        data[0],
        data[1],
        target="streets.action",
        concepts=truths[1],
        images=["streets.view"],
        fitting=FITTING,
    )
    return Drawn(task, truths[0])


def kandinsky_drawn(rows: Two = ROWS, *, seeds: Two = SEEDS) -> Drawn:
    """Three figures of three coloured shapes: has every figure one shape, or one colour?

    Half of the boards have the pattern; of the others, some figures have it.

    >>> kandinsky_drawn((20, 10)).task
    Task('kandinsky': 20 rows to train, 10 to test)
    """
    places = [f"{figure}{number}" for figure in "abc" for number in (1, 2, 3)]
    data, truths, boards = [], [], []
    for seed, count in zip(seeds, rows, strict=True):
        worlds = _boards(count, torch.Generator().manual_seed(seed))
        boards.append(worlds)
        shapes, colours = worlds.flatten(1, 2).unbind(-1)
        pictures = draw_objects(shapes.flatten(), colours.flatten(), seed=seed)
        pictures = pictures.reshape(*shapes.shape, *pictures.shape[1:])
        fields = dict(zip(places, pictures.unbind(1), strict=True))
        data.append({"boards": {**fields, "pattern": _pattern(worlds).long()}})
        read = {"shape": shapes, "colour": colours}
        truths.append(
            {s: {f"boards.{p}": v for p, v in zip(places, x.unbind(1), strict=True)} for s, x in read.items()}
        )
    occurring = torch.unique(torch.cat([boards[0].flatten(1), _pattern(boards[0]).long()[:, None]], 1), dim=0)
    named = [f"{symbol}({place})" for place in places for symbol in ("shape", "colour")]
    words = {"shape": ("square", "circle", "triangle"), "colour": ("red", "yellow", "blue")}
    worlds_told: dict[str, list[Any]] = {
        name: [words[name.partition("(")[0]][v] for v in column]
        for name, column in zip(named, occurring[:, :-1].T.tolist(), strict=True)
    }
    task = Task(
        "kandinsky",
        DRAWN["kandinsky"][0],
        KNOWLEDGE / "kandinsky.doxa",
        lambda: {symbol: logits(Reader(3, 3, 16)) for symbol in ("shape", "colour")},
        data[0],
        data[1],
        target="boards.pattern",
        concepts=truths[1],
        images=[f"boards.{place}" for place in places],
        worlds={**worlds_told, "pattern": [("no", "yes")[v] for v in occurring[:, -1].tolist()]},
        fitting=FITTING,
        spread=10.0,
        starts=4,
    )
    return Drawn(task, truths[0])


def _boards(count: int, random: torch.Generator) -> Tensor:
    """Shape and colour of each object, ``(n, figures, objects, 2)``."""
    worlds = torch.randint(3, (count, 3, 3, 2), generator=random)
    wanted = torch.rand(count, 3, generator=random) < torch.where(torch.arange(count) % 2 == 0, 1.0, 0.5)[:, None]
    shared = torch.randint(2, (count, 3), generator=random)
    for part in range(2):
        own = (wanted & (shared == part))[..., None]
        worlds[..., part] = torch.where(own, worlds[..., :1, part], worlds[..., part])
    return worlds


def _pattern(worlds: Tensor) -> Tensor:
    """Has every figure one shape or one colour? From ``(n, figures, objects, 2)`` to ``(n,)``."""
    found: Tensor = (worlds == worlds[:, :, :1]).all(2).any(-1).all(-1)
    return found


DRAWN: dict[str, tuple[str, Callable[..., Drawn]]] = {
    "driving": ("Whether to stop or to go, from a drawn street: a traffic light, perhaps an obstacle.", driving_drawn),
    "kandinsky": (
        "Drawn figures of coloured shapes, of which only whether they follow a pattern is told.",
        kandinsky_drawn,
    ),
}
NAMES = (*DIGITS, *DRAWN)


def drawn(name: str, mnist: Callable[[], MNIST], rows: Two = ROWS, *, seeds: Two = SEEDS) -> Drawn:
    """Any of these tasks; the digits are loaded only where they are needed."""
    return DRAWN[name][1](rows, seeds=seeds) if name in DRAWN else digits_drawn(name, mnist(), rows, seeds=seeds)
