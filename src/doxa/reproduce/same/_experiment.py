"""`same` and `sum9`: semi-supervised learning of digits with differentiable fuzzy logics (Chapter 3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from doxa.reproduce._experiment import Experiment, collect
from doxa.reproduce.same._figures import draw_pairs
from doxa.reproduce.same._tables import METRICS, same_entries, sum9_entries
from doxa.reproduce.same._train import train_pairs
from doxa.train import Result

__all__ = ["SAME", "SUM9"]


def _draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """The figures show both experiments, so the other one's results are looked for in the run folders beside."""
    have = {result.experiment.split("/")[0] for result in results}
    beside = [r for other in (SAME, SUM9) if other.name not in have for r in collect(other, folder.parents[1])]
    return draw_pairs([*results, *beside], {e.name: e.entries for e in (SAME, SUM9)}, folder)


SAME = Experiment(
    "same",
    "Digits of which 1 % are labelled, and knowledge of which pairs are the same",
    same_entries(),
    train_pairs,
    METRICS,
    _draw,
)
SUM9 = Experiment(
    "sum9",
    "Digits of which 1 % are labelled, and knowledge of which pairs add up to nine",
    sum9_entries(),
    train_pairs,
    METRICS,
    _draw,
)
