"""The page of results: every JSON file of a folder beside what was published, and nothing typed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from doxa._files import write_atomic
from doxa.reproduce._experiment import Entry, Experiment, by_budget, collect, train
from doxa.reproduce._queue import EXPERIMENTS
from doxa.train import Result, Row
from doxa.train.runs._results import _number, _time

HEAD = """# Results

Made from the JSON files in these folders by `doxa reproduce all`; do not edit. What is to be said of them: `NOTES.md`.

Each file is one run with one seed: configuration, metrics, budget in steps, CPU time, machine, versions, date, and the
command that made it. `doxa reproduce EXPERIMENT --only CONFIGURATION --steps STEPS --seeds SEEDS --save results` makes
a row again. Several seeds are shown as mean ± standard error, published values in brackets, CPU time as that of a run.
"""
DIGITS = Experiment(
    "digits",
    "A digit classifier, learnt from labels",
    (Entry("", None, {"test_accuracy": 0.9905}, "LeNet-5, LeCun et al. 1998"),),
    train,
    ("test_accuracy",),
)


def write_results_page(folder: Path) -> Path:
    """Write ``README.md`` into a folder of saved results, from these alone."""
    experiments = (DIGITS, *EXPERIMENTS)
    parts = [HEAD, *[_section(e, results) for e in experiments if (results := _results(e, folder))]]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "README.md", "\n".join(parts).encode())
    return folder / "README.md"


def _results(experiment: Experiment, folder: Path) -> Sequence[Result]:
    if experiment is DIGITS:
        return [Result.read(file) for file in sorted((folder / "digits").glob("*.json"))]
    return collect(experiment, folder)


def _section(experiment: Experiment, results: Sequence[Result]) -> str:
    order = {f"{experiment.name}/{entry.name}".rstrip("/"): entry for entry in experiment.entries}
    places = {name: i for i, name in enumerate(order)}
    metrics = [metric for metric in experiment.metrics if any(metric in result.metrics for result in results)]
    head = ["configuration", "steps", "seeds", *metrics, "CPU time", "published in"]
    lines = [head, ["---"] * len(head)]
    # A configuration with changed settings stands behind the one it was made from.
    groups = by_budget(results).items()
    for (name, steps), group in sorted(groups, key=lambda g: (places.get(g[0][0].split("+")[0], len(places)), g[0])):
        entry = order.get(name, Entry(name, None))
        cells = [_cell(group, metric, entry.published.get(metric)) for metric in metrics]
        rows = Row.of(group, next(iter(group[0].metrics)))
        label = name.removeprefix(f"{experiment.name}/")
        seconds = _time(sum(rows.cpu_seconds) / len(rows.cpu_seconds))
        lines.append([label, f"{steps:,}", ", ".join(map(str, rows.seeds)), *cells, seconds, entry.source])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"## `{experiment.name}`: {experiment.about.rstrip('.')}\n\n{table}\n"


def _cell(group: Sequence[Result], metric: str, published: float | None) -> str:
    if not all(metric in result.metrics for result in group):
        return "–" if published is None else f"– ({published:g})"
    row = Row.of(group, metric)
    return _number(row.mean, row.standard_error) + ("" if published is None else f" ({published:g})")
