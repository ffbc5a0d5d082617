"""MNIST addition: digits are learnt from sums alone, by one way of reasoning or another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from doxa.reproduce._experiment import Experiment, saved, train
from doxa.reproduce.addition._amortized import AMORTIZED_ENTRIES
from doxa.reproduce.addition._exact import EXACT_ENTRIES
from doxa.reproduce.addition._refine import REFINE_ENTRIES
from doxa.reproduce.digits._digits_report import draw_confusion
from doxa.reproduce.digits._neural import NEURAL_ADDITION
from doxa.train import Result
from doxa.train.report._page import figure

__all__ = ["ADDITION"]


def _draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """How each digit is read, summed over the runs of each entry that counted it."""
    names = sorted({r.experiment for r in results if "read 0 as 0" in r.metrics})
    if not names:
        return []
    drawing, cells = figure(1, len(names), size=(5 * len(names), 5))
    for axes, name in zip(cells, names, strict=True):
        runs = [r for r in results if r.experiment == name]
        counts = torch.tensor(
            [[sum(r.metrics[f"read {i} as {j}"] for r in runs) for j in range(10)] for i in range(10)]
        )
        shares = counts / counts.sum(1, keepdim=True)
        draw_confusion(axes, counts, [[f"{100 * share:.1f}" for share in row] for row in shares.tolist()])
        axes.set(title=f"{name} (seeds {', '.join(str(r.seed) for r in runs)}), %")
    return [saved(drawing, folder / "confusion.png")]


ADDITION = Experiment(
    name="addition",
    about="Digits learnt from sums of MNIST digits",
    entries=(*REFINE_ENTRIES, *EXACT_ENTRIES, *AMORTIZED_ENTRIES, *NEURAL_ADDITION),
    train=train,
    metrics=("accuracy", "neural", "digit_accuracy", "most_probable", "off_by_one", "local_minimum"),
    draw=_draw,
)
"""Entries ``refine/3000`` (pairs of digits), ``exact/n-4`` (numbers of four digits), ``amortized/scan-predict-n-4``,
and ``neural/n-4``, which does not reason."""
