"""The derivative of (a ⊗ b) ⊕ (c ⊗ ¬a) to a under Gödel, as a decision tree (Chapter 3, Fig. decision_tree)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.fuzzy import Godel
from doxa.reproduce.figures._ascent import choice
from doxa.train.report._page import figure

Question = Callable[[Tensor, Tensor, Tensor], Tensor]

QUESTIONS: dict[str, Question] = {
    "a < b": lambda a, b, c: a < b,
    "1 - a < c": lambda a, b, c: 1 - a < c,
    "1 - a < a": lambda a, b, c: 1 - a < a,
    "c < a": lambda a, b, c: c < a,
    "b < 1 - a": lambda a, b, c: b < 1 - a,
}


@dataclass(frozen=True)
class Leaf:
    """A part of the cube on which the derivative has one value, and how large the part is."""

    value: float
    share: float


@dataclass(frozen=True)
class Branch:
    """A question, and what comes after yes and after no."""

    question: str
    yes: Tree
    no: Tree


Tree = Branch | Leaf

# Which question comes when (errata 2.11: the second on the right is 1 - a < c). The leaves are found, not written down.
_LEFT: Any = ("1 - a < c", ("1 - a < a", (), ()), ("c < a", (), ()))
_RIGHT: Any = ("1 - a < c", ("b < 1 - a", (), ()), ())
_SHAPE: Any = ("a < b", _LEFT, _RIGHT)


def godel_tree(points: int = 20_000, seed: int = 0) -> Branch:
    """The tree, its leaves filled in with the derivatives that autograd finds at random points.

    A leaf at whose points the derivative is not everywhere the same would be an error here.
    """
    x = torch.rand(points, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    (slopes,) = torch.autograd.grad(choice(Godel(), x).sum(), x)
    x, slope = x.detach(), slopes[:, 0]

    def grow(shape: Any, inside: Tensor) -> Tree:
        if not shape:
            (value,) = set(slope[inside].tolist())
            return Leaf(value, float(inside.double().mean()))
        question, yes, no = shape
        answer = QUESTIONS[question](*x.unbind(1))
        return Branch(question, grow(yes, inside & answer), grow(no, inside & ~answer))

    tree = grow(_SHAPE, torch.ones(points, dtype=torch.bool))
    assert isinstance(tree, Branch)
    return tree


def read_tree(tree: Tree, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The value of the leaf that each point falls into."""
    if isinstance(tree, Leaf):
        return torch.full_like(a, tree.value)
    return torch.where(QUESTIONS[tree.question](a, b, c), read_tree(tree.yes, a, b, c), read_tree(tree.no, a, b, c))


def draw_tree(tree: Branch) -> Any:
    """The tree as a figure, yes to the left."""
    drawing, (ax,) = figure(1, 1, size=(8.5, 4.8))
    ax.set_axis_off()
    colours = {1.0: "#7fc97f", 0.0: "#dddddd", -1.0: "#fdc086"}

    def place(node: Tree, left: float, depth: int) -> float:
        """Draw a node in the columns that begin at ``left``, and return its own column."""
        if isinstance(node, Leaf):
            x = left + 0.5
            text, colour = f"{node.value:+.0f}" if node.value else "0", colours[node.value]
            ax.text(
                x, -depth - 0.28, f"{100 * node.share:.1f} %", ha="center", va="center", fontsize=9, color="#555555"
            )
        else:
            split = left + len(leaves(node.yes))
            ends = place(node.yes, left, depth + 1), place(node.no, split, depth + 1)
            x, text, colour = sum(ends) / 2, node.question, "white"
            for end, answer in zip(ends, ("yes", "no"), strict=True):
                ax.plot([x, end], [-depth, -depth - 1], color="black", linewidth=1, zorder=1)
                middle = ((x + end) / 2, -depth - 0.5)
                ax.text(*middle, answer, ha="center", va="center", fontsize=9, backgroundcolor="white")
        box = {"boxstyle": "round,pad=0.4", "facecolor": colour, "edgecolor": "black"}
        ax.text(x, -depth, text.replace("-", "−"), ha="center", va="center", fontsize=12, bbox=box, zorder=2)
        return x

    place(tree, 0, 0)
    ax.set(xlim=(0, len(leaves(tree))), ylim=(-3.6, 0.4))
    return drawing


def leaves(tree: Tree) -> list[Leaf]:
    """The leaves, yes before no."""
    return [tree] if isinstance(tree, Leaf) else leaves(tree.yes) + leaves(tree.no)
