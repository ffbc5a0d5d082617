"""MNIST addition: digits are learnt from sums alone, by one way of reasoning or another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from doxa.reproduce._experiment import Experiment, by_config
from doxa.reproduce.addition._amortized import (
    AMORTIZED_ENTRIES,
    AmortizedAdditionConfig,
    train_amortized_addition,
)
from doxa.reproduce.addition._exact import EXACT_ENTRIES, ExactAdditionConfig, train_exact_addition
from doxa.reproduce.addition._refine import REFINE_ENTRIES, RefineAdditionConfig, train_refine_addition
from doxa.reproduce.digits._neural import NEURAL_ADDITION, NeuralConfig, train_neural
from doxa.train import Result
from doxa.train.report._page import figure, picture

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
        axes.imshow(shares.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)  # the root makes rare mistakes visible
        for i in range(10):
            for j in range(10):
                colour = "white" if shares[i, j] > 0.3 else "black"
                share = f"{100 * shares[i, j]:.1f}"
                axes.text(j, i, share, ha="center", va="center", color=colour, fontsize=7)
        seeds = ", ".join(str(r.seed) for r in runs)
        axes.set(xlabel="read as", ylabel="is", title=f"{name} (seeds {seeds}), %", xticks=range(10), yticks=range(10))
    folder.mkdir(parents=True, exist_ok=True)
    picture(drawing, folder / "confusion.png")
    return [folder / "confusion.png"]


ADDITION = Experiment(
    name="addition",
    about="Digits learnt from sums of MNIST digits",
    entries=(*REFINE_ENTRIES, *EXACT_ENTRIES, *AMORTIZED_ENTRIES, *NEURAL_ADDITION),
    train=by_config(
        {
            RefineAdditionConfig: train_refine_addition,
            ExactAdditionConfig: train_exact_addition,
            AmortizedAdditionConfig: train_amortized_addition,
            NeuralConfig: train_neural,
        }
    ),
    metrics=("accuracy", "neural", "digit_accuracy", "most_probable", "off_by_one", "local_minimum"),
    draw=_draw,
)
"""Entries ``refine/3000`` (pairs of digits), ``exact/n-4`` (numbers of four digits), ``amortized/scan-predict-n-4``,
and ``neural/n-4``, which does not reason."""
