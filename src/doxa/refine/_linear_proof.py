"""Proofs that linear constraints cannot hold together: Farkas' lemma, in exact fractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doxa.refine._linear_system import LinearSystem


@dataclass(frozen=True)
class Contradiction:
    r"""Rows that cannot hold together, none of which can be spared, and the proof (Farkas' lemma).

    The ``weights`` are positive for inequalities and make the left sides cancel while the right sides add up to less
    than 0: :math:`\sum_i w_i a_i = 0` and :math:`\sum_i w_i b_i < 0`. They are exact fractions.

    >>> from doxa.refine import LinearSystem
    >>> found = LinearSystem.parse("a <= 1; b <= 1; a + b >= 3; a <= b").contradiction()
    >>> found.rows, [int(w) for w in found.weights], int(found.total)
    (('a <= 1', 'b <= 1', 'a + b >= 3'), [1, 1, 1], -1)
    """

    rows: tuple[str, ...]
    places: tuple[int, ...]
    """The rows by number, in the order of the system."""
    weights: tuple[Fraction, ...]
    total: Fraction
    """What the right sides add up to, while the left sides cancel; below 0."""

    def __str__(self) -> str:
        return f"these rows contradict each other: {', '.join(f'`{r}`' for r in self.rows)}"


def prove(system: LinearSystem, places: Sequence[int]) -> Contradiction | None:
    """The proof that rows contradict each other and that every proper part of them does not; None if they do not.

    The rows must depend on each other in one way only, with no weight of 0. Then each proper part of them is linearly
    independent, and can hold.
    """
    matrix = [[Fraction(c) for c in row] for row in system.matrix[list(places)].tolist()]
    bounds = [Fraction(c) for c in system.bounds[list(places)].tolist()]
    weights = _dependence(matrix)
    if weights is None:
        return None
    total = sum((w * c for w, c in zip(weights, bounds, strict=True)), Fraction(0))
    if total > 0:
        weights, total = [-w for w in weights], -total
    wrong = [w < 0 and not bool(system.equality[p]) for w, p in zip(weights, places, strict=True)]
    if total == 0 or any(wrong):
        # an equality alone, such as 0 = 1, was turned so that its total is below 0
        return None
    order = sorted(range(len(places)), key=lambda i: places[i])
    return Contradiction(
        tuple([system.rows[places[i]] for i in order]),
        tuple([places[i] for i in order]),
        tuple([weights[i] for i in order]),
        total,
    )


def _dependence(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """The weights, none of them 0, with which rows cancel, if there is one such way; the smallest is 1 or -1."""
    count = len(rows)
    table = [list(column) for column in zip(*rows, strict=True)]  # one equation for each value
    pivots: list[int] = []
    for column in range(count):
        done = len(pivots)
        found = next((r for r in range(done, len(table)) if table[r][column]), None)
        if found is None:
            continue
        table[done], table[found] = table[found], table[done]
        top = [c / table[done][column] for c in table[done]]
        table[done] = top
        for r, other in enumerate(table):
            if r != done and other[column]:
                times = other[column]
                table[r] = [c - times * t for c, t in zip(other, top, strict=True)]
        pivots.append(column)
    free = [c for c in range(count) if c not in pivots]
    if len(free) != 1:
        return None
    weights = [Fraction(0)] * count
    weights[free[0]] = Fraction(1)
    for r, column in enumerate(pivots):
        weights[column] = -table[r][free[0]]
    smallest = min(map(abs, weights))
    return [w / smallest for w in weights] if smallest else None
