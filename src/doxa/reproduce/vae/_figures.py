"""The figure of the discrete VAEs: the bound that each estimator reached."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from doxa.reproduce._experiment import Entry
from doxa.train import Result
from doxa.train.report._page import figure, picture

__all__ = ["draw_bounds"]


def draw_bounds(results: Sequence[Result], entries: Sequence[Entry], folder: Path) -> list[Path]:
    """Draw −ELBO on test images: a dot for each entry and budget, the mean over seeds; published values as circles."""
    found: dict[tuple[str, int], list[float]] = {}
    for result in results:
        found.setdefault((result.experiment.removeprefix("vae/"), result.steps), []).append(result.metrics["test"])
    if not found:
        return []
    tables = sorted({entry.table for entry in entries})
    drawing, cells = figure(1, len(tables), size=(9, 4))
    for axes, table in zip(cells, tables, strict=True):
        rows = {entry.name: i for i, entry in enumerate(e for e in entries if e.table == table)}
        published = {
            e.name: e.published["test"] for e in entries if e.name in rows and e.published.get("test", 1e3) < 1e3
        }
        axes.scatter(
            list(published.values()),
            [rows[name] for name in published],
            facecolors="none",
            edgecolors="grey",
            label="published",
        )
        for steps in sorted({steps for _, steps in found}):
            here = {name: mean(values) for (name, s), values in found.items() if s == steps and name in rows}
            axes.scatter(list(here.values()), [rows[name] for name in here], label=f"{steps:,} steps", zorder=2)
        axes.set_yticks(list(rows.values()), [name.split("/")[1] for name in rows])
        axes.set(title=table, xlabel="−ELBO on test images (nats)", ylim=(len(rows) - 0.5, -0.5))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="lower right")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "bounds.png"
    picture(drawing, path)
    return [path]
