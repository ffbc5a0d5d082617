"""Committed results: some of each experiment are trained again up to the early step whose metrics were kept.

Another processor rounds differently, which is like noise in the last bits of the parameters; `check_prefix` has to let
that pass and to notice whatever else changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from doxa.data import MNIST
from doxa.errors import DataError, RunError
from doxa.reproduce import (
    ADDITION,
    AGGREGATES,
    COUNTING,
    GRAPHS,
    GRID,
    HMC,
    KINSHIP,
    PATHS,
    PREFERENCES,
    ROAD,
    SAME,
    SAT,
    SCALE,
    SHORTCUTS,
    SUDOKU,
    SUM9,
    TIMES,
    VAE,
    Experiment,
    train_digits,
)
from doxa.reproduce import _paths as paths
from doxa.reproduce._digits import DigitsConfig
from doxa.reproduce._queue import EXPERIMENTS
from doxa.train import Result, Run, check_prefix, config_values, load_config

RESULTS = Path(__file__).parents[2] / "results"
SHARED = Path(os.environ.get("DOXA_DATA", Path(__file__).parents[3] / "shared" / "data"))

RERUN: dict[str, tuple[Experiment, tuple[str, ...]]] = {
    "addition": (
        ADDITION,
        (
            "refine/3000",
            "ltn/3000",
            "exact/n-1",
            "exact/n-15-dropout",
            "amortized/scan-predict-n-1",
            "amortized/mlp-predict-n-1",
        ),
    ),
    "aggregates": (AGGREGATES, ("lists/sum", "grids/exact-3")),
    "counting": (COUNTING, ("3-sat/graph", "hierarchy/scan")),
    "paths": (PATHS, ("terrain-12/rloo", "terrain-12/a-nesi-moves")),
    "same": (SAME, ("implications/reichenbach-sigmoidal",)),
    "sudoku": (SUDOKU, ("exact/4x4", "amortized/4x4", "pairs/4x4", "published/4x4")),
    "sum9": (SUM9, ("symmetric/product",)),
    "sat": (SAT, ("91-clauses/godel-refine-1",)),
    "vae": (VAE, ("*",)),
    "hmc": (HMC, ("enron/constrained", "eisen/layer", "cellcycle/mixture")),
    "preferences": (PREFERENCES, ("six-to-four/constrained", "six-to-four/mixture")),
    "grid": (GRID, ("paths-ends/constrained",)),
    "road": (ROAD, ("scores/even",)),
    "shortcuts": (SHORTCUTS, ("xor/mixture", "evenodd/exact", "xor/fuzzy", "labels-half/ask-1")),
    "kinship": (KINSHIP, ("pairs/given", "pairs/learnt")),
    "times": (TIMES, ("n-15-shifted/exact", "n-1/scan", "n-1/loo", "n-1/fuzzy", "n-1/refined")),
    "scale": (SCALE, ("addition/exact-100", "lists/exact-16")),
    "graphs": (GRAPHS, ("nations/rules",)),
}
"""Experiments, and which of their entries are trained again: of each pattern, the first that has a result."""
DATA = {"hmc": "hmc", "preferences": "semantic_loss", "grid": "semantic_loss", "road": "road_r", "graphs": "graphs"}
"""Folders with data that are not ours and may not be here."""


class Reached(Exception):
    """The early step is done, and nothing more is needed."""


@pytest.fixture(autouse=True, scope="module")
def data_once() -> Iterator[None]:
    """Digits and maps are read and drawn once."""
    load = cache(partial(MNIST.load, progress=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MNIST, "load", lambda *_, **__: load())
        patch.setattr(paths, "terrain_maps", cache(paths.terrain_maps))
        yield


def metrics_of_rerun(name: str, result: Result, folder: Path, **changes: Any) -> dict[str, float]:
    """The metrics at the early step, of a run as it was or with changed settings or another seed."""
    seed = changes.pop("seed", result.seed)
    config = load_config(DigitsConfig, result.config) if name == "digits" else configuration(RERUN[name][0], result)
    config, found, log = replace(config, **changes), {}, Run.log

    def until(run: Run, step: int, metrics: Any) -> None:
        log(run, step, metrics)
        if step == result.prefix_step:
            found.update(run.metrics_at(step))
            raise Reached

    with pytest.MonkeyPatch.context() as patch, suppress(Reached):
        patch.setattr(Run, "log", until)
        try:
            if name == "digits":
                train_digits(MNIST.load(), folder, config, seed=seed, progress=False)
            else:
                place = SHARED / DATA[name] if name in DATA else None
                RERUN[name][0].train(config, folder, seed=seed, data=place, progress=False)
        except DataError as error:
            pytest.skip(f"the data cannot be had here: {error}")
    return found


def configuration(experiment: Experiment, result: Result) -> Any:
    """What was run, which has to be the entry it was called by, apart from the budget."""
    name, *changes = result.experiment.removeprefix(f"{experiment.name}/").split("+")
    (entry,) = experiment.select([name])
    assert entry.name == name, f"{result.experiment} is no entry of {experiment.name}"
    config = load_config(type(entry.config), result.config)
    assert config == load_config(
        type(entry.config), config_values(entry.config), overrides=[*changes, f"steps={result.steps}"]
    )
    return config


def committed(name: str) -> list[Result]:
    return [Result.read(file) for file in sorted((RESULTS / name).glob("*.json"))]


def chosen(name: str) -> list[Result]:
    """The results of an experiment that are made again; if none of those named is there, the first of all."""
    results = committed(name)
    if name == "digits":
        return results[:1]
    experiment, patterns = RERUN[name]
    found = []
    for pattern in patterns:
        names = {f"{name}/{entry.name}" for entry in experiment.select([pattern])}
        found += [r for r in results if r.experiment in names][:1]
    return found or results[:1]


def test_every_experiment_is_made_again() -> None:
    assert set(RERUN) == {experiment.name for experiment in EXPERIMENTS}


FOLDERS = sorted([p.name for p in RESULTS.iterdir() if p.is_dir()])
AGAIN = [pytest.param(name, result, id=result.experiment) for name in FOLDERS for result in chosen(name)]


@pytest.mark.parametrize("name", FOLDERS)
def test_committed_results_are_of_known_configurations(name: str) -> None:
    for result in committed(name):
        assert result.command and result.started and result.machine and result.prefix and result.metrics
        assert result.experiment.split("/")[0] == name
        if name != "digits":
            experiment, _ = RERUN[name]
            assert configuration(experiment, result)
            assert set(experiment.metrics[:1]) <= set(result.metrics)


@pytest.mark.parametrize(("name", "result"), AGAIN)
def test_prefix_of_a_committed_result(name: str, result: Result, tmp_path: Path) -> None:
    check_prefix(result, metrics_of_rerun(name, result, tmp_path))


LEARNING = [pytest.param(*p.values, id=str(p.id)) for p in AGAIN if p.values[0] not in ("sat", "road")]


@pytest.mark.parametrize(("name", "result"), LEARNING)
def test_last_bits_pass_and_other_learning_rates_do_not(
    name: str, result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = {rate: 1.1 * result.config[rate] for rate in ("learning_rate", "inference_rate") if rate in result.config}
    with pytest.raises(RunError, match="differs at step"):
        check_prefix(result, metrics_of_rerun(name, result, tmp_path / "rate", **rates))
    resume = Run.resume

    def disturbed(run: Run, state: Any) -> Any:
        """Ten times what the last bit of a float32 is: as the sums of another processor may differ."""
        random = torch.Generator().manual_seed(0)
        for thing in state.values():
            for parameter in thing.parameters() if isinstance(thing, nn.Module) else ():
                parameter.data.mul_(1 + 1e-6 * torch.randn(parameter.shape, generator=random))
        return resume(run, state)

    monkeypatch.setattr(Run, "resume", disturbed)
    check_prefix(result, metrics_of_rerun(name, result, tmp_path / "noise"))


@pytest.mark.parametrize("changes", [{"seed": 9}, {"implication": "godel"}, {"s": 8.0}, {"batch_size": 60}], ids=str)
def test_other_seeds_and_operators_are_noticed(changes: dict[str, Any], tmp_path: Path) -> None:
    (result,) = chosen("same")
    with pytest.raises(RunError, match="differs at step"):
        check_prefix(result, metrics_of_rerun("same", result, tmp_path, **changes))
