"""Path planning: what the tiles of a map cost is learnt from the cheapest paths across it (Chapter 6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from doxa.amortized import (
    AmortizedControl,
    AmortizedReasoner,
    FixedDirichlet,
    GridCNN,
    MoveResNet,
    PathPruner,
    with_sampling,
    worlds_of,
)
from doxa.data import TILE_COSTS, Batches, PathMaps, map_tiles, optimal_paths, read_warcraft, terrain_maps
from doxa.data._paths import Split, same_paths
from doxa.errors import ConfigError, DataError
from doxa.problem import Belief, Problem, cheapest_paths, path_cells, path_moves, shortest_path
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, descend, train
from doxa.stochastic import IMLE, LeaveOneOut, Tape
from doxa.train import Run

MethodName = Literal["supervised", "neural", "rloo", "imle", "a-nesi", "a-nesi-rloo", "a-nesi-control"]
EPOCH = 143
"""Batches of 70 in 10,000 maps."""
MAPS_SEED = 0
"""The maps are the same for every run, like the published files; a run's seed is that of everything else."""
CHEAPEST = 0.1  # in tenths; perturbed costs must stay positive


@dataclass(frozen=True)
class PathsConfig(Settings):
    """How path planning is learnt."""

    # ``"rloo"``, ``"imle"``, ``"a-nesi"``, the sum ``"a-nesi-rloo"``, or ``"a-nesi-control"`` with A-NeSI as control
    # variate; ``"neural"`` knows nothing, and ``"supervised"`` sees the kinds of tiles
    method: MethodName = "rloo"
    size: int = 12  # tiles on a side of a map
    steps: int = 10 * EPOCH  # in all, those of pretraining included
    pretrain: int = 0  # the first so many steps train the inference model of A-NeSI, which is then held fixed
    maps: int = 10_000  # training maps; there are a tenth as many to validate on, and as many to test on
    batch_size: int = 70  # maps in a batch
    learning_rate: float = 5e-4  # of Adam, for perception
    samples: int = 10  # worlds or perturbed costs drawn for each map
    deviation: float = 5.0  # of the perturbed costs of I-MLE, in tenths
    reach: float = 20.0  # λ of I-MLE, in tenths
    beliefs: int = 200  # drawn in a step of pretraining
    inference_rate: float = 2.5e-4  # of Adam, for the inference model
    concentration: float = 0.005  # α of the Dirichlet prior over beliefs
    # ``"cells"``, one run of a network over the map decides each cell of the path; or ``"moves"``, as published: a
    # residual network looks at the map and at the place reached, move by move, and a pruner forbids what is no path
    model: Literal["cells", "moves"] = "cells"
    channels: int = 32  # the width of the inference model
    layers: int = 4  # residual blocks of the model of cells
    evaluate_every: int = EPOCH  # steps between two looks at the validation maps
    warcraft: bool = False  # the published maps, in a folder that has to be given, instead of generated ones

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pretrain and not self.method.startswith("a-nesi"):
            raise ConfigError(f"pretrain is {self.pretrain}, expected 0 or more, and 0 for {self.method}")
        if self.model == "moves" and self.method == "a-nesi-control":
            raise ConfigError("model is 'moves', expected 'cells' for a-nesi-control: its cost counts wrong cells")

    def training(self, given: Given) -> Training:
        """The test maps are measured by the checkpoint that was best on the validation maps."""
        training, validation, test = load_maps(self, given.data)
        noise = torch.Generator().manual_seed(given.seed)
        method = make_method(self, training.problem(), noise)
        batches = Batches((training.images, training.paths, training.kinds), self.batch_size, seed=given.seed)
        learnt = [p for name, p in method.named_parameters() if not name.startswith("engine.")]
        optimizer = torch.optim.Adam(learnt, lr=self.learning_rate)
        state: dict[str, Any] = {"method": method, "optimizer": optimizer, "batches": batches, "noise": noise}
        if isinstance(method, ANeSI):
            inference = torch.optim.Adam(method.engine.model.parameters(), lr=self.inference_rate)
            state["inference"] = inference

        def step(i: int) -> Tensor:
            if isinstance(method, ANeSI) and i < self.pretrain:
                return descend(method.engine.inference_loss(self.beliefs, generator=noise), inference)
            images, paths, kinds = batches.next()
            return descend(method(map_tiles(images), paths.flatten(1).long(), kinds.flatten(1).long()), optimizer)

        def final(run: Run) -> dict[str, float]:
            kept = run.load("best" if self.steps > self.pretrain else "last")
            method.load_state_dict(kept.state["method"])
            return {"nearest_mean": nearest_mean(training, test), **measure(method, test)}

        return Training(
            step,
            state,
            final,
            keep=("loss",),
            evaluate=lambda: measure(method, validation),
            best="optimal",
            evaluate_after=self.pretrain,  # before, perception has not begun to learn
        )


