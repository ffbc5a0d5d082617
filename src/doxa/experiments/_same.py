"""`same` and `sum9`: semi-supervised learning of digits with differentiable fuzzy logics (Chapter 3)."""

from __future__ import annotations

from doxa.experiments._experiment import Experiment
from doxa.experiments._same_tables import METRICS, same_entries, sum9_entries
from doxa.experiments._same_train import train_pairs

__all__ = ["SAME", "SUM9"]

SAME = Experiment(
    "same",
    "Digits of which 1 % are labelled, and knowledge of which pairs are the same",
    same_entries(),
    train_pairs,
    METRICS,
)
SUM9 = Experiment(
    "sum9",
    "Digits of which 1 % are labelled, and knowledge of which pairs add up to nine",
    sum9_entries(),
    train_pairs,
    METRICS,
)
