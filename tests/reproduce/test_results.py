"""Committed results: one of each experiment is trained again up to the step whose metrics were kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from doxa.data import MNIST
from doxa.errors import DataError, RunError
from doxa.reproduce import ADDITION, PATHS, SAME, SAT, SUDOKU, SUM9, VAE, DigitsConfig, Experiment, train_digits
from doxa.train import Result, Run, check_prefix, config_values, load_config

RESULTS = Path(__file__).parents[2] / "results"

RERUN: dict[str, tuple[Experiment, tuple[str, ...]]] = {
    "addition": (ADDITION, ("refine/3000", "exact/n-1", "amortized/scan-predict-n-1")),
    "paths": (PATHS, ("terrain-12/rloo",)),
    "same": (SAME, ("implications/reichenbach-sigmoidal",)),
    "sudoku": (SUDOKU, ("exact/4x4", "amortized/4x4", "pairs/4x4")),
    "sum9": (SUM9, ("symmetric/product",)),
    "sat": (SAT, ("91-clauses/godel-refine-1",)),
    "vae": (VAE, ("*",)),
}
"""Experiments, and which of their entries are trained again: of each pattern, the first that has a result."""


def rerun_digits(result: Result, folder: Path) -> None:
    config = replace(load_config(DigitsConfig, result.config), steps=result.prefix_step)
    train_digits(MNIST.load(progress=False), folder, config, seed=result.seed, progress=False)


def rerun(experiment: Experiment) -> Callable[[Result, Path], None]:
    def train(result: Result, folder: Path) -> None:
        config = replace(configuration(experiment, result), steps=result.prefix_step)
        experiment.train(config, folder, seed=result.seed, data=None, progress=False)

    return train


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
    again = rerun_digits if name == "digits" else rerun(RERUN[name][0])
    try:
        again(result, tmp_path / "run")
    except DataError as error:
        pytest.skip(f"the data cannot be had here: {error}")
    metrics = Run.open(tmp_path / "run").metrics_at(result.prefix_step)
    check_prefix(result, metrics)
    with pytest.raises(RunError, match="differs at step"):
        check_prefix(replace(result, prefix={k: 1.5 * v for k, v in result.prefix.items()}), metrics)
