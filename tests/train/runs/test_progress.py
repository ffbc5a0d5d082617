"""A bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from doxa.train import Run, run_steps
from doxa.train.runs._steps import Progress


@dataclass(frozen=True)
class Config:
    rate: float = 0.1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines() -> None:
    stream = io.StringIO()
    with Progress(300, start=100, stream=stream, seconds=0) as progress:
        progress.show(150)
        progress.show(200, {"loss": 0.123456, "accuracy": 0.5})
        progress.show(300, {"loss": 1e-9})
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"step 200/300  loss 0.1235  accuracy 0.5  time left \d:\d\d:\d\d", lines[0])
    assert lines[1] == "step 300/300  loss 1e-09  accuracy 0.5  time left 0:00:00"


def test_plain_lines_keep_their_distance_but_show_the_last() -> None:
    stream = io.StringIO()
    with Progress(50, stream=stream, seconds=1e6) as progress:
        for step in range(1, 51):
            progress.show(step, {"loss": 1.0})
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["1/50", "50/50"]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with Progress(300, start=100, stream=stream) as progress:
        progress.show(200, {"loss": 0.123456})
        progress.show(300)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "300/300" in text and "loss 0.1235" in text and "left" in text and "step 200" not in text


def test_the_time_left_is_for_the_steps_of_this_session(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("doxa.train.runs._steps.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    with Progress(1000, start=900, stream=stream) as progress:
        now[0] = 10.0
        progress.show(910, {"loss": 1.0})  # ten steps in ten seconds, ninety to go
    assert stream.getvalue().endswith("time left 0:01:30\n")


def test_training_in_a_pipe_prints_plain_lines(
    tmp_path: Path, small_task: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    small_task.build(tmp_path / "run", small_task.Config(steps=5))[1]()
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"step 5/5  loss [\d.]+  seen 40  error [\d.]+  time left 0:00:00", lines[-1])
    assert all(line.isprintable() for line in lines)


def test_a_run_that_is_done_says_so(tmp_path: Path, small_task: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    small_task.build(tmp_path / "run", small_task.Config(steps=5))[1]()
    assert "nothing to do" not in capsys.readouterr().out
    small_task.build(tmp_path / "run", small_task.Config(steps=5))[1]()
    assert capsys.readouterr().out == "step 5 of 5 was reached before; nothing to do\n"


def test_an_early_end_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = iter([1.0, 3.0, 2.0, 3.0])

    def again() -> None:
        run_steps(
            Run.start(tmp_path / "run", Config(), seed=0),
            lambda i: 0.5,
            steps=60,
            state={},
            evaluate=lambda: {"score": next(scores)},
            best="score",
            evaluate_every=5,
            patience=2,
        )

    again()
    early = "stopped early: nothing later was better than step 10"
    assert capsys.readouterr().out.splitlines()[-1] == f"step 20 of 60, {early}"
    again()
    assert capsys.readouterr().out == f"step 20 of 60 was reached before, {early}; nothing to do\n"
