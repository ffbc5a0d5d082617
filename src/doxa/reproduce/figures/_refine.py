"""What refinement does to a prediction: the bar charts of Chapter 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from doxa.fuzzy import logic
from doxa.logic import propositions
from doxa.refine import Refine, refinement
from doxa.reproduce.figures._gallery import Gallery, Illustration
from doxa.train.report._page import figure

_LOGICS = ("godel", "lukasiewicz", "product")
_BEFORE, _AFTER = "#b8b8b8", "#e8833a"


def refine_figures() -> Gallery:
    """The figures by name.

    >>> sorted(refine_figures())
    ['conjunction', 'disjunction', 'implication', 'passes']
    """
    return {
        "conjunction": lambda: _bars("conjunction", [0.9, 0.6, 0.35, 0.7], 0.6),
        "disjunction": lambda: _bars("disjunction", [0.05, 0.15, 0.3, 0.1], 0.8),
        "implication": lambda: _bars("implication", [0.8, 0.3], 0.9),
        "passes": _passes,
    }


def _bars(kind: str, start: Sequence[float], target: float) -> Illustration:
    """The smallest change that gives an operator a wanted truth, in three logics."""
    before = torch.tensor(start, dtype=torch.float64)
    drawing, cells = figure(1, 3, size=(9, 3))
    numbers: dict[str, object] = {}
    labels = ["antecedent", "consequent"] if kind == "implication" else [f"$t_{i + 1}$" for i in range(len(start))]
    for axes, name in zip(cells, _LOGICS, strict=True):
        chosen = logic(f"{name}:r")
        operator: Any = {"conjunction": chosen.conj, "disjunction": chosen.disj, "implication": chosen.implies}[kind]
        after = refinement(operator)(before, torch.tensor(target, dtype=before.dtype))
        truths = [float(operator(*t) if kind == "implication" else operator.reduce(t, -1)) for t in (before, after)]
        places = torch.arange(len(start)).numpy()
        axes.bar(places - 0.2, before.numpy(), 0.4, color=_BEFORE, label="before")
        axes.bar(places + 0.2, after.numpy(), 0.4, color=_AFTER, label="refined")
        axes.axhline(truths[0], color="#6a8fc9", linewidth=1.2, label="truth before")
        axes.axhline(target, color="#7a4fa0", linewidth=1.2, linestyle="--", label="target")
        axes.set(title=name, ylim=(0, 1.02), xticks=places, xticklabels=labels)
        shown = ", ".join(f"{t:.3f}" for t in after.tolist())
        numbers[name] = f"{truths[0]:.3f} → {truths[1]:.3f}: {shown}"
    cells[0].set_ylabel("truth")
    drawing.legend(*cells[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    article = "an" if kind == "implication" else "a"
    given = ", ".join(map(str, start))
    caption = f"Minimal refinement of {article} {kind} of {given} to the truth {target}, in three logics."
    return Illustration(caption, drawing, numbers)


def _passes() -> Illustration:
    """Iterative Local Refinement of a formula with repeated atoms, pass by pass."""
    a, b, c = propositions("a b c")
    rule = (a >> b) & (b >> c) & a
    start = torch.tensor([0.6, 0.4, 0.2], dtype=torch.float64)
    drawing, cells = figure(1, 3, size=(9, 3))
    numbers: dict[str, object] = {}
    for axes, name in zip(cells, _LOGICS, strict=True):
        rows = [start] + [Refine(rule, name, 1.0, steps=n)(start) for n in range(1, 6)]
        for i, atom in enumerate("abc"):
            axes.plot(range(6), [float(row[i]) for row in rows], marker="o", markersize=4, label=atom)
        axes.set(title=name, xlabel="passes", ylim=(-0.02, 1.02), xticks=range(6))
        axes.grid(alpha=0.3)
        numbers[name] = ", ".join(f"{t:.3f}" for t in rows[-1].tolist())
    cells[0].set_ylabel("truth")
    cells[0].legend(frameon=False)
    return Illustration("Five passes towards (a → b) ∧ (b → c) ∧ a from a = 0.6, b = 0.4, c = 0.2.", drawing, numbers)
