"""How a network learns what tiles cost from the cheapest paths alone: one class for each method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from doxa.amortized import (
    AmortizedControl,
    AmortizedReasoner,
    FixedDirichlet,
    GridCNN,
    with_sampling,
    worlds_of,
)
from doxa.data import TILE_COSTS
from doxa.problem import Belief, Problem, cheapest_paths
from doxa.stochastic import IMLE, LeaveOneOut, Tape

CHEAPEST = 0.1  # in tenths; perturbed costs must stay positive


def tile_network(outputs: int = len(TILE_COSTS)) -> nn.Sequential:
    """The network that A-NeSI perceives tiles with: one convolution and two linear layers, the last of them 84→5.

    Returns:
        A module from tiles ``(n, 3, 8, 8)`` to logits ``(n, outputs)``.

    >>> sum(parameter.numel() for parameter in tile_network().parameters())
    2981
    """
    return nn.Sequential(
        nn.Conv2d(3, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 84),
        nn.ReLU(),
        nn.Linear(84, outputs),
    )


class Method(nn.Module, ABC):
    """A method sees the tiles of maps ``(b, W, 3, 8, 8)`` and the cells on their paths, int64 ``(b, W)``.

    ``forward`` is the loss that trains perception, and ``plan`` the path that is predicted, uint8 ``(b, H, W)``.
    """

    def __init__(self, problem: Problem, shape: tuple[int, int]) -> None:
        super().__init__()
        self.problem, self.shape = problem, shape
        self.perception: nn.Module = tile_network()

    def logits(self, tiles: Tensor) -> Tensor:
        """What perception says of the kind of each tile, ``(b, W, 5)``."""
        found: Tensor = self.perception(tiles.flatten(0, 1))
        return torch.unflatten(found, 0, tiles.shape[:2])

    @abstractmethod
    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        """The loss of a batch. Only what learns from labels looks at the kinds of tiles, int64 ``(b, W)``."""

    def plan(self, tiles: Tensor) -> Tensor:
        """The cheapest path if every tile is of its most probable kind."""
        cells: Tensor = self.problem(self.logits(tiles).argmax(-1))
        return torch.unflatten(cells, -1, self.shape).to(torch.uint8)


class Supervised(Method):
    """The kinds of tiles are given: how well the network can do at all."""

    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        return cross_entropy(self.logits(tiles).flatten(0, 1), kinds.flatten())


class Neural(Method):
    """No knowledge: a convolutional network goes from the map to the cells on the path, each by itself."""

    def __init__(self, problem: Problem, shape: tuple[int, int], channels: int = 32, layers: int = 6) -> None:
        super().__init__(problem, shape)
        self.perception = tile_network(channels)
        blocks = [nn.Conv2d(channels, channels, 3, padding=1 + i % 2, dilation=1 + i % 2) for i in range(layers)]
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Conv2d(channels, 1, 1)

    def scores(self, tiles: Tensor) -> Tensor:
        """Log-odds of each cell, ``(b, W)``."""
        x = torch.unflatten(self.logits(tiles).transpose(1, 2), -1, self.shape)
        for block in self.blocks:
            x = x + block(x.relu())
        found: Tensor = self.head(x.relu())
        return found.flatten(1)

    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(self.scores(tiles), cells.float())

    def plan(self, tiles: Tensor) -> Tensor:
        return torch.unflatten(self.scores(tiles) > 0, -1, self.shape).to(torch.uint8)


class RLOO(Method):
    """The score function with the leave-one-out baseline; the cost is how many cells are wrong."""

    def __init__(self, problem: Problem, shape: tuple[int, int], samples: int, noise: torch.Generator) -> None:
        super().__init__(problem, shape)
        self.samples, self.noise = samples, noise

    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        tape = Tape(batch_dims=1, generator=self.noise)
        worlds = tape.sample(worlds_of(Belief.from_logits(self.logits(tiles))), LeaveOneOut(self.samples))
        tape.cost(hamming(self.problem(worlds), cells))
        return tape.surrogate()


class ImplicitMLE(Method):
    """I-MLE: expected costs are perturbed, paths are found, and found again where the gradient of the cost points."""

    def __init__(
        self,
        problem: Problem,
        shape: tuple[int, int],
        samples: int,
        noise: torch.Generator,
        deviation: float,
        reach: float,
    ) -> None:
        super().__init__(problem, shape)
        self.samples, self.noise, self.deviation, self.reach = samples, noise, deviation, reach

    def costs(self, tiles: Tensor) -> Tensor:
        """What each tile is expected to cost, in tenths, ``(b, W)``."""
        return self.logits(tiles).softmax(-1) @ torch.tensor(TILE_COSTS, dtype=torch.float32)

    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        # I-MLE maximises u · z, so u = -cost.
        around = Independent(Normal(-self.costs(tiles), self.deviation), 1)
        tape = Tape(batch_dims=1, generator=self.noise)
        # The loss is an average over maps and samples; the reach is meant for each of them.
        reach = self.reach * self.samples * len(tiles)
        z = tape.sample(around, IMLE(self._solve, n=self.samples, step=reach))
        truth = cells.to(z)
        tape.cost((z * (1 - truth) + (1 - z) * truth).sum(-1))
        return tape.surrogate(allow_biased=True)

    def _solve(self, u: Tensor) -> Tensor:
        costs = torch.unflatten((-u).clamp_min(CHEAPEST), -1, self.shape)
        return cheapest_paths(costs).cells.flatten(-2).to(u)

    def plan(self, tiles: Tensor) -> Tensor:
        return cheapest_paths(torch.unflatten(self.costs(tiles), -1, self.shape)).cells


class ANeSI(Method):
    """Amortised inference: q(path | belief) is learnt from random beliefs, then trains perception.

    Alone (``"alone"``), as a sum with leave-one-out (``"sum"``, the dissertation's), or as its control variate
    (``"control"``), which keeps the gradient unbiased.
    """

    def __init__(
        self,
        problem: Problem,
        shape: tuple[int, int],
        form: Literal["alone", "sum", "control"],
        samples: int,
        noise: torch.Generator,
        concentration: float,
        channels: int,
        layers: int,
        trust: float = 1.0,
    ) -> None:
        super().__init__(problem, shape)
        self.form, self.samples, self.noise, self.trust = form, samples, noise, trust
        model = GridCNN(problem, shape, reads="cells", channels=channels, layers=layers, explain=False)
        self.engine = AmortizedReasoner(problem, model, FixedDirichlet(problem.world, concentration))

    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        belief = Belief.from_logits(self.logits(tiles))
        if self.form == "alone":
            return self.engine.loss(belief, cells).mean()
        if self.form == "sum":
            estimator = LeaveOneOut(self.samples)
            return with_sampling(self.engine, belief, cells, hamming, estimator, generator=self.noise).mean()
        control = AmortizedControl(lambda p: self.engine.expected_hamming(p, cells), self.samples, scale=self.trust)
        tape = Tape(batch_dims=1, generator=self.noise)
        tape.cost(hamming(self.problem(tape.sample(worlds_of(belief), control)), cells))
        return tape.surrogate()


def hamming(found: Tensor, wanted: Tensor) -> Tensor:
    """How many cells differ, ``(...)``.

    >>> hamming(torch.tensor([1, 0, 1]), torch.tensor([1, 1, 0]))
    tensor(2.)
    """
    return (found != wanted).to(torch.get_default_dtype()).sum(-1)
