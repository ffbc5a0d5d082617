"""``doxa reproduce``: all experiments under one roof."""

from __future__ import annotations

import json
from pathlib import Path

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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reproduce", "countng"], "there is no experiment 'countng'; did you mean 'counting'?"),
        (["reproduce", "qqqq", "--show"], "there is no experiment 'qqqq'; there are same, "),
        (["sovle", "x.doxa"], "there is no command 'sovle'; did you mean 'solve'?"),
    ],
)
def test_a_name_that_is_none(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_showing_what_is_not_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show = ["reproduce", "counting", "--show", "--out", str(tmp_path)]
    assert main(show) == 0
    assert f"there are no results in {tmp_path / 'counting'}; without --show" in capsys.readouterr().err
    run = tmp_path / "counting" / "3-sat" / "graph" / "1000-steps" / "seed-0"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    assert main(show) == 0
    assert f"1 run begun and not done, such as {run}; without --show" in capsys.readouterr().err
