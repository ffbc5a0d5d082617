"""Networks that do not reason: they learn, go on after a kill, and are measured right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.reproduce.drawn import killed_at, write_digits

from doxa.data import MNIST, normalize, split_indices
from doxa.errors import ConfigError
from doxa.problem import addition
from doxa.reproduce import ADDITION, SUDOKU
from doxa.reproduce._digits import DigitsBaseline, NeuralConfig, reference
from doxa.reproduce._experiment import train
from doxa.train import Run

SUMS = NeuralConfig("addition", 1, steps=120, batch_size=32, learning_rate=3e-3, hidden=64, save_every=30)
GRIDS = NeuralConfig("sudoku", 4, steps=8, batch_size=10, hidden=16, puzzles=20, save_every=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"))


def test_sums_are_learnt_and_counted(data: Path, tmp_path: Path) -> None:
    result = train(SUMS, tmp_path, seed=1, data=data, progress=False)
    mnist, problem = MNIST.load(data, verify=False, progress=False), addition(1)
    network = DigitsBaseline(problem, 64)
    network.load_state_dict(Run.open(tmp_path).load().state["network"])
    right = total = 0
    for seed in range(10):
        count = len(mnist.test_labels)
        rows = split_indices(count, count // 2 * 2, seed=seed)[0].reshape(-1, 2)
        tens, ones = network(normalize(mnist.test_images[rows]))
        sums = 10 * tens.argmax(1) + ones.argmax(1)
        right += int((sums == mnist.labels("test")[rows].sum(1)).sum())
        total += len(rows)
    assert result.metrics["accuracy"] == pytest.approx(100 * right / total)
    assert result.metrics["accuracy"] > 20  # guessing the commonest sum: 10


@pytest.mark.parametrize("config", [SUMS, GRIDS])
def test_killed_it_goes_on_with_the_same_bits(config: NeuralConfig, data: Path, tmp_path: Path) -> None:
    whole = train(config, tmp_path / "whole", seed=0, data=data, progress=False)
    with killed_at(config.steps // 2):
        train(config, tmp_path / "killed", seed=0, data=data, progress=False)
    again = train(config, tmp_path / "killed", seed=0, data=data, progress=False)
    assert again.metrics == whole.metrics
    states = [Run.open(tmp_path / name).load().state["network"] for name in ("whole", "killed")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_they_stand_beside_what_reasons() -> None:
    assert [e.name for e in ADDITION.select(["neural/*"])] == [f"neural/n-{n}" for n in (1, 2, 4, 15)]
    assert {e.name: e.published["accuracy"] for e in SUDOKU.select(["neural/*"])} == {
        "neural/4x4": 51.5,
        "neural/9x9": 51.2,
    }
    # the row "Reference" of the dissertation's table
    assert [reference(n) for n in (1, 2, 4, 15)] == [
        "0.99^2: 98.01",
        "0.99^4: 96.06",
        "0.99^8: 92.27",
        "0.99^30: 73.97",
    ]
    assert all(reference(e.config.digits) in e.source for e in ADDITION.select(["exact/*", "amortized/*"]))
    with pytest.raises(ConfigError, match="task is 'sums', expected one of addition, sudoku"):
        NeuralConfig("sums")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="hidden is 0"):
        NeuralConfig(hidden=0)
