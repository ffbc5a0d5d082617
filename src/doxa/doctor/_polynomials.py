r"""Whole numbers that knowledge can tell apart where fields are multiplied, or compared with each other.

A comparison of fields y is, for all values of what else is in it, the sign of a polynomial p(y). Numbers are alike
where all these polynomials have the same signs. One of each kind is found by looking at all numbers up to a bound
beyond which there are no others:

- of one field, no polynomial has a root beyond :math:`1 + \max_i |c_i / c_n|` (Cauchy);
- for linear ones in n fields, a system :math:`Ay \le b` that has a solution has one of size at most
  :math:`(n + 1) Δ`, with Δ the largest subdeterminant of :math:`[A\, b]` (Schrijver 1986, Theorem 17.1).

Several fields that are multiplied, and do not occur elsewhere, are one number, which can be anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

Place = tuple[str, str]
Monomial = tuple[Place, ...]  # sorted; as often as its power
Polynomial = dict[Monomial, int]
POINTS = 1 << 22  # numbers that are looked at
ENTRIES = 1 << 26  # signs of polynomials at them
MINORS = 100  # rows, of which all subdeterminants are looked at


def constant(value: int) -> Polynomial:
    """A number."""
    return {(): value} if value else {}


def variable(place: Place) -> Polynomial:
    """A field."""
    return {(place,): 1}


def add(one: Polynomial, other: Polynomial, sign: int = 1) -> Polynomial:
    """p + q, or p - q.

    >>> add({(): 2, (("r", "a"),): 1}, {(): 2}, -1)
    {(('r', 'a'),): 1}
    """
    found = Counter(one)
    for monomial, factor in other.items():
        found[monomial] += sign * factor
    return {monomial: factor for monomial, factor in found.items() if factor}


def multiply(one: Polynomial, other: Polynomial) -> Polynomial:
    """p · q."""
    found: Counter[Monomial] = Counter()
    for a, x in one.items():
        for b, y in other.items():
            found[tuple(sorted((*a, *b)))] += x * y
    return {monomial: factor for monomial, factor in found.items() if factor}


def representatives(polynomials: Iterable[Polynomial]) -> tuple[tuple[Place, ...], list[tuple[int, ...]]] | None:
    """Fields, and one choice of numbers for them of each kind; None if it could not be decided.

    >>> x, y = variable(("r", "x")), variable(("r", "y"))
    >>> representatives([add(multiply(x, x), constant(-4))])          # x² and 4
    ((('r', 'x'),), [(0,), (2,), (3,)])
    >>> representatives([add(multiply(x, y), constant(-1))])[1]       # x · y and 1
    [(0, 1), (1, 1), (2, 1)]
    """
    distinct = {tuple(sorted(p.items())): p for p in polynomials}
    every = [p for p in distinct.values() if any(p)]
    places = tuple(sorted({place for p in every for monomial in p for place in monomial}))
    if not places:
        return None
    if len(places) == 1:
        bound = max(1 + max(abs(c) for c in p.values()) for p in every)  # the leading coefficient is at least 1
        return None if 2 * bound + 1 > POINTS else _kinds(places, every, places, bound)
    monomials = sorted({monomial for p in every for monomial in p if monomial})
    used = Counter([place for monomial in monomials for place in set(monomial)])
    if any(used[place] > 1 for place in places) or not all(_free(monomial) for monomial in monomials):
        return None
    bound = _bound(every, monomials)
    if (2 * bound + 1) ** len(monomials) > POINTS:
        return None
    return _kinds(places, every, monomials, bound)


def _free(monomial: Monomial) -> Place | None:
    """A field that occurs once in a product, and lets it be any number while the others are 1."""
    return next((place for place in monomial if monomial.count(place) == 1), None)


def _bound(polynomials: Collection[Polynomial], monomials: list[Monomial]) -> int:
    """(n + 1) Δ, with Δ or something larger."""
    rows = set()
    for p in polynomials:
        a, c = [p.get(monomial, 0) for monomial in monomials], p.get((), 0)
        rows |= {(*a, -c), (*a, -c - 1), (*[-x for x in a], c), (*[-x for x in a], c - 1)}
    matrix, size = np.array(sorted(rows), dtype=object), len(monomials)
    longest = max(sum(int(x) ** 2 for x in row) for row in matrix)
    if len(matrix) > MINORS or size > 2:
        found = int(longest ** ((size + 1) / 2)) + 1  # Hadamard
        return (size + 1) * found
    most = max(abs(int(x)) for x in matrix.flat)
    for columns in combinations(range(size + 1), 2):
        part = matrix[:, columns]
        most = max(most, int(np.abs(np.outer(part[:, 0], part[:, 1]) - np.outer(part[:, 1], part[:, 0])).max()))
    if size == 1:
        return 2 * most
    a, b, c = matrix.T
    pairs = [np.outer(x, y) - np.outer(y, x) for x, y in ((b, c), (a, c), (a, b))]
    for row in matrix:  # 3 × 3, expanded along a row
        most = max(most, int(np.abs(row[0] * pairs[0] - row[1] * pairs[1] + row[2] * pairs[2]).max()))
    return (size + 1) * most


def _kinds(
    places: tuple[Place, ...], polynomials: list[Polynomial], variables: Any, bound: int
) -> tuple[tuple[Place, ...], list[tuple[int, ...]]] | None:
    """One point of each combination of signs among all whose numbers are at most the bound; the smallest first."""
    count = (2 * bound + 1) ** len(variables)
    if count * len(polynomials) > ENTRIES:
        return None
    line = np.array(sorted(range(-bound, bound + 1), key=lambda v: (abs(v), -v)), dtype=np.int64)
    grid = np.stack([g.ravel() for g in np.meshgrid(*[line] * len(variables), indexing="ij")], -1)
    grid = grid[np.abs(grid).max(-1).argsort(kind="stable")]
    largest = max(sum(abs(c) * bound ** len(m) for m, c in p.items()) for p in polynomials)
    if largest >= 1 << 62:
        return None
    signs = np.empty((count, len(polynomials)), dtype=np.int8)
    for i, p in enumerate(polynomials):
        signs[:, i] = np.sign(sum(c * _value(m, variables, grid) for m, c in p.items()))
    first = np.sort(np.unique(signs, axis=0, return_index=True)[1])
    return places, [_point(places, variables, grid[i].tolist()) for i in first]


def _value(monomial: Monomial, variables: Any, grid: Any) -> Any:
    if not monomial:
        return np.ones(len(grid), dtype=np.int64)
    if monomial in variables:
        return grid[:, variables.index(monomial)]
    found = np.ones(len(grid), dtype=np.int64)
    for place in monomial:
        found = found * grid[:, variables.index(place)]
    return found


def _point(places: tuple[Place, ...], variables: Any, numbers: list[int]) -> tuple[int, ...]:
    """The numbers of fields: of a product the one that is free has its value, the others are 1."""
    if variables == places:
        return tuple(numbers)
    said: Mapping[Place | None, int] = {_free(m): v for m, v in zip(variables, numbers, strict=True)}
    return tuple([said.get(place, 1) for place in places])
