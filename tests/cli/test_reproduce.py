"""``doxa reproduce``: all experiments under one roof."""

from __future__ import annotations

import json

import pytest

from doxa.cli import main
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
)

EXPERIMENTS = {
    e.name: e
    for e in (
        *(SAME, SUM9, SAT, ADDITION, COUNTING, VAE, PATHS, SUDOKU),
        *(HMC, PREFERENCES, GRID, ROAD, SHORTCUTS, AGGREGATES, GRAPHS, KINSHIP, SCALE, TIMES),
    )
}


def test_every_configuration_of_every_experiment_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, experiment in EXPERIMENTS.items():
        start = lines.index(f"{name}: {experiment.about}") + 1
        shown = [line.split()[0] for line in lines[start : start + len(experiment.entries)]]
        assert shown == [entry.name for entry in experiment.entries]
    assert main(["reproduce", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: len(e["configurations"]) for name, e in found.items()} == {
        name: len(e.entries) for name, e in EXPERIMENTS.items()
    }


def test_the_configurations_of_one_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["sudoku", "--list"], ["--list", "sudoku"]):
        assert main(["reproduce", *arguments]) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [e.name for e in SUDOKU.entries]
    assert main(["reproduce", "addition", "--reasoner", "amortized", "-N", "15", "--model", "mlp", "--list"]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == [f"amortized/mlp-{variant}-n-15" for variant in ("predict", "explain", "prune", "no-prior")]
