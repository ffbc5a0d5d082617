"""Figures of Chapter 4: what minimal refinement changes, as bars, as contours, as areas, and pass by pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from doxa.fuzzy import Godel, Lukasiewicz, Product, TConorm, TNorm, logic
from doxa.logic import propositions
from doxa.refine import Refine, refinement
from doxa.reproduce.figures._gallery import Gallery, Illustration
from doxa.train.report._report import figure

Shown = tuple[str, TNorm | TConorm, tuple[float, ...], float]
"""A title, an operator, what it is given, and the truth wanted of it."""
_TIES: tuple[Shown, ...] = (
    ("disjunction", Godel().dual, (0.2, 0.5, 0.35, 0.1), 0.8),
    ("disjunction, two alike", Godel().dual, (0.2, 0.5, 0.5, 0.1), 0.8),
    ("conjunction", Godel(), (0.2, 0.5, 0.35, 0.9), 0.6),
)
_LINES: tuple[Shown, ...] = (
    ("disjunction", Lukasiewicz().dual, (0.2, 0.35), 0.8),
    ("conjunction", Lukasiewicz(), (0.55, 0.7), 0.6),
    ("conjunction, at the border", Lukasiewicz(), (0.3, 0.95), 0.8),
)
_LOGICS = ("godel", "lukasiewicz", "product")
_BEFORE, _AFTER = "#b8b8b8", "#e8833a"


def refine_figures() -> Gallery:
    """The figures by name.

    >>> sorted(refine_figures())
    ['areas', 'conjunction', 'contours', 'disjunction', 'implication', 'passes', 'ties']
    """
    return {
        "ties": _ties,
        "contours": _contours,
        "areas": _areas,
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
        _draw_bars(axes, before, after, truths[0], target)
        axes.set(title=name, ylim=(0, 1.02), xticks=range(len(start)), xticklabels=labels)
        shown = ", ".join(f"{t:.3f}" for t in after.tolist())
        numbers[name] = f"{truths[0]:.3f} → {truths[1]:.3f}: {shown}"
    cells[0].set_ylabel("truth")
    drawing.legend(*cells[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    article = "an" if kind == "implication" else "a"
    given = ", ".join(map(str, start))
    caption = f"Minimal refinement of {article} {kind} of {given} to the truth {target}, in three logics."
    return Illustration(caption, drawing, numbers)


def _draw_bars(axes: Any, before: Tensor, after: Tensor, truth: float, target: float) -> None:
    places = torch.arange(len(before)).numpy()
    axes.bar(places - 0.2, before.numpy(), 0.4, color=_BEFORE, label="before")
    axes.bar(places + 0.2, after.numpy(), 0.4, color=_AFTER, label="refined")
    axes.axhline(truth, color="#6a8fc9", linewidth=1.2, label="truth before")
    axes.axhline(target, color="#7a4fa0", linewidth=1.2, linestyle="--", label="target")


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


def _refined(operator: TNorm | TConorm, start: Sequence[float], target: float) -> tuple[Tensor, Tensor]:
    before = torch.tensor(start, dtype=torch.float64)
    return before, refinement(operator)(before, torch.tensor(target, dtype=before.dtype))


def _ties() -> Illustration:
    """Gödel: one literal rises, also where two are equally true; all below the target rise in a conjunction."""
    drawing, cells = figure(1, 3, size=(9, 3))
    numbers: dict[str, object] = {}
    for axes, (title, operator, start, target) in zip(cells, _TIES, strict=True):
        before, after = _refined(operator, start, target)
        _draw_bars(axes, before, after, float(operator.reduce(before, -1)), target)
        axes.set(title=title, ylim=(0, 1.02), xticks=range(4), xticklabels=[f"$t_{i + 1}$" for i in range(4)])
        numbers[title] = ", ".join(f"{t:.3f}" for t in after.tolist())
    cells[0].set_ylabel("truth")
    drawing.legend(*cells[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    caption = "Minimal refinement in Gödel logic. Of two literals that are equally true, one rises: the first, here."
    return Illustration(caption, drawing, numbers)


def _contours() -> Illustration:
    """Łukasiewicz: the nearest point of a contour line, which a circle around the start touches there."""
    drawing, cells = figure(1, 3, size=(9.6, 3.4))
    numbers: dict[str, object] = {}
    side = torch.linspace(0, 1, 201, dtype=torch.float64)
    x, y = torch.meshgrid(side, side, indexing="xy")
    for axes, (title, operator, start, target) in zip(cells, _LINES, strict=True):
        before, after = _refined(operator, start, target)
        axes.contourf(
            x.numpy(), y.numpy(), operator(x, y).numpy(), levels=20, cmap="Greys", alpha=0.6, vmin=0, vmax=1.4
        )
        axes.contour(x.numpy(), y.numpy(), operator(x, y).numpy(), levels=[target], colors=_AFTER)
        radius = float(torch.linalg.vector_norm(after - before))
        angle = torch.linspace(0, 2 * torch.pi, 200, dtype=torch.float64)
        axes.plot(
            (before[0] + radius * angle.cos()).numpy(), (before[1] + radius * angle.sin()).numpy(), ":", color="#3a6ea5"
        )
        axes.annotate("", after.tolist(), before.tolist(), arrowprops={"arrowstyle": "->", "color": "black"})
        axes.plot(*before.tolist(), "o", color="black", markersize=4)
        axes.set(title=title, xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="$t_1$", ylabel="$t_2$")
        numbers[title] = f"({after[0]:.3f}, {after[1]:.3f}), at the distance {radius:.4f}"
    caption = (
        "Minimal refinement in Łukasiewicz logic: from the dot along the arrow to the contour line of the target, "
        "which the dotted circle of equal distance touches; at the border the arrow ends where that line ends."
    )
    return Illustration(caption, drawing, numbers)


def _areas() -> Illustration:
    """Product: the truth is an area, and the least change of the sum of sides raises the one that gains most."""
    drawing, cells = figure(1, 3, size=(9.6, 3.6))
    numbers: dict[str, object] = {}
    for axes, (title, dual, start, target) in zip(
        cells,
        (
            ("disjunction", True, (0.25, 0.4), 0.7),
            ("conjunction", False, (0.4, 0.7), 0.5),
            ("conjunction, two alike", False, (0.5, 0.5), 0.49),
        ),
        strict=True,
    ):
        operator: TNorm | TConorm = Product().dual if dual else Product()
        before, after = _refined(operator, start, target)
        first, second = before.tolist()
        if dual:  # 1 - (1 - a)(1 - b): what two strips along the sides cover
            single = (1 - (1 - target) / (1 - second), 1 - (1 - target) / (1 - first))
            for width, height, colour in ((1.0, second, _BEFORE), (first, 1.0, _BEFORE)):
                axes.add_patch(_area(0, 0, width, height, colour))
            axes.add_patch(_area(first, second, single[0] - first, 1 - second, "#c0504d"))
            axes.add_patch(_area(first, second, 1 - first, single[1] - second, "#4f81bd"))
        else:
            single = (target / second, target / first)
            axes.add_patch(_area(0, 0, first, second, _BEFORE))
            axes.add_patch(_area(first, 0, single[0] - first, second, "#c0504d"))
            axes.add_patch(_area(0, second, first, single[1] - second, "#4f81bd"))
            if first == second:
                corner = float(after[0])
                axes.add_patch(_area(first, second, corner - first, corner - second, "#6aa84f"))
        axes.plot(*after.tolist(), "*", color="black", markersize=10, clip_on=False)
        axes.set(title=title, xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="$t_1$", ylabel="$t_2$")
        one = (single[0] - first, single[1] - second)
        numbers[title] = f"({after[0]:.3f}, {after[1]:.3f}); alone, by {one[0]:.3f} or by {one[1]:.3f}"
    caption = (
        "Minimal refinement in product logic. The truth of two literals is an area, grey before; red and blue are what "
        "raising the first or the second alone to the target adds, green what both together add. The star is refined."
    )
    return Illustration(caption, drawing, numbers)


def _area(x: float, y: float, width: float, height: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=colour, edgecolor="black", linewidth=0.6, alpha=0.75)
