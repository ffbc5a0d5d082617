"""Metrics are lines of JSON; a torn one does no harm."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from doxa.errors import RunError
from doxa.train import Run


@dataclass(frozen=True)
class Config:
    rate: float = 0.1


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", Config(), seed=0)


def test_numbers_of_every_kind_come_back(run: Run) -> None:
    run.log(1, {"a": 1, "b": 0.1, "c": torch.tensor(0.1), "d": np.float32(0.1), "e": np.int64(7), "f": True})
    run.log(2, {"a": float("nan"), "b": float("inf"), "c": -float("inf"), "d": torch.tensor(float("nan")), "e": 1e-320})
    first, second = run.metrics()
    assert first == {
        "step": 1,
        "a": 1,
        "b": 0.1,
        "c": torch.tensor(0.1).item(),
        "d": float(np.float32(0.1)),
        "e": 7,
        "f": True,
    }
    assert math.isnan(second["a"]) and math.isnan(second["d"])
    assert (second["b"], second["c"], second["e"]) == (float("inf"), -float("inf"), 1e-320)
    for line in (run.path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # strict JSON: any program can read it


def test_several_lines_of_a_step_go_together(run: Run) -> None:
    run.log(1, {"loss": 1.0})
    run.log(2, {"loss": 0.5})
    run.log(2, {"accuracy": 0.9})
    assert run.metrics_at(2) == {"loss": 0.5, "accuracy": 0.9} and run.metrics_at(3) == {}


@pytest.mark.parametrize("tear", range(1, 26))
def test_a_torn_last_line_is_left_out_and_mended(run: Run, tear: int) -> None:
    run.log(1, {"loss": 1.0})
    run.log(2, {"loss": 2.0})
    file = run.path / "metrics.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-tear])
    again = Run.open(run.path)
    assert [line["step"] for line in again.metrics()] == [1]
    again.log(2, {"loss": 2.0})
    assert file.read_bytes() == whole


@pytest.mark.parametrize("line", [b"not json", b"[]", b"{}", b'{"step": 1, "loss": "high"}', b"\xff"])
def test_a_broken_line_in_the_middle_is_named(run: Run, line: bytes) -> None:
    run.log(1, {"loss": 1.0})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2: not a line of metrics"):
        run.metrics()


def test_lines_logged_after_a_checkpoint_go_when_it_is_resumed(run: Run) -> None:
    run.log(1, {"loss": 1.0})
    run.save(1, {})
    run.log(1, {"late": 1.0})  # the same step, but after the checkpoint
    run.log(2, {"loss": 2.0})
    again = Run.open(run.path)
    again.resume({})
    assert again.metrics() == [{"step": 1, "loss": 1.0}]


def test_figures_have_a_folder(run: Run) -> None:
    assert run.figures.is_dir() and run.figures == run.path / "figures" == run.figures


@pytest.mark.parametrize("metrics", [{"a": "text"}, {"a": None}, {"a": torch.ones(2)}, {"a": [1]}, {"step": 1}])
def test_what_is_no_number_is_refused(run: Run, metrics: dict[str, object]) -> None:
    with pytest.raises(RunError, match=r"wanted one number|is called 'step'"):
        run.log(1, metrics)
    assert run.metrics() == []
    with pytest.raises(RunError, match="step is -1"):
        run.log(-1, {"a": 1})
