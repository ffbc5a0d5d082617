"""Results: what a run measured, with all that is needed to measure it again, and beside what was published."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from doxa import _html
from doxa.errors import ConfigError, RunError
from doxa.train.runs._config import config_values, read_config
from doxa.train.runs._files import json_number, make_folder, write_file, write_json
from doxa.train.runs._run import Run

PREFIX_STEP = 5
"""After so many steps another processor differs by far less than a changed operator, seed, split or learning rate."""


@dataclass(frozen=True)
class Result:
    """The outcome of one run with one seed.

    ``prefix`` holds the metrics at an early step. Rerunning just those steps and comparing (`check_prefix`) shows that
    the code still does what it did when the result was made, at a small part of the cost.

    Args:
        experiment: what was run, such as ``"same/reichenbach"``.
        config: the configuration as plain values.
        seed: the seed of the run.
        steps: how many steps were done: the budget.
        metrics: the metrics at the last step.
        prefix_step: an early step.
        prefix: the metrics at that step.
        cpu_seconds: CPU time of the steps, over all resumptions.
        command: the command line.
        machine: platform, number of CPUs and threads.
        versions: of doxa, torch, NumPy and Python.
        started: when the run began.

    >>> result = Result("demo", config={}, seed=1, steps=500, metrics={"accuracy": 0.9}, prefix={"accuracy": 0.5})
    >>> result.prefix_step, result.prefix
    (5, {'accuracy': 0.5})
    """

    experiment: str
    config: Mapping[str, Any]
    seed: int
    steps: int
    metrics: Mapping[str, float]
    prefix: Mapping[str, float]
    prefix_step: int = PREFIX_STEP
    cpu_seconds: float = 0.0
    command: tuple[str, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""

    @classmethod
    def of(cls, run: Run, experiment: str, *, prefix_step: int = PREFIX_STEP) -> Result:
        """The result of a run, as it stands at its last checkpoint.

        Raises:
            RunError: there is no checkpoint, or nothing was logged at that step or at ``prefix_step``.
        """
        last = run.load()
        metrics, prefix = run.metrics_at(last.step), run.metrics_at(prefix_step)
        for step, found in [(last.step, metrics), (prefix_step, prefix)]:
            if not found:
                raise RunError(f"{run.path} has no metrics at step {step}; train up to it, and let run_steps log it")
        about = {key: getattr(run, key) for key in ("config", "seed", "machine", "versions", "started")}
        return cls(
            experiment,
            **about,
            steps=last.step,
            metrics=metrics,
            prefix=prefix,
            prefix_step=prefix_step,
            cpu_seconds=round(last.cpu_seconds, 1),
            command=tuple(run.command),
        )

    def write(self, path: str | Path) -> None:
        """Write the result as a JSON file, with sorted keys so that changes read well."""
        make_folder(Path(path).parent)
        write_json(Path(path), config_values(self), sort_keys=True)

    @classmethod
    def read(cls, path: str | Path) -> Result:
        """Read a result from its JSON file.

        Raises:
            RunError: the file is missing, or is not a result.
        """
        if not Path(path).exists():
            raise RunError(f"there is no result {path}")
        try:
            return read_config(cls, path)
        except ConfigError as error:
            raise RunError(f"{path} is not a result ({error})") from error


def check_prefix(result: Result, rerun: Mapping[str, float], *, rtol: float = 0.01, atol: float = 1e-5) -> None:
    """Compare a rerun of a result's first steps with the metrics stored then.

    On the same machine, versions and number of threads a rerun gives the same bits. Another processor rounds sums in
    another order, about 1e-7 a step in float32; some hundred steps of training multiply that to several percent, the
    handful up to ``prefix_step`` to a tenth of a percent at most. So a metric agrees when it differs by at most
    ``atol + rtol·|stored|``. A changed operator, seed, split or learning rate moves some metric more than that.

    Args:
        result: the stored result.
        rerun: metrics by name at step ``result.prefix_step``, as ``run.metrics_at`` gives them, of a run with the same
            configuration and seed; those that were not stored do not count.
        rtol: relative tolerance.
        atol: absolute tolerance.

    Raises:
        RunError: a stored metric differs by more or is missing; the message lists all of them.

    >>> result = Result("demo", config={}, seed=1, steps=500, metrics={}, prefix={"loss": 0.5})
    >>> check_prefix(result, {"loss": 0.501})
    >>> check_prefix(result, {"loss": 0.6})
    Traceback (most recent call last):
    doxa.errors.RunError: demo, seed 1, differs at step 5: loss was 0.5, is 0.6 (within 0.005 would do)
    """
    wrong = []
    for name, stored in result.prefix.items():
        now, within = rerun.get(name), atol + rtol * abs(stored)
        if now is None:
            wrong.append(f"{name} was {stored:g}, is missing")
        elif not (stored == now or abs(stored - now) <= within < math.inf or (math.isnan(stored) and math.isnan(now))):
            wrong.append(f"{name} was {stored:g}, is {now:g} (within {within:.2g} would do)")
    if wrong:
        raise RunError(
            f"{result.experiment}, seed {result.seed}, differs at step {result.prefix_step}: {'; '.join(wrong)}"
        )


_COLUMNS = ("experiment", "metric", "measured", "published", "budget", "seeds", "CPU time")


@dataclass(frozen=True)
class Row:
    """One measured quantity, over one or more seeds, beside what was published.

    Args:
        name: of the experiment.
        metric: of the quantity.
        measured: one value per seed.
        seeds: the seeds, in the same order.
        cpu_seconds: CPU time per seed.
        budget: what was spent, such as ``"14,000 steps"``.
        published: the number to compare with, if there is one.
        published_error: its spread, if given.
        source: where it was published.

    >>> Row("same", "accuracy", measured=(95.0, 96.0), seeds=(1, 2)).standard_error
    0.5
    """

    name: str
    metric: str
    measured: tuple[float, ...]
    seeds: tuple[int, ...]
    cpu_seconds: tuple[float, ...] = ()
    budget: str = ""
    published: float | None = None
    published_error: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if not self.measured or len(self.measured) != len(self.seeds):
            raise RunError(
                f"{self.name}: {len(self.measured)} values for {len(self.seeds)} seeds, wanted one value per seed"
            )

    @classmethod
    def of(
        cls,
        results: Iterable[Result],
        metric: str,
        *,
        budget: str | None = None,
        published: float | None = None,
        published_error: float | None = None,
        source: str = "",
    ) -> Row:
        """The row of some results of one experiment, which differ in their seeds only.

        Raises:
            RunError: there are none, they are of several experiments or budgets, or one lacks the metric.
        """
        found = sorted(results, key=lambda result: result.seed)
        kinds = sorted({(result.experiment, result.steps) for result in found})
        if len(kinds) != 1 or len({result.seed for result in found}) != len(found):
            raise RunError(
                f"a row wants results of one experiment, one number of steps and different seeds, got {kinds}"
            )
        if lacking := [result.seed for result in found if metric not in result.metrics]:
            raise RunError(
                f"{kinds[0][0]} has no metric {metric!r} for the seeds {lacking}; it has {sorted(found[0].metrics)}"
            )
        return cls(
            name=kinds[0][0],
            metric=metric,
            measured=tuple(result.metrics[metric] for result in found),
            seeds=tuple(result.seed for result in found),
            cpu_seconds=tuple(result.cpu_seconds for result in found),
            budget=f"{kinds[0][1]:,} steps" if budget is None else budget,
            published=published,
            published_error=published_error,
            source=source,
        )

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.measured)

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean: s/√n with the sample deviation s; None for a single seed."""
        n, mean = len(self.measured), self.mean
        return math.sqrt(sum((value - mean) ** 2 for value in self.measured) / (n - 1) / n) if n > 1 else None


