"""Path planning: what the tiles of a map cost is learnt from the cheapest paths across it (Chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from doxa.data import Batches, PathMaps, map_tiles, optimal_paths, read_warcraft, terrain_maps
from doxa.data._paths import same_paths
from doxa.errors import ConfigError, DataError
from doxa.reproduce._experiment import Entry, Experiment, descend, run_experiment
from doxa.reproduce.paths._methods import RLOO, ANeSI, ImplicitMLE, Method, Neural, Supervised
from doxa.train import Result
from doxa.train.runs._state import seeded
from doxa.train.tasks._settings import require_one_of, require_positive

__all__ = ["PATHS", "PathsConfig"]

MethodName = Literal["supervised", "neural", "rloo", "imle", "a-nesi", "a-nesi-rloo", "a-nesi-control"]
EPOCH = 143
"""Batches of 70 in 10,000 maps."""
MAPS_SEED = 0
"""The maps are the same for every run, like the published files; a run's seed is that of everything else."""


@dataclass(frozen=True)
class PathsConfig:
    """How path planning is learnt.

    Args:
        method: ``"rloo"``, ``"imle"``, ``"a-nesi"``, the sum ``"a-nesi-rloo"``, or ``"a-nesi-control"`` with A-NeSI as
            control variate; ``"neural"`` knows nothing, and ``"supervised"`` sees the kinds of tiles.
        size: tiles on a side of a map.
        steps: in all, those of pretraining included.
        pretrain: the first so many steps train the inference model of A-NeSI, which is then held fixed.
        maps: training maps; there are a tenth as many to validate on, and as many to test on.
        batch_size: maps in a batch.
        learning_rate: of Adam, for perception.
        samples: worlds or perturbed costs drawn for each map.
        deviation: of the perturbed costs of I-MLE, in tenths.
        reach: λ of I-MLE, in tenths.
        beliefs: drawn in a step of pretraining.
        inference_rate: of Adam, for the inference model.
        concentration: α of the Dirichlet prior over beliefs.
        channels: the width of the inference model.
        layers: its residual blocks.
        evaluate_every: steps between two looks at the validation maps.
        warcraft: the published maps, in a folder that has to be given, instead of generated ones.

    >>> PathsConfig("rloo").steps
    1430
    """

    method: MethodName = "rloo"
    size: int = 12
    steps: int = 10 * EPOCH
    pretrain: int = 0
    maps: int = 10_000
    batch_size: int = 70
    learning_rate: float = 5e-4
    samples: int = 10
    deviation: float = 5.0
    reach: float = 20.0
    beliefs: int = 200
    inference_rate: float = 2.5e-4
    concentration: float = 0.005
    channels: int = 32
    layers: int = 4
    evaluate_every: int = EPOCH
    warcraft: bool = False

    def __post_init__(self) -> None:
        require_one_of(self, "method", MethodName)
        require_positive(
            self,
            "size",
            "steps",
            "maps",
            "batch_size",
            "learning_rate",
            "samples",
            "deviation",
            "reach",
            "beliefs",
            "inference_rate",
            "concentration",
            "channels",
            "layers",
            "evaluate_every",
        )
        if self.pretrain < 0 or (self.pretrain and not self.method.startswith("a-nesi")):
            raise ConfigError(f"pretrain is {self.pretrain}, expected 0 or more, and 0 for {self.method}")


def make_method(config: PathsConfig, maps: PathMaps, noise: torch.Generator) -> Method:
    """The method of a configuration, for maps of this size."""
    problem, shape = maps.problem(), (config.size, config.size)
    match config.method:
        case "supervised":
            return Supervised(problem, shape)
        case "neural":
            return Neural(problem, shape)
        case "rloo":
            return RLOO(problem, shape, config.samples, noise)
        case "imle":
            return ImplicitMLE(problem, shape, config.samples, noise, config.deviation, config.reach)
    forms: dict[str, Literal["alone", "sum", "control"]] = {"a-nesi": "alone", "a-nesi-rloo": "sum"}
    form = forms.get(config.method, "control")
    return ANeSI(problem, shape, form, config.samples, noise, config.concentration, config.channels, config.layers)


