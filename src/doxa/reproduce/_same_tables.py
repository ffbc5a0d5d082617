"""The rows of the nine tables of Chapter 3 as configurations, the runs it tells of outside its tables, and its figures.

Symmetric configurations have w = 1, and w = 10 for the product, whose ∀ is the log-product. Elsewhere everything but
the operator in question is as `PairsConfig` has it, with w = 10. The existential rows that the dissertation prints
without their parameters are p = 1.5, 2, 20 (errata 2.18). Where it prints no measure, the gradient vanished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from doxa.reproduce._experiment import Entry, Experiment, by_budget, collect, saved, train
from doxa.reproduce._same import PairsConfig
from doxa.train import Result
from doxa.train.report._report import figure

METRICS = {"accuracy": "accuracy (%)", "cons": "cons%", "cu_cons": "cu_cons", "cu_ant": "cu_ant"}

Published = Sequence[float | None]
Row = tuple[str, str, dict[str, Any], Published]
"""Name, symbol in the dissertation, what the configuration changes, and the published accuracy and measures."""

BY_TNORM = """
godel       | T_G        | 95.3 0.32 0.31 0.83 | 95.0 1 0.11 –       | 95.2 0.31 0.44 0.78 | 20.4 0.47 0.15 0.90
product     | T_P        | 96.5 0.08 0.72 0.99 | 94.8 0.62 0.04 0.96 | 96.1 0.13 0.80 0.95 | 20.3 0.46 0.16 0.92
lukasiewicz | T_LK       | 94.9 0.5 0.86 0.12  | 94.9 0.5 0.86 0.12  | 95.2                | 97.0 0.31 0.15 0.93
yager(1.5)  | T_Y, p=1.5 | 95.2                | 95.2                | 95.2                | 97.0 0.29 0.11 0.96
yager(2)    | T_Y, p=2   | 77.7 0.20 0.51 0.75 | 95.0 0.62 0.61 0.46 | 95.2                | 96.8 0.30 0.11 0.96
yager(20)   | T_Y, p=20  | 95.6 0.02 0.54 0.75 | 95.5 0.53 0.01 0.99 | 95.5 0.99 0.82 0.71 | 94.9 0.66 0.16 0.86
nilpotent   | T_Nm       | 95.2                | 95.2                | 95.2                | 96.9 0.31 0.17 0.93
"""
"""The tables with a row for each t-norm: symmetric on `same`, with S- and with R-implications, and on `sum9`; and those
on `sum9` where the t-norm alone changes."""
FORALL: tuple[Row, ...] = (
    ("minimum", "A_TG", {"forall": "godel"}, (86.6, 0.37, 0.65, 0.45)),
    ("log-product", "A_logTP", {"forall": "log_product"}, (96.3, 0.14, 0.53, 0.96)),
    ("lukasiewicz", "A_TLK", {"forall": "lukasiewicz"}, (78.2, 0.00, 0.94, 0.99)),
    ("yager-1.5", "A_TY, p=1.5", {"forall": "yager(1.5)"}, (79.5, 0.00, 0.77, 0.98)),
    ("yager-2", "A_TY, p=2", {"forall": "yager(2)"}, (83.3, 0.00, 0.83, 0.98)),
    ("yager-20", "A_TY, p=20", {"forall": "yager(20)"}, (84.0, 0.00, 0.81, 0.98)),
    ("mean-error-1.5", "A_GME, p=1.5", {"forall": "mean_error(1.5)"}, (96.1, 0.43, 0.43, 0.76)),
    ("rmse", "A_RMSE", {"forall": "mean_error(2)"}, (96.2, 0.46, 0.42, 0.72)),
    ("mean-error-20", "A_GME, p=20", {"forall": "mean_error(20)"}, (95.5, 0.45, 0.38, 0.70)),
    ("nilpotent", "A_TNm", {"forall": "nilpotent"}, (79.8, 0.34, 0.50, 0.58)),
)
EXISTS: tuple[Row, ...] = (
    ("maximum", "E_SG", {"exists": "godel"}, (95.3, 0.38, 0.60, 0.66)),
    ("probabilistic-sum", "E_SP", {"exists": "product"}, (96.1, 0.15, 0.68, 0.94)),
    ("bounded-sum", "E_SLK", {"exists": "lukasiewicz"}, (95.9, 0.17, 0.76, 0.87)),
    ("yager-1.5", "E_SY, p=1.5", {"exists": "yager(1.5)"}, (95.9, 0.21, 0.64, 0.85)),
    ("yager-2", "E_SY, p=2", {"exists": "yager(2)"}, (96.3, 0.27, 0.59, 0.81)),
    ("yager-20", "E_SY, p=20", {"exists": "yager(20)"}, (96.3, 0.37, 0.62, 0.70)),
    ("mean-1.5", "E_GM, p=1.5", {"exists": "mean(1.5)"}, (96.9, 0.29, 0.13, 0.95)),
    ("mean-2", "E_GM, p=2", {"exists": "mean(2)"}, (96.7, 0.29, 0.14, 0.94)),
    ("mean-20", "E_GM, p=20", {"exists": "mean(20)"}, (96.4, 0.39, 0.64, 0.70)),
    ("nilpotent", "E_SNm", {"exists": "nilpotent"}, (95.5, 0.31, 0.58, 0.78)),
)
IMPLICATIONS_S: tuple[Row, ...] = (
    ("kleene-dienes", "I_KD", {"implication": "godel", "s": 0.0}, (95.7, 0.08, 0.82, 0.98)),
    ("reichenbach", "I_RC", {"implication": "product", "s": 0.0}, (96.3, 0.09, 0.73, 0.98)),
    ("lukasiewicz", "I_LK", {"implication": "lukasiewicz", "s": 0.0}, (96.0, 0.5, 0.07, 0.93)),
    ("yager-1.5", "I_Y, p=1.5", {"implication": "yager(1.5)", "s": 0.0}, (96.1, 0.14, 0.77, 0.96)),
    ("yager-2", "I_Y, p=2", {"implication": "yager(2)", "s": 0.0}, (96.2, 0.13, 0.82, 0.97)),
    ("yager-20", "I_Y, p=20", {"implication": "yager(20)", "s": 0.0}, (95.1, 0.57, 0.48, 0.98)),
    ("fodor", "I_FD", {"implication": "nilpotent", "s": 0.0}, (96.1, 0.19, 0.68, 0.91)),
    ("reichenbach-sigmoidal", "σ_IRC", {"implication": "product", "s": 9.0}, (96.3, 0.14, 0.53, 0.96)),
)
IMPLICATIONS_R: tuple[Row, ...] = (
    ("godel", "I_G", {"implication": "godel:r", "s": 0.0}, (90.5, 1, 0.05, None)),
    ("goguen", "I_GG", {"implication": "product:r", "s": 0.0}, (93.6, 0.99, 0.00, 0.87)),
    ("lukasiewicz-r", "I_LK", {"implication": "lukasiewicz:r", "s": 0.0}, (96.0, 0.5, 0.07, 0.93)),
    ("yager-1.5-r", "I_RY, p=1.5", {"implication": "yager(1.5):r", "s": 0.0}, (96.1, 0.14, 0.14, 0.66)),
    ("yager-2-r", "I_RY, p=2", {"implication": "yager(2):r", "s": 0.0}, (95.7, 0.13, 0.64, 0.38)),
    ("yager-20-r", "I_RY, p=20", {"implication": "yager(20):r", "s": 0.0}, (96.0, 0.14, 0.65, 0.38)),
    ("fodor-r", "I_FD", {"implication": "nilpotent:r", "s": 0.0}, (96.1, 0.19, 0.68, 0.91)),
)
FORMULAS: tuple[Row, ...] = (
    ("1-2", "(1) & (2)", {"formulas": (1, 2)}, (97.1, 0.05, 0.54, 0.99)),
    ("2-3", "(2) & (3)", {"formulas": (2, 3)}, (95.9, 0.12, 0.75, 0.95)),
    ("1-3", "(1) & (3)", {"formulas": (1, 3)}, (96.3, 0.15, 0.52, 0.98)),
    ("1", "(1)", {"formulas": (1,)}, (95.6, 0.05, 0.59, 1.00)),
    ("2", "(2)", {"formulas": (2,)}, (95.2, 0.03, 0.78, 0.99)),
    ("3", "(3)", {"formulas": (3,)}, (95.8, 0.19, 0.64, 0.95)),
)

SAME_BASE, SUM9_BASE = PairsConfig(relation="same"), PairsConfig(relation="sum9")
SIGMOIDAL = replace(SAME_BASE, conjunction="yager(2)")
"""What the section on the Reichenbach-sigmoidal implication varies s and b0 of."""
SGD = replace(SIGMOIDAL, optimizer="sgd", learning_rate=0.01)
"""The same as it was trained where it reached 97.3."""


def _tnorms(column: int) -> Iterator[Row]:
    """A column of `BY_TNORM` as rows."""
    for line in BY_TNORM.strip().splitlines():
        tnorm, symbol, *columns = [part.strip() for part in line.split("|")]
        published = [None if value == "–" else float(value) for value in columns[column].split()]
        yield tnorm.replace("(", "-").rstrip(")"), symbol, {"conjunction": tnorm}, published


def _rows(base: PairsConfig, table: str, label: str, rows: Iterable[Row]) -> Iterator[Entry]:
    for name, symbol, changes, published in rows:
        known = {metric: float(v) for metric, v in zip(METRICS, published, strict=False) if v is not None}
        yield Entry(f"{table}/{name}", replace(base, **changes), known, f"Table {label}, {symbol}")


def _symmetric(base: PairsConfig, label: str, column: int, ending: str = "") -> Iterator[Entry]:
    """Everything from one t-norm, with its S-implication or, for names in -r, its R-implication."""
    for name, symbol, changes, published in _tnorms(column):
        tnorm = changes["conjunction"]
        changes = {
            "conjunction": tnorm,
            "implication": f"{tnorm}:r" if ending else tnorm,
            "s": 0.0,
            "forall": "log_product" if tnorm == "product" else tnorm,
            "exists": tnorm,
            "weight": 10.0 if tnorm == "product" else 1.0,
        }
        yield from _rows(base, "symmetric", label, [(name + ending, symbol, changes, published)])


def _sweep(parameter: str, values: Iterable[float], best: float) -> Iterator[Entry]:
    """One parameter of the sigmoidal transform; the figure prints no numbers but the text gives the best accuracy."""
    for value in values:
        config = replace(SGD, **{parameter: value})  # type: ignore[arg-type]
        known = {"accuracy": 97.3} if value == best else {}
        yield Entry(f"{parameter}/{value:g}", config, known, "Figure mnist_s_experiments")


def _supervised(base: PairsConfig) -> Entry:
    return Entry("baseline/supervised", replace(base, weight=0.0), {"accuracy": 95.18}, "Chapter 3, Results")


PRODUCT = {"conjunction": "product", "implication": "product", "s": 0.0, "exists": "product"}
SAME_ENTRIES = (
    _supervised(SAME_BASE),
    *_symmetric(SAME_BASE, "mnist_symmetric1", 0),
    *_symmetric(SAME_BASE, "mnist_symmetric2", 1, "-r"),
    *_rows(SAME_BASE, "forall", "uni_aggregation", FORALL),
    *_rows(SAME_BASE, "implications", "s_implications", IMPLICATIONS_S),
    *_rows(SAME_BASE, "implications", "R-implications", IMPLICATIONS_R),
    *_rows(SIGMOIDAL, "formulas", "mnist_formula_experiments", FORMULAS),
    *_sweep("s", (0.0, 0.01, 1.0, 3.0, 6.0, 9.0, 12.0, 15.0, 20.0), 9.0),
    *_sweep("b0", (-1.0, -0.8, -0.65, -0.5, -0.35, -0.2, 0.0), -0.5),
    Entry("sgd/reichenbach-sigmoidal", SGD, {"accuracy": 97.3}, "Chapter 3, Implications"),
    Entry("sgd/reichenbach", replace(SGD, s=0.0)),
    Entry("sgd/supervised", replace(SGD, weight=0.0)),
    Entry("no-relation-labels/product", replace(SAME_BASE, relation_labels=False, **PRODUCT)),  # type: ignore[arg-type]
    Entry("no-relation-labels/reichenbach", replace(SAME_BASE, s=0.0, relation_labels=False)),
    Entry("no-relation-labels/reichenbach-sigmoidal", replace(SAME_BASE, relation_labels=False)),
)
SUM9_ENTRIES = (
    _supervised(SUM9_BASE),
    *_symmetric(SUM9_BASE, "sum9_symmetric", 2),
    *_rows(SUM9_BASE, "exists", "exi_aggregation", EXISTS),
    *_rows(SUM9_BASE, "tnorms", "tnorms", _tnorms(3)),
    Entry("no-relation-labels/yager-1.5", replace(SUM9_BASE, relation_labels=False)),
)

# -- figures ------------------------------------------------------------------------------------------------------

SCATTERS = (("cu_cons", "accuracy"), ("cu_ant", "accuracy"), ("cons", "cu_cons"), ("cons", "cu_ant"))
COLOURS = {"same": "tab:blue", "sum9": "tab:red"}


def draw_pairs(results: Iterable[Result], entries: dict[str, Sequence[Entry]], folder: Path) -> list[Path]:
    """Draw measures against accuracy, and the sweeps over s and b0, of whatever there is.

    A dot is a configuration and budget, the mean over its seeds; published values, of the entries of each experiment,
    are circles. Returns the files that were made.
    """
    points = {
        key: {m: mean(r.metrics[m] for r in group) for m in METRICS if all(m in r.metrics for r in group)}
        for key, group in by_budget(results).items()
    }
    if not points:
        return []
    drawing, cells = figure(2, 2, size=(9, 7))
    for axes, (x, y) in zip(cells, SCATTERS, strict=True):
        for relation, colour in COLOURS.items():
            found = [point for (name, _), point in points.items() if name.split("/")[0] == relation]
            published = [entry.published for entry in entries.get(relation, ())]
            for these, word, face in ((published, "published", "none"), (found, "measured", colour)):
                shown = [(p[x], p[y]) for p in these if x in p and y in p]
                axes.scatter(
                    *(zip(*shown, strict=True) if shown else ([], [])),
                    s=28,
                    facecolors=face,
                    edgecolors=colour,
                    alpha=0.4 if word == "published" else 1,
                    label=f"{relation}, {word}" if shown else None,
                )
        axes.set(xlabel=METRICS[x], ylabel=METRICS[y])
        if y == "accuracy":
            axes.set_ylim(bottom=90)  # a few configurations that failed would squeeze all others
        axes.grid(alpha=0.3)
    cells[0].legend(fontsize=8)
    made = [saved(drawing, folder / "measures.png")]
    for parameter in ("s", "b0"):
        start = f"same/{parameter}/"
        sweep = {float(name.split("/")[2]): p for (name, _), p in points.items() if name.startswith(start)}
        if sweep:
            made.append(saved(_draw_sweep(parameter, sweep), folder / f"sweep-{parameter}.png"))
    return made


def _draw_sweep(parameter: str, sweep: dict[float, dict[str, float]]) -> Any:
    drawing, (left, right) = figure(1, 2, size=(9, 3.4))
    for name, label in METRICS.items():
        axes = left if name == "accuracy" else right
        at = sorted([value for value, point in sweep.items() if name in point])
        axes.plot(at, [sweep[value][name] for value in at], marker="o", label=label)
        axes.set(xlabel=parameter)
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    return drawing


def _draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """The figures show both experiments, so the other one's results are looked for in the run folders beside."""
    have = {result.experiment.split("/")[0] for result in results}
    beside = [r for other in (SAME, SUM9) if other.name not in have for r in collect(other, folder.parents[1])]
    return draw_pairs([*results, *beside], {e.name: e.entries for e in (SAME, SUM9)}, folder)


ABOUT = "Digits of which 1 % are labelled, and knowledge of which pairs"
SAME = Experiment("same", f"{ABOUT} are the same", SAME_ENTRIES, train, tuple(METRICS), _draw)
SUM9 = Experiment("sum9", f"{ABOUT} add up to nine", SUM9_ENTRIES, train, tuple(METRICS), _draw)