@dataclass(frozen=True)
class ResultsTable:
    """Rows of results, to be shown or written. Made by `results_table`.

    >>> ResultsTable((Row("same", "accuracy", (0.9,), (1,)),)).json()["rows"][0]["mean"]
    0.9
    """

    rows: tuple[Row, ...]
    title: str = ""

    def markdown(self) -> str:
        """The table as markdown."""
        table = markdown_table(_COLUMNS, map(_cells, self.rows)) + "\n"
        return f"## {self.title}\n\n{table}" if self.title else table

    def _repr_html_(self) -> str:
        return _html.box(_html.table(_COLUMNS, map(_cells, self.rows), numbers=True), title=self.title)

    def json(self) -> dict[str, Any]:
        """The table as JSON values, with mean and standard error beside the single values."""
        rows = []
        for row in self.rows:
            error = None if row.standard_error is None else json_number(row.standard_error)
            measured = [json_number(value) for value in row.measured]
            rows.append({**vars(row), "measured": measured, "mean": json_number(row.mean), "standard_error": error})
        return {"title": self.title, "rows": rows}

    def write(self, path: str | Path) -> None:
        """Write the table twice: ``path`` with the suffixes ``.md`` and ``.json``."""
        path = Path(path)
        make_folder(path.parent)
        write_file(path.with_name(path.name + ".md"), self.markdown().encode())
        write_json(path.with_name(path.name + ".json"), self.json())

    def show(self, stream: TextIO | None = None) -> None:
        """Print the table: drawn by rich on a terminal, as markdown elsewhere."""
        show_table(_COLUMNS, map(_cells, self.rows), self.markdown(), title=self.title, stream=stream)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as markdown."""
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    markdown: str,
    *,
    title: str = "",
    notes: Iterable[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Print a table: drawn by rich on a terminal, with notes below it; elsewhere the markdown that says the same."""
    stream = stream or sys.stdout
    if not stream.isatty():
        print(markdown.rstrip("\n"), file=stream)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table, console = Table(*columns, title=title or None), Console(file=stream)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
    for note in notes:
        console.print(note, style="yellow", markup=False, highlight=False)


def results_table(rows: Iterable[Row], *, title: str = "") -> ResultsTable:
    """A table of measured beside published numbers, with budget, seeds and CPU time.

    Several seeds are shown as mean ± standard error; the CPU time is the mean per seed. `Row.of` makes rows.

    >>> row = Row("same", "accuracy", measured=(95.0, 96.0), seeds=(1, 2), cpu_seconds=(60.0, 66.0), published=96.3)
    >>> results_table([row]).show()
    | experiment | metric | measured | published | budget | seeds | CPU time |
    | --- | --- | --- | --- | --- | --- | --- |
    | same | accuracy | 95.5 ± 0.5 | 96.3 |  | 1, 2 | 1 min 3 s |
    """
    return ResultsTable(tuple(rows), title)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        row.metric,
        _number(row.mean, row.standard_error),
        f"{_number(row.published, row.published_error)}{f' ({row.source})' if row.source else ''}",
        row.budget,
        ", ".join(map(str, row.seeds)),
        _time(statistics.fmean(row.cpu_seconds)) if row.cpu_seconds else "",
    )


def _number(value: float | None, error: float | None) -> str:
    if value is None:
        return "–"
    shown = f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return shown if error is None else f"{shown} ± {error:.2g}"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
