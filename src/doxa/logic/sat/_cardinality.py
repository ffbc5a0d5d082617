r"""Clauses that say how many of some literals are true.

Three encodings of  low ≤ Σ x_i ≤ high:

- *binomial*: every high+1 literals have a false one, every n-low+1 a true one. No new variables.
- *counter* (Sinz 2005): s(i, j), at least j of the first i are true, where s(i, j) ⟺ s(i-1, j) ∨ x_i ∧ s(i-1, j-1).
- *totalizer* (Bailleux and Boufkhad 2003): the same numbers in unary, added along a balanced tree,
  r(i + j) ⟸ a(i) ∧ b(j) and ¬r(i + j + 1) ⟸ ¬a(i + 1) ∧ ¬b(j + 1).

The last two have a direction *up* (many true literals force the outputs; what "at most" needs) and one *down* (an
output forces that many literals; what "at least" needs). With both, the new variables are functions of the literals, so
that a formula and its clauses have the same number of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, log2

from doxa.errors import ConfigError
from doxa.logic.sat._cnf import Clauses

METHODS = ("auto", "binomial", "counter", "totalizer")

_MOST_PLAIN_CLAUSES = 64  # up to this number, no new variables: pairwise clauses up to 11 literals


def assert_count(
    clauses: Clauses, literals: Sequence[int], low: int, high: int, *, method: str = "auto", unique: bool = True
) -> None:
    """Add clauses that say: at least ``low`` and at most ``high`` of the literals are true.

    Args:
        clauses: where they are added.
        literals: a literal listed twice counts twice.
        low, high: with ``low`` 0, or ``high`` the number of literals, that side says nothing.
        method: one of METHODS; ``"auto"`` is binomial for few clauses, then the smaller of the other two.
        unique: define new variables in both directions, so that each has only one value in every model.
    """
    n = len(literals)
    if method not in METHODS:
        raise ConfigError(f"method={method!r} is unknown; choose one of {', '.join(METHODS)}")
    if low > min(n, high) or high < 0:
        clauses.add()
        return
    low, high = max(low, 0), min(high, n)
    if low == 0 and high == n:
        return
    plain = (comb(n, high + 1) if high < n else 0) + (comb(n, low - 1) if low else 0)
    if method == "auto" and plain <= _MOST_PLAIN_CLAUSES:
        method = "binomial"
    if method == "binomial":
        if high < n:
            clauses.lists += [[-x for x in chosen] for chosen in combinations(literals, high + 1)]
        if low:
            clauses.lists += [list(chosen) for chosen in combinations(literals, n - low + 1)]
        return
    # Counting the false literals is cheaper when the bounds are high.
    if _top(n - high, n - low, n) < _top(low, high, n):
        literals, low, high = [-x for x in literals], n - high, n - low
    top = _top(low, high, n)
    s = outputs(clauses, literals, top, method=method, up=unique or high < n, down=unique or low > 0)
    if low:
        clauses.add(s[low - 1])
    if high < n:
        clauses.add(-s[high])


def _top(low: int, high: int, n: int) -> int:
    """The last output that the bounds speak of."""
    return high + 1 if high < n else low


def outputs(
    clauses: Clauses, literals: Sequence[int], top: int, *, method: str = "auto", up: bool = True, down: bool = True
) -> list[int]:
    """Literals s_1, ..., s_top, where s_j says that at least j of the given literals are true."""
    if method == "auto":  # a counter has n·top variables, a totalizer about n·log n
        method = "counter" if top <= log2(len(literals)) else "totalizer"
    return (_counter if method == "counter" else _totalizer)(clauses, literals, top, up, down)


def _counter(clauses: Clauses, literals: Sequence[int], top: int, up: bool, down: bool) -> list[int]:
    before: list[int] = []
    for i, x in enumerate(literals):
        after = [clauses.fresh() for _ in range(min(i + 1, top))] if i else [x]
        for j, s in enumerate(after if i else []):
            # before[j] says "at least j + 1 before x"; past its end that is false, and "at least 0" is true
            same, less = before[j : j + 1], before[j - 1 : j] if j else []
            if up:
                clauses.lists += [[s, -b] for b in same]
                clauses.add(s, -x, *[-b for b in less])
            if down:
                clauses.add(-s, x, *same)
                clauses.lists += [[-s, b] for b in less]
        before = after
    return before


def _totalizer(clauses: Clauses, literals: Sequence[int], top: int, up: bool, down: bool) -> list[int]:
    level = [[x] for x in literals]
    while len(level) > 1:
        pairs = [_merge(clauses, a, b, top, up, down) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def _merge(clauses: Clauses, a: list[int], b: list[int], top: int, up: bool, down: bool) -> list[int]:
    r = [clauses.fresh() for _ in range(min(len(a) + len(b), top))]
    for i in range(len(a) + 1):
        for j in range(min(len(b), len(r) - i) + 1):
            if up and i + j:
                clauses.add(r[i + j - 1], *[-x for x in a[i - 1 : i] if i], *[-x for x in b[j - 1 : j] if j])
            if down and i + j < len(r):
                clauses.add(-r[i + j], *a[i : i + 1], *b[j : j + 1])
    return r