def train_paths(config: PathsConfig, path: Path, *, seed: int, data: Path | None, progress: bool) -> Result:
    """Do one run, or go on with it.

    Metrics of the result, in percent of the test maps, by the checkpoint that was best on the validation maps:
    ``optimal``, paths that are as cheap as the cheapest; ``same``, paths that are the very ones given; ``tiles``, tiles
    whose kind is right. Beside them ``nearest_mean``, tiles whose kind is that of the nearest of the mean tiles.
    """
    training, validation, test = load_maps(config, data)
    noise = torch.Generator().manual_seed(seed)
    with seeded(seed):
        method = make_method(config, training, noise)
    batches = Batches((training.images, training.paths, training.kinds), config.batch_size, seed=seed)
    engine = method.engine.model if isinstance(method, ANeSI) else None
    learnt = [p for name, p in method.named_parameters() if not name.startswith("engine.")]
    optimizer = torch.optim.Adam(learnt, lr=config.learning_rate)
    state: dict[str, Any] = {"method": method, "optimizer": optimizer, "batches": batches, "noise": noise}
    if engine is not None:
        state["inference"] = inference = torch.optim.Adam(engine.parameters(), lr=config.inference_rate)

    def step(i: int) -> Tensor:
        if isinstance(method, ANeSI) and i < config.pretrain:
            return descend(method.engine.inference_loss(config.beliefs, generator=noise), inference)
        images, paths, kinds = batches.next()
        return descend(method(map_tiles(images), paths.flatten(1).long(), kinds.flatten(1).long()), optimizer)

    run, result = run_experiment(
        config,
        path,
        step,
        state,
        seed=seed,
        evaluate=lambda: measure(method, validation),
        best="optimal",
        evaluate_every=config.evaluate_every,
        evaluate_after=config.pretrain,  # before, perception has not begun to learn
        save_every=config.evaluate_every,
        progress=progress,
    )
    kept = run.load("best" if config.steps > config.pretrain else "last")
    method.load_state_dict(kept.state["method"])
    final = {"nearest_mean": nearest_mean(training, test), **measure(method, test)}
    return replace(result, metrics={"loss": result.metrics["loss"], **final})


def load_maps(config: PathsConfig, data: Path | None) -> tuple[PathMaps, PathMaps, PathMaps]:
    """Maps to train, to validate and to test on."""
    if config.warcraft != (data is not None):
        raise DataError(
            "this configuration takes the Warcraft maps: name the folder that holds 12x12/train_maps.npy with --data"
            if config.warcraft
            else "this configuration generates its maps; those for a folder have names that begin with warcraft"
        )
    fewer = max(1, config.maps // 10)
    return (
        _some(config, data, "train", config.maps),
        _some(config, data, "val", fewer),
        _some(config, data, "test", fewer),
    )


def _some(config: PathsConfig, data: Path | None, split: Literal["train", "val", "test"], n: int) -> PathMaps:
    if data is None:
        return terrain_maps(split, n, size=config.size, seed=MAPS_SEED)
    maps = read_warcraft(data, split, size=config.size)
    if len(maps) < n:
        raise DataError(f"{data} has {len(maps)} {split} maps, expected {n}; set maps, of which a tenth is for testing")
    return PathMaps(maps.images[:n], maps.kinds[:n], maps.paths[:n])


@torch.no_grad()
def measure(method: Method, maps: PathMaps) -> dict[str, float]:
    """How many of a hundred paths are optimal, how many the very same, and how many tiles are of the right kind."""
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
    """As in the dissertation, "Warcraft Visual Path Planning" of its appendix."""
    config = PathsConfig(method, size, warcraft=True)
    if not method.startswith("a-nesi"):
        return config
    pretrain, beliefs = (185_000, 200) if size == 12 else (370_000, 20)
    epochs, rate = (1, 0.0084) if method == "a-nesi" else (10, 5e-4)
    steps = pretrain + epochs * EPOCH
    return replace(config, pretrain=pretrain, beliefs=beliefs, steps=steps, learning_rate=rate)


def _own_schedule(method: MethodName, size: int) -> PathsConfig:
    """Pretraining that ends within half an hour, and the same ten epochs with the same rate for all."""
    config = PathsConfig(method, size, learning_rate=3e-3)
    if not method.startswith("a-nesi"):
        return config
    pretrain, beliefs = 6_000, 64 if size == 12 else 16
    return replace(
        config, pretrain=pretrain, beliefs=beliefs, inference_rate=1e-3, channels=24, steps=pretrain + 10 * EPOCH
    )


def _entries() -> tuple[Entry, ...]:
    entries = []
    for column, size in enumerate((12, 30)):
        for source, schedule in (("terrain", _own_schedule), ("warcraft", _published_schedule)):
            for method, numbers in PUBLISHED.items():
                published = {} if numbers is None else {"optimal": numbers[column]}
                told = "" if numbers is None else "dissertation, Chapter 6, on Warcraft maps"
                entries.append(Entry(f"{source}-{size}/{method}", schedule(method, size), published, told))
    return tuple(entries)


PATHS = Experiment(
    "paths",
    "Cheapest paths across maps, learnt from paths alone",
    _entries(),
    train_paths,
    ("optimal", "same", "tiles", "nearest_mean"),
)
