"""Every published table of the dissertation beside ours, row by row: at least as good in bold, the others with why.

The page is made from saved results, the published numbers of the entries, and the reasons below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from statistics import StatisticsError, correlation

from doxa.reproduce._experiment import Experiment, by_budget
from doxa.train import Result, Row
from doxa.train.runs._results import _number, markdown_table

LOWER = ("l1", "train", "lowest_test")
"""Metrics of which less is better; of the others, more is."""
NEITHER = ("cons", "cu_cons", "cu_ant")
"""Metrics that describe and do not rank."""
REASONS = (
    ("same/*", "14,000 of the published 70,000 steps"),
    ("sum9/*", "14,000 of the published 70,000 steps"),
    (
        "sat/*product-adam-0:truth",
        "varies most with the vectors, which are drawn anew: 0.432 to 0.461 over three seeds",
    ),
    ("sat/satlib-*", "other vectors, drawn anew; one seed"),
    ("sat/*", "other formulas and vectors, drawn anew; one seed"),
    ("addition/refine/3000:*", "one run of ten ends at 70.9, which the published rule does not leave out"),
    ("addition/exact/n-15:*", "not regularised; the row with dropout, chosen on training digits held out, is"),
    ("addition/amortized/scan-no-prior-*", "without the prior learning varies more from seed to seed; two seeds"),
    ("addition/amortized/mlp-*", "some of the published 100 epochs"),
    ("addition/amortized/scan-*-n-15:*", "not regularised; the rows with shifted images and with dropout are"),
    ("vae/*/gumbel@1:*", "published are relaxed samples in place of discrete ones, of images that were trained on"),
    ("vae/*/score@1:train", "published is the lowest of 100 epochs, and ours the last, which varies much"),
    ("vae/*:lowest_test", "the published test images are among the training images (see the notes)"),
    ("vae/*:train", "fewer epochs than the published 100"),
    ("paths/terrain-*a-nesi-rloo*", "stuck with kinds of tiles taken for one (see the notes); generated maps"),
    ("paths/terrain-*rloo*", "stuck with tiles all of one kind (see the notes); generated maps, not Warcraft's"),
    ("paths/terrain-*", "generated maps; the published numbers are on Warcraft maps"),
    ("sudoku/published/*", "10,000 of the published 50,000 steps"),
    ("sudoku/neural/*", "what looks at the whole grid does not learn: 50 is chance"),
    ("sudoku/*", "within the spread over splits"),
)
"""Why a number is below what was published: for ``experiment/entry:metric``, the first pattern that fits."""
ENOUGH = 5
"""Rows of which a rank correlation says something."""
HEAD = """# What was published beside what is measured

Made from the JSON files in these folders by `doxa reproduce all`; do not edit. Numbers in bold are at least as good as
what the dissertation has; the others say why not. Of each row the largest budget counts, as mean ± standard error over
its seeds. Runs that end in the local minimum are left out, as the dissertation does, and counted. What is to be said of
the experiments stands in `NOTES.md`.
"""


@dataclass(frozen=True)
class Compared:
    """One published number beside ours; ``ours`` is None where nothing is measured yet."""

    name: str  # of the entry
    metric: str
    published: float
    ours: Row | None
    left_out: int = 0  # runs in the local minimum
    digits: int = 9  # to how many the numbers of such a table are published

    @property
    def better(self) -> bool | None:
        """Whether ours is at least as good, rounded as the published number; None where neither is better."""
        if self.ours is None or self.metric in NEITHER:
            return None
        mean = round(self.ours.mean, self.digits)
        return mean <= self.published if self.metric in LOWER else mean >= self.published


def compared(experiment: Experiment, results: Sequence[Result]) -> list[Compared]:
    """Every published number of an experiment, in the order of its entries."""
    largest: dict[str, list[Result]] = {}
    for (name, _), group in by_budget(results).items():  # sorted by steps
        largest[name] = group
    precise: dict[str, int] = {}
    for entry in experiment.entries:
        for metric, published in entry.published.items():
            precise[metric] = max(precise.get(metric, 0), len(str(published).partition(".")[2]))
    rows = []
    for entry in experiment.entries:
        group = largest.get(f"{experiment.name}/{entry.name}", [])
        learnt = [result for result in group if not result.metrics.get("local_minimum")]
        for metric, published in entry.published.items():
            known = bool(learnt) and all(metric in result.metrics for result in learnt)
            ours = Row.of(learnt, metric) if known else None
            rows.append(Compared(entry.name, metric, published, ours, len(group) - len(learnt), precise[metric]))
    return rows


def reason(experiment: str, row: Compared) -> str:
    """Why ours is below."""
    name = f"{experiment}/{row.name}:{row.metric}"
    return next((why for pattern, why in REASONS if fnmatch(name, pattern)), "")


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's rank correlation; equal values share their mean rank. NaN where one side is all equal.

    >>> round(rank_correlation([(1, 10), (2, 30), (3, 20), (3, 40)]), 3)
    0.632
    """
    ranks = []
    for values in zip(*pairs, strict=True):
        ordered = sorted(values)
        ranks.append([ordered.index(v) + (ordered.count(v) - 1) / 2 for v in values])
    try:
        return correlation(*ranks)
    except StatisticsError:
        return math.nan


def agreement(experiment: Experiment, rows: Sequence[Compared]) -> str:
    """How far the main metric orders the rows of each table as the published numbers do."""
    metric = experiment.metrics[0]
    tables: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.metric == metric and row.ours is not None:
            tables.setdefault(row.name.split("/")[0], []).append((row.published, row.ours.mean))
    found = {"": [pair for pairs in tables.values() for pair in pairs]} | (tables if len(tables) > 1 else {})
    values = {name: (rank_correlation(pairs), len(pairs)) for name, pairs in found.items() if len(pairs) >= ENOUGH}
    shown = [
        f"{value:.2f} over {count} rows" if not name else f"`{name}` {value:.2f} ({count})"
        for name, (value, count) in values.items()
        if not math.isnan(value)
    ]
    return f"Rank correlation (Spearman) of {metric} with the published: {', '.join(shown)}.\n" if shown else ""


def section(experiment: Experiment, results: Sequence[Result]) -> str:
    """The table of an experiment, and below it the rows that nobody has measured yet."""
    rows = compared(experiment, results)
    lines = [_line(experiment.name, row) for row in rows if row.ours is not None]
    columns = ("row", "metric", "published", "ours", "seeds", "steps", "why below")
    parts = [f"## `{experiment.name}`: {experiment.about.rstrip('.')}\n", markdown_table(columns, lines), ""]
    parts += filter(None, [agreement(experiment, rows)])
    missing = dict.fromkeys(row.name for row in rows if row.ours is None)
    if missing:
        parts.append(f"Not measured yet: {', '.join(f'`{name}`' for name in missing)}.\n")
    return "\n".join(parts)


def _line(experiment: str, row: Compared) -> list[str]:
    ours = row.ours
    assert ours is not None
    shown = _number(ours.mean, ours.standard_error)
    why = reason(experiment, row) if row.better is False else ""
    if row.left_out:
        why = "; ".join(filter(None, (f"{row.left_out} of {row.left_out + len(ours.seeds)} runs left out", why)))
    steps = ours.budget.removesuffix(" steps")
    shown = f"**{shown}**" if row.better else shown
    return [row.name, row.metric, f"{row.published:g}", shown, str(len(ours.seeds)), steps, why]
