"""Published beside measured: what counts as at least as good, and that what is below says why."""

from __future__ import annotations

import fnmatch
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from doxa.reproduce import Experiment, collect
from doxa.reproduce._compared import (
    LOWER,
    NEITHER,
    REASONS,
    agreement,
    compared,
    rank_correlation,
    reason,
    section,
)
from doxa.reproduce._experiment import Entry
from doxa.reproduce._queue import DISSERTATION
from doxa.train import Result

RESULTS = Path(__file__).parents[2] / "results"
TOY = Experiment(
    "toy",
    "Nothing.",
    (Entry("a/x", None, {"accuracy": 97.0, "l1": 2.07, "cons": 0.5}), Entry("a/y", None, {"accuracy": 95.25})),
    train=None,  # type: ignore[arg-type]
    metrics=("accuracy",),
)


def result(seed: int, steps: int = 10, **metrics: float) -> Result:
    return Result("toy/a/x", config={}, seed=seed, steps=steps, metrics=metrics, prefix={})


@pytest.mark.parametrize(
    ("accuracy", "l1", "better"),
    [
        (97.0, 2.07, (True, True)),
        (96.996, 2.074, (True, True)),
        (96.99, 2.08, (False, False)),
        (99.0, 1.0, (True, True)),
    ],
)
def test_as_good_as_published_to_its_last_digit(accuracy: float, l1: float, better: tuple[bool, bool]) -> None:
    """The most precise number of a table says how many digits count: 95.25 has two."""
    rows = {row.metric: row for row in compared(TOY, [result(0, accuracy=accuracy, l1=l1, cons=0.1)]) if row.ours}
    assert (rows["accuracy"].better, rows["l1"].better, rows["cons"].better) == (*better, None)


def test_the_largest_budget_counts_without_runs_in_the_local_minimum() -> None:
    found = [
        result(0, 5, accuracy=99.0),
        result(0, 10, accuracy=96.0, local_minimum=0.0),
        result(1, 10, accuracy=98.0, local_minimum=0.0),
        result(2, 10, accuracy=50.0, local_minimum=1.0),
    ]
    row = compared(TOY, found)[0]
    assert row.ours is not None and row.ours.mean == 97 and row.left_out == 1 and row.better
    page = section(TOY, found)
    assert "| a/x | accuracy | 97 | **97 ± 1** | 2 | 10 | 1 of 3 runs left out |" in page
    assert page.endswith("Not measured yet: `a/x`, `a/y`.\n")  # of a/x, the distance


@pytest.mark.parametrize("experiment", DISSERTATION, ids=lambda experiment: experiment.name)
def test_what_is_below_says_why(experiment: Experiment) -> None:
    rows = compared(experiment, collect(experiment, RESULTS))
    assert any(row.ours is not None for row in rows)
    for row in rows:
        assert row.better is not False or reason(experiment.name, row), f"{row.name} {row.metric} is below: why?"
        assert row.metric in (*LOWER, *NEITHER, "accuracy", "neural", "symbolic_accuracy", "truth", "optimal")


def test_every_reason_is_of_some_row() -> None:
    names = [
        f"{e.name}/{entry.name}:{metric}" for e in DISSERTATION for entry in e.entries for metric in entry.published
    ]
    for pattern, _ in REASONS:
        assert fnmatch.filter(names, pattern), pattern


def test_rank_correlation_against_scipy() -> None:
    random = np.random.default_rng(0)
    for size in (2, 5, 40):
        for levels in (3, 1000):  # with ties, and next to none
            pairs = random.integers(levels, size=(size, 2)).astype(float)
            pairs[:2] = [[-1, -2], [-3, -4]]  # not all equal
            expected = spearmanr(pairs).statistic
            assert rank_correlation([tuple(pair) for pair in pairs]) == pytest.approx(expected)
    assert math.isnan(rank_correlation([(1, 2), (1, 3)]))


def test_agreement_is_of_the_main_metric_of_each_table() -> None:
    entries = tuple(Entry(f"{t}/{i}", None, {"accuracy": float(i), "cons": 1.0}) for t in "ab" for i in range(5))
    experiment = Experiment("toy", "Nothing", entries, train=None, metrics=("accuracy",))  # type: ignore[arg-type]
    for sign, shown in ((1.0, "1.00"), (-1.0, "-1.00")):
        of = [
            Result(f"toy/{e.name}", {}, 0, 1, {"accuracy": (sign if e.name < "b" else 1) * e.published["accuracy"]}, {})
            for e in entries
        ]
        text = agreement(experiment, compared(experiment, of))
        assert f"`a` {shown} (5), `b` 1.00 (5)." in text and "over 10 rows" in text
    assert agreement(experiment, compared(experiment, of[:4])) == ""
