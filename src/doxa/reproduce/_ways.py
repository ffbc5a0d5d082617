"""Which way to use knowledge in a classifier: the results of `hmc`, `preferences` and `grid` side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from doxa.errors import ConfigError
from doxa.reproduce._experiment import collect
from doxa.reproduce._labels import GRID, HMC, PREFERENCES, WAYS, Hierarchies
from doxa.reproduce.figures._gallery import Gallery, Illustration
from doxa.train import Result
from doxa.train.report._report import figure
from doxa.train.runs._results import markdown_table

SHARP = ("sharp", "seen")
"""Ways for exact matches, which on hierarchies have settings of their own."""
STRUCTURES = {
    "six-to-four": "sushi: four from six",
    "four-to-six": "sushi: six from four",
    "paths-ends": "paths, ends known",
    "paths": "paths, edges known",
}
"""Sets that are no hierarchies, as people call them."""
_COLOURS = dict(zip(WAYS, ("#999999", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#cc79a7"), strict=True))
_MARKS = dict(zip(WAYS, "oxsD^v", strict=True))


class Score(NamedTuple):
    """The mean over seeds, its standard error (0 for one seed), and the number of seeds."""

    mean: float
    error: float
    seeds: int

    def text(self, digits: int) -> str:
        """As a cell of a table.

        >>> Score(0.2632, 0.0009, 10).text(3), Score(31.4, 0.0, 1).text(1)
        ('0.263 ± 0.001 (10)', '31.4 (1)')
        """
        spread = f" ± {self.error:.{digits}f}" if self.seeds > 1 else ""
        return f"{self.mean:.{digits}f}{spread} ({self.seeds})"


Scores = dict[tuple[str, str], Score]
"""By set and way."""


def scores_of(results: Sequence[Result], metric: str) -> Scores:
    """The scores of each set and way that has results."""
    groups: dict[tuple[str, str], list[float]] = {}
    for result in results:
        _, data, way = result.experiment.split("/")
        if way in (*WAYS, *SHARP) and metric in result.metrics:
            groups.setdefault((data, way), []).append(result.metrics[metric])
    errors = {key: stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0 for key, values in groups.items()}
    return {key: Score(mean(values), errors[key], len(values)) for key, values in groups.items()}


def _results(folder: Path) -> list[Result]:
    found = [result for experiment in (HMC, PREFERENCES, GRID) for result in collect(experiment, folder)]
    if not found:
        raise ConfigError(f"{folder} has no results of hmc, preferences or grid; name the folder that --save wrote")
    return found


def ways_page(folder: Path) -> str:
    """Tables in markdown, from the JSON files in a folder of results."""
    found, hierarchies = _results(folder), {name: name for name in Hierarchies}
    parts = []
    for title, metric, digits, sets in (
        ("Average precision over all labels and rows", "auprc", 3, hierarchies),
        ("Rows whose labels are all right, in percent", "exact", 1, hierarchies | STRUCTURES),
    ):
        scores = scores_of(found, metric)
        rows = []
        for name, label in sets.items():
            cells = [_cell(scores, name, way, digits) for way in WAYS]
            cells += [scores[name, way].text(digits) if (name, way) in scores else "–" for way in SHARP]
            rows.append([label, *cells, f"{_published(name)[metric]:g}" if metric in _published(name) else "–"])
        parts.append(f"**{title}**\n\n{markdown_table(['', *WAYS, *SHARP, 'published'], rows)}\n")
    obey, alone = scores_of(found, "consistent"), scores_of(found, "consistent_before")
    shown = []
    for name, label in (hierarchies | STRUCTURES).items():
        others = [obey[name, way].mean for way in WAYS if way != "none" and (name, way) in obey]
        cells = [
            scores[name, way].text(1) if (name, way) in scores else "–"
            for scores, way in ((obey, "none"), (alone, "loss"), (alone, "constrained"))
        ]
        shown.append([label, *cells, f"{min(others):.1f}" if others else "–"])
    head = ["", "none", "loss, network alone", "constrained, network alone", "every way but none, as predicted"]
    parts.append(f"**Rows that obey the knowledge, in percent**\n\n{markdown_table(head, shown)}\n")
    return "\n".join(parts)


def _published(name: str) -> Mapping[str, float]:
    """What was published of a set, by metric."""
    entries = [entry for experiment in (HMC, PREFERENCES, GRID) for entry in experiment.entries]
    return next(entry.published for entry in entries if entry.table == name)


def _cell(scores: Scores, name: str, way: str, digits: int) -> str:
    """A score; bold where no other way has a higher mean, to the digits that are shown."""
    if (score := scores.get((name, way))) is None:
        return "–"
    best = max(round(scores[name, other].mean, digits) for other in WAYS if (name, other) in scores)
    worst = min(round(scores[name, other].mean, digits) for other in WAYS if (name, other) in scores)
    text = score.text(digits)
    return f"**{text}**" if round(score.mean, digits) == best > worst else text


def ways_figures(folder: Path) -> Gallery:
    """The picture of the tables, from the JSON files in a folder of results."""
    drawn: dict[str, Callable[[], Illustration]] = {"ways": partial(_picture, folder)}
    return drawn


def _picture(folder: Path) -> Illustration:
    found = _results(folder)
    drawing, axes = figure(1, 3, size=(10.5, 4.4))
    ranked, exact = scores_of(found, "auprc"), scores_of(found, "exact")
    names: dict[str, str] = {name: name for name in Hierarchies}
    _panel(axes[0], ranked, names, "average precision, less that of none")
    _panel(axes[1], exact, names, "label sets right, less those of none, in points")
    _panel(axes[2], exact, STRUCTURES, "orders and paths right, in percent", absolute=True)
    handles, labels = max((ax.get_legend_handles_labels() for ax in axes), key=lambda both: len(both[0]))
    drawing.legend(handles, labels, loc="outside lower center", ncols=len(WAYS), frameon=False)
    shown = {f"{name} {way}": round(score.mean, 4) for (name, way), score in exact.items()}
    return Illustration("Ways to use knowledge in a classifier, mean and standard error over seeds.", drawing, shown)


def _panel(ax: Any, scores: Scores, sets: dict[str, str], title: str, *, absolute: bool = False) -> None:
    """A row for each set, a mark for each way; differences are from the way "none"."""
    there = [name for name in sets if absolute or (name, "none") in scores]
    there = [name for name in there if any((name, way) in scores for way in WAYS)]
    if not there:
        ax.set_axis_off()
        return
    for i, way in enumerate(WAYS):
        points = []
        for place, name in enumerate(there):
            score, none = scores.get((name, way)), scores.get((name, "none"))
            start = 0.0 if absolute else None if none is None else none.mean
            if score is not None and start is not None:
                points.append((score.mean - start, place + 0.12 * (i - 2.5), score.error))
        if points:
            x, y, error = zip(*points, strict=True)
            ax.errorbar(x, y, xerr=error, fmt=_MARKS[way], color=_COLOURS[way], label=way, markersize=5, elinewidth=1)
    for place in range(1, len(there)):
        ax.axhline(place - 0.5, color="0.9", linewidth=0.8)
    if not absolute:
        ax.axvline(0, color="0.6", linewidth=0.8)
    ax.set_yticks(range(len(there)), [sets[name] for name in there])
    ax.set_ylim(len(there) - 0.5, -0.5)
    ax.set_title(title, fontsize=9)
    ax.tick_params(labelsize=9)
    ax.grid(axis="x", alpha=0.3)
