"""The figures of Chapter 3's experiments: measures against accuracy, and the sweeps over s and b0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

from doxa.reproduce._experiment import Entry
from doxa.train import Result
from doxa.train.report._page import figure, picture

__all__ = ["draw_pairs"]

NAMES = {"accuracy": "accuracy (%)", "cons": "cons%", "cu_cons": "cu_cons", "cu_ant": "cu_ant"}
SCATTERS = (("cu_cons", "accuracy"), ("cu_ant", "accuracy"), ("cons", "cu_cons"), ("cons", "cu_ant"))
COLOURS = {"same": "tab:blue", "sum9": "tab:red"}

Point = dict[str, float]


def draw_pairs(results: Iterable[Result], entries: dict[str, Sequence[Entry]], folder: Path) -> list[Path]:
    """Draw whatever there is: a dot for each configuration and budget, the mean over its seeds.

    Args:
        results: of `same`, of `sum9`, or of both.
        entries: those of each experiment, by its name; published values are drawn as circles.
        folder: where to put the figures.

    Returns:
        The files that were made.
    """
    points = _means(results)
    if not points:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / "measures.png"]
    drawing, cells = figure(2, 2, size=(9, 7))
    for axes, (x, y) in zip(cells, SCATTERS, strict=True):
        for relation, colour in COLOURS.items():
            found = [p for (name, _), p in points.items() if name.split("/")[0] == relation]
            published = [entry.published for entry in entries.get(relation, ())]
            for these, filled in ((published, False), (found, True)):
                shown = [p for p in these if x in p and y in p]
                face = colour if filled else "none"
                label = f"{relation}, {'measured' if filled else 'published'}" if shown else None
                axes.scatter(
                    [p[x] for p in shown],
                    [p[y] for p in shown],
                    s=28,
                    facecolors=face,
                    edgecolors=colour,
                    alpha=1 if filled else 0.4,
                    label=label,
                )
        axes.set(xlabel=NAMES[x], ylabel=NAMES[y])
        if y == "accuracy":
            axes.set_ylim(bottom=90)  # a few configurations that failed would squeeze all others
        axes.grid(alpha=0.3)
    cells[0].legend(fontsize=8)
    picture(drawing, made[0])
    for parameter in ("s", "b0"):
        sweep = {
            float(name.split("/")[2]): p for (name, _), p in points.items() if name.startswith(f"same/{parameter}/")
        }
        if sweep:
            made.append(_draw_sweep(parameter, sweep, folder))
    return made


def _draw_sweep(parameter: str, sweep: dict[float, Point], folder: Path) -> Path:
    drawing, (left, right) = figure(1, 2, size=(9, 3.4))
    for name, axes in (("accuracy", left), ("cons", right), ("cu_cons", right), ("cu_ant", right)):
        at = sorted([value for value, point in sweep.items() if name in point])
        axes.plot(at, [sweep[value][name] for value in at], marker="o", label=NAMES[name])
        axes.set(xlabel=parameter)
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    path = folder / f"sweep-{parameter}.png"
    picture(drawing, path)
    return path


def _means(results: Iterable[Result]) -> dict[tuple[str, int], Point]:
    """The metrics of each configuration and budget, averaged over seeds."""
    groups: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        groups.setdefault((result.experiment, result.steps), []).append(result)
    return {
        key: {name: mean([r.metrics[name] for r in group]) for name in NAMES if all(name in r.metrics for r in group)}
        for key, group in groups.items()
    }
