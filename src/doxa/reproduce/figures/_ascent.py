r"""Gradient ascent on the truth of a formula: where it ends (Chapter 3, "Conjunction and Disjunction").

The two running formulas, :math:`(a ⊗ b) ⊕ (c ⊗ ¬a)` and :math:`(a ⊕ b) ⊗ (¬a ⊕ c)`, can be made true from any start.
Ascent does not always find how. From uniform starts (errata 2.12)

* Gödel finds the first always and the second with probability 7/8: from b < a < ½, c < ½ it drives a to ½ and stays
  there, and likewise from c < 1 - a < ½, b < ½;
* Łukasiewicz finds the second always and the first with probability 5/6: where a + b < 1 and c < a it has no gradient.

For the Reichenbach implication 1 - a + a·c, ascent moves along :math:`a^2 - (1 - c)^2 = const` (errata 2.13), and from
(0.6, 0.5) ends at (√0.11, 1): the raven that was likely has become unlikely.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from doxa.fuzzy import REICHENBACH, TNORMS, Godel, TNorm
from doxa.train.report._report import figure


def ascend(f: Callable[[Tensor], Tensor], start: Tensor, *, rate: float, steps: int) -> Iterator[Tensor]:
    """The positions of gradient ascent on f, projected onto the unit cube: first ``start``, then one for each step.

    ``f`` maps points ``(..., d)`` to values ``(...)``.
    """
    x = start
    yield x
    for _ in range(steps):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(f(x).sum(), x)
        x = (x.detach() + rate * slope).clamp(0, 1)
        yield x


def choice(tnorm: TNorm, x: Tensor) -> Tensor:
    """(a ⊗ b) ⊕ (c ⊗ ¬a)."""
    a, b, c = x.unbind(-1)
    return tnorm.dual(tnorm(a, b), tnorm(c, 1 - a))


def clauses(tnorm: TNorm, x: Tensor) -> Tensor:
    """(a ⊕ b) ⊗ (¬a ⊕ c)."""
    a, b, c = x.unbind(-1)
    return tnorm(tnorm.dual(a, b), tnorm.dual(1 - a, c))


FORMULAS: Mapping[str, Callable[[TNorm, Tensor], Tensor]] = {
    "(a ⊗ b) ⊕ (c ⊗ ¬a)": choice,
    "(a ⊕ b) ⊗ (¬a ⊕ c)": clauses,
}
CHOICE, CLAUSES = FORMULAS
EXACT: Mapping[tuple[str, str], Fraction] = {
    (CHOICE, "godel"): Fraction(1),
    (CHOICE, "lukasiewicz"): Fraction(5, 6),
    (CLAUSES, "godel"): Fraction(7, 8),
    (CLAUSES, "lukasiewicz"): Fraction(1),
}


@dataclass(frozen=True)
class Attempt:
    """Gradient ascent on a formula from many starts: where it began and whether it made the formula true."""

    formula: str
    tnorm: str
    starts: Tensor
    found: Tensor

    @property
    def rate(self) -> float:
        """The share of starts from which the formula became true."""
        return float(self.found.double().mean())

    @property
    def error(self) -> float:
        """Its standard error."""
        return math.sqrt(self.rate * (1 - self.rate) / len(self.found))

    @property
    def exact(self) -> Fraction:
        """The probability, by the volume of the starts that are stuck."""
        return EXACT[self.formula, self.tnorm]


def attempt(formula: str, tnorm: str, *, starts: int = 20_000, rate: float = 0.004, seed: int = 0) -> Attempt:
    """Ascend from uniform starts until nothing more can happen.

    A variable moves at most ``rate`` a step, and none has to move further than 1, so 3/rate steps are enough even where
    only one of three moves at a time. Gödel ends by jumping back and forth within a few steps of the top.
    """
    first = torch.rand(starts, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    def truth(x: Tensor) -> Tensor:
        return FORMULAS[formula](TNORMS[tnorm], x)

    (last,) = deque(ascend(truth, first, rate=rate, steps=math.ceil(3 / rate)), maxlen=1)
    return Attempt(formula, tnorm, first, truth(last) > 1 - 4 * rate)


def reichenbach_path(a: float, c: float, *, rate: float = 1e-3, steps: int = 20_000) -> Tensor:
    """The path of gradient ascent on the Reichenbach implication: a row (a, c) for each step.

    It ends where the implication is true, c = 1 or a = 0.
    """
    path = []
    start = torch.tensor([a, c], dtype=torch.float64)
    for x in ascend(lambda x: REICHENBACH(x[..., 0], x[..., 1]), start, rate=rate, steps=steps):
        path.append(x.detach())
        if x[0] <= 0 or x[1] >= 1:
            break
    return torch.stack(path)


def reichenbach_end(a: float, c: float) -> tuple[float, float]:
    """Where the path of infinitely small steps ends: a² - (1 - c)² stays as it is."""
    kept = a**2 - (1 - c) ** 2
    return (math.sqrt(kept), 1.0) if kept >= 0 else (0.0, 1 - math.sqrt(-kept))


# -- the derivative of the first formula to a under Gödel, as a decision tree (Fig. decision_tree) ------------------

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
