"""The chapter's figures of truth and distance by iteration, and a table of where they end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from doxa.train import Result
from doxa.train.report._page import figure, picture

__all__ = ["CURVE", "draw_sat"]

CURVE = (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)
"""After how many passes truth and distance are noted."""
_LOGICS = {"godel": "Gödel", "lukasiewicz": "Łukasiewicz", "product": "product"}
_METHODS = {
    "refine-1": ("refinement, α = 1", "C0", "-"),
    "refine-0.1": ("refinement, α = 0.1", "C2", "-"),
    "adam-0": ("Adam, β = 0", "C1", "-"),
    "adam-0.01": ("Adam, β = 0.01", "C3", "--"),
    "adam-0.1": ("Adam, β = 0.1", "C4", ":"),
    "restarts": ("refinement, 200 restarts", "", ""),
    "hybrid": ("refinement, then Adam", "", ""),
    "guarantee": ("refinement, then MaxSAT", "", ""),
}
_COLUMNS = {
    "truth": ("truth", "{:.3f}"),
    "l1": ("L₁", "{:.2f}"),
    "settled": ("settled after", "{:.0f}"),
    "reached": ("reached (%)", "{:.1f}"),
    "satisfied": ("satisfied when rounded (%)", "{:.1f}"),
    "best_truth": ("best truth", "{:.3f}"),
}


def draw_sat(results: Sequence[Result], folder: Path) -> list[Path]:
    """A figure and a table in markdown for each table of entries that has results; several seeds are averaged."""
    tables: dict[str, dict[tuple[str, str], list[Result]]] = {}
    for result in results:
        _, table, row = result.experiment.split("/")
        logic, _, method = row.partition("-")
        if method in _METHODS:  # changed configurations stand in the long table only
            tables.setdefault(table, {}).setdefault((logic, method), []).append(result)
    files = []
    for table, rows in sorted(tables.items()):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{table}.md").write_text(_markdown(rows), encoding="utf-8")
        _figure(table, rows, folder / f"{table}.png")
        files += [folder / f"{table}.md", folder / f"{table}.png"]
    return files


def _mean(results: list[Result], metric: str) -> float | None:
    values = [result.metrics[metric] for result in results if metric in result.metrics]
    return sum(values) / len(values) if values else None


def _markdown(rows: dict[tuple[str, str], list[Result]]) -> str:
    head = ("logic", "method", *(title for title, _ in _COLUMNS.values()), "CPU seconds")
    lines = [head, ("---",) * len(head)]
    for logic, title in _LOGICS.items():
        for method, (label, *_) in _METHODS.items():
            if results := rows.get((logic, method)):
                cells = ["–" if (v := _mean(results, m)) is None else f.format(v) for m, (_, f) in _COLUMNS.items()]
                seconds = sum(result.cpu_seconds for result in results) / len(results)
                lines.append((title, label, *cells, f"{seconds:.1f}"))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _figure(table: str, rows: dict[tuple[str, str], list[Result]], path: Path) -> None:
    drawing, axes = figure(2, 3, size=(10, 5.2))
    for column, (logic, title) in enumerate(_LOGICS.items()):
        for row, (metric, label) in enumerate((("truth", "truth"), ("l1", "L₁ distance"))):
            ax = axes[3 * row + column]
            for method, (name, colour, style) in _METHODS.items():
                results = rows.get((logic, method), [])
                points = [(k, v) for k in CURVE if (v := _mean(results, f"{metric}@{k}")) is not None]
                if points:
                    ax.plot(*zip(*points, strict=True), style, color=colour, label=name, linewidth=1.6)
            ax.set_xscale("symlog", linthresh=10, linscale=1.5)
            ax.set_xlim(0, CURVE[-1])
            ax.set_xticks([0, 2, 4, 6, 8, 10, 30, 100, 300], [0, 2, 4, 6, 8, 10, 30, 100, 300])
            ax.minorticks_off()
            ax.set_ylim(*((-0.03, 1.03) if metric == "truth" else (0, None)))
            ax.grid(alpha=0.3)
            if not row:
                ax.set_title(title)
            else:
                ax.set_xlabel("iterations")
            if not column:
                ax.set_ylabel(label)
    handles, labels = max((ax.get_legend_handles_labels() for ax in axes), key=lambda both: len(both[0]))
    drawing.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    drawing.suptitle(table.replace("-", " "))
    picture(drawing, path)