def tile_network(outputs: int = len(TILE_COSTS)) -> nn.Sequential:
    """The network that A-NeSI perceives tiles with, from tiles ``(n, 3, 8, 8)`` to logits ``(n, outputs)``.

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

    def __init__(self, config: PathsConfig, problem: Problem, noise: torch.Generator) -> None:
        super().__init__()
        self.config, self.problem, self.noise = config, problem, noise
        self.perception: nn.Module = tile_network()

    def logits(self, tiles: Tensor) -> Tensor:
        """What perception says of the kind of each tile, ``(b, W, 5)``."""
        found: Tensor = self.perception(tiles.flatten(0, 1))
        return torch.unflatten(found, 0, tiles.shape[:2])

    def grid(self, cells: Tensor) -> Tensor:
        """What is said of each cell, ``(..., W)``, as a grid ``(..., H, W)``."""
        return torch.unflatten(cells, -1, (self.config.size, self.config.size))

    @abstractmethod
    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        """The loss of a batch. Only what learns from labels looks at the kinds of tiles, int64 ``(b, W)``."""

    def plan(self, tiles: Tensor) -> Tensor:
        """The cheapest path if every tile is of its most probable kind."""
        return self.grid(self.problem(self.logits(tiles).argmax(-1))).to(torch.uint8)


class Supervised(Method):
    """The kinds of tiles are given: how well the network can do at all."""

    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        return cross_entropy(self.logits(tiles).flatten(0, 1), kinds.flatten())


class Neural(Method):
    """No knowledge: a convolutional network goes from the map to the cells on the path, each by itself."""

    def __init__(self, config: PathsConfig, problem: Problem, noise: torch.Generator) -> None:
        super().__init__(config, problem, noise)
        self.perception = tile_network(32)
        self.blocks = nn.ModuleList([nn.Conv2d(32, 32, 3, padding=1 + i % 2, dilation=1 + i % 2) for i in range(6)])
        self.head = nn.Conv2d(32, 1, 1)

    def scores(self, tiles: Tensor) -> Tensor:
        """Log-odds of each cell, ``(b, W)``."""
        x = self.grid(self.logits(tiles).transpose(1, 2))
        for block in self.blocks:
            x = x + block(x.relu())
        found: Tensor = self.head(x.relu())
        return found.flatten(1)

    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(self.scores(tiles), cells.float())

    def plan(self, tiles: Tensor) -> Tensor:
        return self.grid(self.scores(tiles) > 0).to(torch.uint8)


class RLOO(Method):
    """The score function with the leave-one-out baseline; the cost is how many cells are wrong."""

    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        tape = Tape(batch_dims=1, generator=self.noise)
        worlds = tape.sample(worlds_of(Belief.from_logits(self.logits(tiles))), LeaveOneOut(self.config.samples))
        tape.cost(hamming(self.problem(worlds), cells))
        return tape.surrogate()


class ImplicitMLE(Method):
    """I-MLE: expected costs are perturbed, paths are found, and found again where the gradient of the cost points."""

    def costs(self, tiles: Tensor) -> Tensor:
        """What each tile is expected to cost, in tenths, ``(b, W)``."""
        return self.logits(tiles).softmax(-1) @ torch.tensor(TILE_COSTS, dtype=torch.float32)

    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        # I-MLE maximises u · z, so u = -cost.
        around = Independent(Normal(-self.costs(tiles), self.config.deviation), 1)
        tape = Tape(batch_dims=1, generator=self.noise)
        # The loss is an average over maps and samples; the reach is meant for each of them.
        reach = self.config.reach * self.config.samples * len(tiles)
        z = tape.sample(around, IMLE(self._solve, n=self.config.samples, step=reach))
        truth = cells.to(z)
        tape.cost((z * (1 - truth) + (1 - z) * truth).sum(-1))
        return tape.surrogate(allow_biased=True)

    def _solve(self, u: Tensor) -> Tensor:
        return cheapest_paths(self.grid((-u).clamp_min(CHEAPEST))).cells.flatten(-2).to(u)

    def plan(self, tiles: Tensor) -> Tensor:
        return cheapest_paths(self.grid(self.costs(tiles))).cells


class ANeSI(Method):
    """Amortised inference: q(path | belief) is learnt from random beliefs, then trains perception.

    Alone (``"a-nesi"``), as a sum with leave-one-out (``"a-nesi-rloo"``, the dissertation's), or as its control variate
    (``"a-nesi-control"``), which keeps the gradient unbiased.
    """

    def __init__(self, config: PathsConfig, problem: Problem, noise: torch.Generator) -> None:
        super().__init__(config, problem, noise)
        shape = (config.size, config.size)
        self.moves = config.size**2 - 1 if config.model == "moves" else None  # enough for every path
        asked = problem if self.moves is None else shortest_path(*shape, costs=TILE_COSTS, moves=self.moves)
        model: GridCNN | MoveResNet = (
            GridCNN(asked, shape, reads="cells", channels=config.channels, layers=config.layers, explain=False)
            if self.moves is None
            else MoveResNet(asked, shape, channels=config.channels)
        )
        pruner = None if self.moves is None else PathPruner(shape, self.moves, problem.world)
        self.engine = AmortizedReasoner(asked, model, FixedDirichlet(problem.world, config.concentration), pruner)

    def forward(self, tiles: Tensor, cells: Tensor, kinds: Tensor) -> Tensor:
        belief, samples = Belief.from_logits(self.logits(tiles)), self.config.samples
        path = cells if self.moves is None else path_moves(self.grid(cells), self.moves)
        if self.config.method == "a-nesi":
            return self.engine.loss(belief, path).mean()
        if self.config.method == "a-nesi-rloo":
            estimator = LeaveOneOut(samples)
            return with_sampling(self.engine, belief, path, self._cost, estimator, generator=self.noise).mean()
        control = AmortizedControl(lambda p: self.engine.expected_hamming(p, cells), samples, scale=1.0)
        tape = Tape(batch_dims=1, generator=self.noise)
        tape.cost(hamming(self.problem(tape.sample(worlds_of(belief), control)), cells))
        return tape.surrogate()

    def _cost(self, found: Tensor, wanted: Tensor) -> Tensor:
        """How many cells differ, of paths that may be given as moves."""
        if self.moves is None:
            return hamming(found, wanted)
        size = self.config.size
        return hamming(path_cells(found, size, size).flatten(-2), path_cells(wanted, size, size).flatten(-2))


def make_method(config: PathsConfig, problem: Problem, noise: torch.Generator) -> Method:
    """The method of a configuration, for maps that pose this problem."""
    methods: dict[str, Callable[..., Method]] = {
        "supervised": Supervised,
        "neural": Neural,
        "rloo": RLOO,
        "imle": ImplicitMLE,
    }
    return methods.get(config.method, ANeSI)(config, problem, noise)


def hamming(found: Tensor, wanted: Tensor) -> Tensor:
    """How many cells differ, ``(...)``."""
    return (found != wanted).to(torch.get_default_dtype()).sum(-1)


def load_maps(config: PathsConfig, data: Path | None) -> tuple[PathMaps, PathMaps, PathMaps]:
    """Maps to train, to validate and to test on."""
    if config.warcraft != (data is not None):
        raise DataError(
            "this configuration takes the Warcraft maps: name the folder that holds 12x12/train_maps.npy with --data"
            if config.warcraft
            else "this configuration generates its maps; those for a folder have names that begin with warcraft"
        )
    maps = []
    fewer = max(1, config.maps // 10)
    counts: dict[Split, int] = {"train": config.maps, "val": fewer, "test": fewer}
    for split, n in counts.items():
        if data is None:
            maps.append(terrain_maps(split, n, size=config.size, seed=MAPS_SEED))
            continue
        found = read_warcraft(data, split, size=config.size)
        if len(found) < n:
            raise DataError(
                f"{data} has {len(found)} {split} maps, expected {n}; set maps, of which a tenth is for testing"
            )
        maps.append(PathMaps(found.images[:n], found.kinds[:n], found.paths[:n]))
    return maps[0], maps[1], maps[2]


@torch.no_grad()
def measure(method: Method, maps: PathMaps) -> dict[str, float]:
    """In percent of the maps: ``optimal``, paths that are as cheap as the cheapest; ``same``, paths that are the very
    ones given; ``tiles``, tiles whose kind is right.
    """
    plans, kinds = [], []
    for images in torch.split(maps.images, 100):
        tiles = map_tiles(images)
        plans.append(method.plan(tiles))
        kinds.append(method.logits(tiles).argmax(-1))
    cells = torch.cat(plans)
    found = {"optimal": optimal_paths(cells, maps.costs), "same": same_paths(cells, maps.paths)}
    if not isinstance(method, Neural):  # which has no opinion on kinds
        found["tiles"] = torch.cat(kinds) == maps.kinds.flatten(1)
    return {name: 100 * float(right.double().mean()) for name, right in found.items()}


def nearest_mean(training: PathMaps, test: PathMaps, most: int = 500) -> float:
    """How many of a hundred tiles are of the kind whose mean, over some training maps, is nearest in all pixels."""
    tiles = map_tiles(training.images[:most]).flatten(0, 1).flatten(1)
    kinds = training.kinds[:most].flatten()
    means = torch.stack([tiles[kinds == kind].mean(0) for kind in torch.unique(kinds)])
    near = torch.cdist(map_tiles(test.images[:most]).flatten(0, 1).flatten(1), means).argmin(1)
    return 100 * float((torch.unique(kinds)[near] == test.kinds[:most].flatten()).double().mean())


PUBLISHED: dict[MethodName, tuple[float, float] | None] = {  # on 12×12 and on 30×30 maps
    "supervised": None,
    "neural": (23.0, 0.0),
    "rloo": (43.75, 12.59),
    "imle": (97.2, 93.7),
    "a-nesi": (94.57, 17.13),
    "a-nesi-rloo": (98.96, 67.57),
    "a-nesi-control": None,
}
"""Optimal paths on the Warcraft maps; "neural" is a ResNet18."""


def _published_schedule(method: MethodName, size: int) -> PathsConfig:
    """Model, steps, rates and beliefs of the appendix, "Warcraft Visual Path Planning".

    A-NeSI has ResNet18 over the map and the place reached. As a control variate, which is ours, it has the model of
    cells with these steps and rates.
    """
    config = PathsConfig(method, size, warcraft=True)
    if not method.startswith("a-nesi"):
        return config
    pretrain, beliefs = (185_000, 200) if size == 12 else (370_000, 20)
    epochs, rate = (1, 0.0084) if method == "a-nesi" else (10, 5e-4)
    steps = pretrain + epochs * EPOCH
    config = replace(config, pretrain=pretrain, beliefs=beliefs, steps=steps, learning_rate=rate)
    return config if method == "a-nesi-control" else replace(config, model="moves", channels=64)


def _own_schedule(method: MethodName, size: int) -> PathsConfig:
    """Pretraining that ends within half an hour, and the same ten epochs with the same rate for all."""
    config = PathsConfig(method, size, learning_rate=3e-3)
    if not method.startswith("a-nesi"):
        return config
    pretrain, beliefs = 6_000, 64 if size == 12 else 16
    return replace(
        config, pretrain=pretrain, beliefs=beliefs, inference_rate=1e-3, channels=24, steps=pretrain + 10 * EPOCH
    )


def _moves_schedule(method: MethodName, size: int) -> PathsConfig:
    """The published model at a quarter of its width, with our schedule otherwise."""
    return replace(_own_schedule(method, size), model="moves", channels=16)


MOVED: tuple[MethodName, ...] = ("a-nesi", "a-nesi-rloo")


def _entry(name: str, config: PathsConfig) -> Entry:
    numbers = PUBLISHED[config.method]
    source = "" if numbers is None else "dissertation, Chapter 6, on Warcraft maps"
    return Entry(name, config, {} if numbers is None else {"optimal": numbers[config.size == 30]}, source)


PATHS = Experiment(
    "paths",
    "Cheapest paths across maps, learnt from paths alone",
    tuple(
        entry
        for size in (12, 30)
        for entry in (
            *[_entry(f"terrain-{size}/{method}", _own_schedule(method, size)) for method in PUBLISHED],
            *[_entry(f"terrain-{size}/{method}-moves", _moves_schedule(method, size)) for method in MOVED],
            *[_entry(f"warcraft-{size}/{method}", _published_schedule(method, size)) for method in PUBLISHED],
        )
    ),
    train,
    ("optimal", "same", "tiles", "nearest_mean"),
)
