"""Results and their table: arithmetic, files, and the check of a rerun."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from doxa.errors import RunError
from doxa.train import Result, Row, check_prefix, results_table


def result(seed: int = 1, **changes: Any) -> Result:
    values: dict[str, Any] = {
        "experiment": "same",
        "config": {"rate": 0.1},
        "seed": seed,
        "steps": 14_000,
        "metrics": {"accuracy": 95.0 + seed},
        "prefix": {"loss": 0.5, "accuracy": 80.0},
        "cpu_seconds": 3600.0 + seed,
        "command": ("doxa", "reproduce"),
        "machine": {"cpus": 2},
        "versions": {"torch": "2.13.0"},
        "started": "2025-01-01T00:00:00+00:00",
    }
    return Result(**{**values, **changes})


def test_a_result_of_a_run_and_the_rerun_of_its_prefix(tmp_path: Path, small_task: ModuleType) -> None:
    config = small_task.Config(steps=30, save_every=10)
    run, go, _ = small_task.build(tmp_path / "whole", config)
    go()
    found = Result.of(run, "small", prefix_step=14)
    assert (found.steps, found.seed, found.config["rate"]) == (30, 3, 0.01)
    assert found.metrics == run.metrics_at(30) and set(found.prefix) == {"loss", "seen", "error"}
    assert found.cpu_seconds == round(run.load().cpu_seconds, 1)
    file = tmp_path / "results" / "small.json"
    found.write(file)
    assert Result.read(file) == found

    # The same seed gives the same prefix; another seed, or another learning rate, does not.
    def rerun(name: str, seed: int, rate: float = 0.01) -> dict[str, float]:
        run, go, _ = small_task.build(tmp_path / name, small_task.Config(steps=30, save_every=10, rate=rate), seed=seed)
        go()
        return run.metrics_at(14)

    check_prefix(found, rerun("same", 3), rtol=0, atol=0)
    with pytest.raises(RunError, match=r"small, seed 3, differs at step 14: loss was"):
        check_prefix(found, rerun("seed", 4))
    with pytest.raises(RunError, match=r"loss was .* is .*error was"):
        check_prefix(found, rerun("rate", 3, rate=0.05))


def test_results_want_their_metrics(tmp_path: Path, small_task: ModuleType) -> None:
    run, go, _ = small_task.build(tmp_path / "run", small_task.Config(steps=5))
    with pytest.raises(RunError, match="has no checkpoint yet"):
        Result.of(run, "small")
    go()
    with pytest.raises(RunError, match="has no metrics at step 200"):
        Result.of(run, "small", prefix_step=200)


def test_result_files(tmp_path: Path) -> None:
    odd = result(metrics={"a": float("nan"), "b": -float("inf")}, prefix={"c": float("inf")})
    odd.write(tmp_path / "odd.json")
    json.loads((tmp_path / "odd.json").read_text(), parse_constant=pytest.fail)
    again = Result.read(tmp_path / "odd.json")
    assert math.isnan(again.metrics["a"]) and again.metrics["b"] == -math.inf and again.prefix == odd.prefix
    with pytest.raises(RunError, match="there is no result"):
        Result.read(tmp_path / "none.json")
    for content in ("{", "{}", '{"metrics": 1}'):
        (tmp_path / "odd.json").write_text(content)
        with pytest.raises(RunError, match="is not a result"):
            Result.read(tmp_path / "odd.json")


@pytest.mark.parametrize(
    "rerun, message",
    [
        ({"loss": 0.5, "accuracy": 80.0}, None),
        ({"loss": 0.504, "accuracy": 79.3}, None),
        ({"loss": 0.5, "accuracy": 80.0, "more": 3.0}, None),
        ({"loss": 0.513, "accuracy": 80.0}, r"at step 5: loss was 0.5, is 0.513 \(within 0.005 would do\)$"),
        ({"loss": 0.487, "accuracy": 78.0}, r"loss was 0.5, is 0.487 .*; accuracy was 80, is 78 "),
        ({"loss": 0.5}, r"accuracy was 80, is missing"),
        ({"loss": float("nan"), "accuracy": 80.0}, r"loss was 0.5, is nan"),
    ],
)
def test_check_prefix(rerun: dict[str, float], message: str | None) -> None:
    if message is None:
        check_prefix(result(), rerun)
    else:
        with pytest.raises(RunError, match=message):
            check_prefix(result(), rerun)


def test_prefixes_that_are_not_finite() -> None:
    odd = result(prefix={"a": float("nan"), "b": float("inf")})
    check_prefix(odd, {"a": float("nan"), "b": float("inf")})
    with pytest.raises(RunError, match="a was nan, is 1"):
        check_prefix(odd, {"a": 1.0, "b": float("inf")})
    with pytest.raises(RunError, match="b was inf, is -inf"):
        check_prefix(odd, {"a": float("nan"), "b": -float("inf")})


def test_mean_and_standard_error() -> None:
    values = tuple(np.random.default_rng(0).normal(size=7))
    row = Row("a", "b", values, tuple(range(7)))
    assert row.mean == pytest.approx(np.mean(values)) and row.standard_error == pytest.approx(stats.sem(values))
    assert Row("a", "b", (1.0,), (1,)).standard_error is None
    for measured, seeds in [((), ()), ((1.0,), (1, 2))]:
        with pytest.raises(RunError, match="wanted one value per seed"):
            Row("a", "b", measured, seeds)


def test_rows_of_results() -> None:
    row = Row.of([result(2), result(1)], "accuracy", published=97.0, published_error=0.4, source="table 3.2")
    assert row == Row(
        *("same", "accuracy", (96.0, 97.0), (1, 2), (3601.0, 3602.0), "14,000 steps", 97.0, 0.4, "table 3.2")
    )
    for results in (
        [],
        [result(1), result(1)],
        [result(1), result(2, steps=3)],
        [result(1), result(2, experiment="x")],
    ):
        with pytest.raises(RunError, match="a row wants results of one experiment"):
            Row.of(results, "accuracy")
    with pytest.raises(RunError, match=r"same has no metric 'acc' for the seeds \[1\]; it has \['accuracy'\]"):
        Row.of([result(1)], "acc")


def test_the_table(tmp_path: Path) -> None:
    table = results_table(
        [
            Row.of([result(1), result(2)], "accuracy", published=97.0, published_error=0.4, source="table 3.2"),
            Row("a|b", "log p", (-123456.0,), (7,), (59.96,), "1 h"),
            Row("c", "error", (0.00012346,), (7,), (150.0,)),
            Row("d", "loss", (1.0, float("nan")), (1, 2)),
        ],
        title="Same",
    )
    assert table.markdown() == (
        "## Same\n\n"
        "| experiment | metric | measured | published | budget | seeds | CPU time |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| same | accuracy | 96.5 ± 0.5 | 97 ± 0.4 (table 3.2) | 14,000 steps | 1, 2 | 1 h 0 min |\n"
        "| a\\|b | log p | -123,456 | – | 1 h | 7 | 1 min 0 s |\n"
        "| c | error | 0.0001235 | – |  | 7 | 2 min 30 s |\n"
        "| d | loss | nan ± nan | – |  | 1, 2 |  |\n"
    )
    piped = io.StringIO()
    table.show(piped)
    assert piped.getvalue() == table.markdown()
    table.write(tmp_path / "tables" / "same")
    assert (tmp_path / "tables" / "same.md").read_text() == table.markdown()
    rows = json.loads((tmp_path / "tables" / "same.json").read_text(), parse_constant=pytest.fail)["rows"]
    assert rows[3]["measured"] == [1.0, "nan"]
    assert rows[0]["mean"] == 96.5 and rows[0]["standard_error"] == pytest.approx(0.5)
    assert rows[0]["measured"] == [96.0, 97.0] and rows[0]["published"] == 97.0 and rows[1]["standard_error"] is None


def test_the_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    results_table([Row("[bold]", "accuracy", (0.5,), (1,))]).show(stream)
    assert "─" in stream.getvalue() and "[bold]" in stream.getvalue() and "| ---" not in stream.getvalue()
