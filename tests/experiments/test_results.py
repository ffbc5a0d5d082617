"""Committed results: one seed of each experiment is trained again up to the step whose metrics were kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from doxa.errors import DataError, RunError
from doxa.experiments import DigitsConfig, train_digits
from doxa.runs import Result, Run, check_prefix, load_config
from doxa.tasks import MNIST

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def mnist() -> MNIST:
    try:
        return MNIST.load(progress=False)
    except DataError as error:
        pytest.skip(f"MNIST cannot be had here: {error}")


def rerun_digits(result: Result, mnist: MNIST, folder: Path) -> None:
    config = load_config(DigitsConfig, result.config)
    train_digits(mnist, folder, replace(config, steps=result.prefix_step), seed=result.seed, progress=False)


RERUN: dict[str, Callable[[Result, MNIST, Path], None]] = {"digits": rerun_digits}


def test_every_committed_experiment_can_be_rerun() -> None:
    assert {p.name for p in RESULTS.iterdir() if p.is_dir()} == set(RERUN)
    for file in RESULTS.glob("*/*.json"):
        result = Result.read(file)
        assert result.experiment == file.parent.name
        assert result.command and result.started and result.machine and result.prefix


@pytest.mark.parametrize("experiment", sorted(RERUN))
def test_prefix_of_a_committed_result(experiment: str, mnist: MNIST, tmp_path: Path) -> None:
    result = Result.read(sorted((RESULTS / experiment).glob("*.json"))[0])
    RERUN[experiment](result, mnist, tmp_path / "run")
    again = Run.open(tmp_path / "run").metrics_at(result.prefix_step)
    check_prefix(result, again)
    with pytest.raises(RunError, match="differs at step"):
        check_prefix(replace(result, prefix={k: 1.5 * v for k, v in result.prefix.items()}), again)
