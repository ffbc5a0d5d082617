"""Aggregates as chains: what is known of some choices, and how that of two lots of them becomes that of both.

    sum    0          v           a + b                     the sum so far
    max    -inf       v           max(a, b)                 the greatest so far
    argmax nothing    (v, i)      the greater, the first    and where it was
    all_different  ∅  {v}         a ∪ b, or a clash         the values so far

Nothing is 0, -inf or inf, nothing, and all different; the sum of inf and -inf is nothing, too. Every join is
associative, so a chain may be cut anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from doxa.logic.syntax._symbols import calculated

S = TypeVar("S")
WIDE = 64
"""Neighbours are joined in pairs while both have at most about so many values, then one after the other."""


class Nothing:
    """Where an extreme is, if there is none, and what inf - inf is; there is one."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = Nothing()


class Chain(NamedTuple):
    """The state of no choice, of one choice (its value and its number), and of two lots, the earlier one first.

    ``finish`` is the value of the aggregate for a state: for ``argmin`` and ``argmax`` the number of the choice.
    """

    empty: Any
    one: Callable[[Any, int], Any]
    join: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]


def _value(value: Any, place: int) -> Any:
    return value


def _same(state: Any) -> Any:
    return state


def _add(a: Any, b: Any) -> Any:
    if a is NOTHING or b is NOTHING:
        return NOTHING
    found = calculated("+", a, b)
    return NOTHING if found is None else found


def _first_least(a: Any, b: Any) -> Any:
    return b if a is NOTHING or (b is not NOTHING and b[0] < a[0]) else a


def _first_greatest(a: Any, b: Any) -> Any:
    return b if a is NOTHING or (b is not NOTHING and b[0] > a[0]) else a


def _place(state: Any) -> Any:
    return NOTHING if state is NOTHING else state[1]


def _used(a: Any, b: Any) -> Any:
    return None if a is None or b is None or not a.isdisjoint(b) else a | b


def _pair(value: Any, place: int) -> Any:
    return value, place


def _single(value: Any, place: int) -> Any:
    return frozenset((value,))


def _no_clash(state: Any) -> bool:
    return state is not None


CHAINS: dict[str, Chain] = {
    "count": Chain(0, _value, _add, _same),
    "sum": Chain(0, _value, _add, _same),
    "min": Chain(math.inf, _value, min, _same),
    "max": Chain(-math.inf, _value, max, _same),
    "argmin": Chain(NOTHING, _pair, _first_least, _place),
    "argmax": Chain(NOTHING, _pair, _first_greatest, _place),
    "all_different": Chain(frozenset(), _single, _used, _no_clash),
}


def joined(states: Sequence[S], join: Callable[[S, S], S], size: Callable[[S], int]) -> S:
    """The states joined in order: neighbours while they are small, at once on each level, then one after the other.

    The work is the same in any order; equal steps side by side can be done together.

    >>> joined(["a", "b", "c", "d", "e"], lambda a, b: f"({a}{b})", len)
    '(((ab)(cd))e)'
    """
    left = list(states)
    merged = True
    while merged and len(left) > 1:
        merged, level = False, []
        at = 0
        while at < len(left):
            if at + 1 < len(left) and size(left[at]) * size(left[at + 1]) <= WIDE * WIDE:
                level.append(join(left[at], left[at + 1]))
                at, merged = at + 2, True
            else:
                level.append(left[at])
                at += 1
        left = level
    total = left[0]
    for state in left[1:]:
        total = join(total, state)
    return total
