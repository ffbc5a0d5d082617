"""Equalities that nearly repeat each other, written so that float64 can tell them apart: elimination in fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

import torch
from torch import Tensor

_CLEAR = 1e-3
"""Rows of length 1 whose smallest singular value is above this are told apart."""
_WHOLE = 2**53


def nearly_dependent(rows: Tensor) -> bool:
    """Whether some rows are, in float64, nearly a combination of the others.

    >>> nearly_dependent(torch.tensor([[1.0, 1.0], [1.00001, 1.0]])), nearly_dependent(torch.eye(2))
    (True, False)
    """
    length = rows.norm(dim=1, keepdim=True)
    if len(rows) < 2 or not bool((length > 0).all()):
        return False
    return len(rows) > rows.shape[1] or bool(torch.linalg.svdvals(rows / length)[-1] < _CLEAR)


def eliminated(rows: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor] | None:
    """Equalities with the same solutions, each with a value that no other one has; None if they have no solution.

    Gauss and Jordan in exact fractions; a row is solved for the value with its largest coefficient.

    >>> eliminated(torch.tensor([[1.0, 1.0], [1.25, 1.0]]).double(), torch.tensor([1.0, 1.0]).double())
    (tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64), tensor([0., 1.], dtype=torch.float64))
    """
    done: dict[int, list[Fraction]] = {}  # by the value that is solved for
    for first, bound in zip(rows.tolist(), bounds.tolist(), strict=True):
        row = [Fraction(c) for c in (*first, bound)]
        for column, other in done.items():
            row = _minus(row, row[column], other)
        place = max(range(len(row) - 1), key=lambda i: abs(row[i]))
        if not row[place]:
            if row[-1]:
                return None
            continue
        row = [c / row[place] for c in row]
        done = {column: _minus(other, other[place], row) for column, other in done.items()}
        done[place] = row
    table = torch.tensor([_floats(row) for row in done.values()], dtype=torch.float64)
    table = table.view(len(done), rows.shape[1] + 1)
    return table[:, :-1], table[:, -1]


def _minus(row: Sequence[Fraction], times: Fraction, other: Sequence[Fraction]) -> list[Fraction]:
    return [c - times * o for c, o in zip(row, other, strict=True)] if times else list(row)


def _floats(row: Sequence[Fraction]) -> list[float]:
    """The row as floats: times a whole number where that makes all of it exact."""
    whole = lcm(*[c.denominator for c in row])
    shared = gcd(*[(c * whole).numerator for c in row]) or 1
    exact = [c * whole / shared for c in row]
    return [float(c) for c in (exact if all(abs(c) <= _WHOLE for c in exact) else row)]
