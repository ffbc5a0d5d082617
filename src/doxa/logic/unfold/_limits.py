"""Limits: how much may be built, and how long it may take.

An *entry* is about a kilobyte: a subformula for one choice of its variables, a case of a table, or eight literals of
clauses. With the default limit, grounding, clauses and solver together stay below 4 GB.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from doxa.errors import BudgetError, ConfigError
from doxa.logic.syntax._binders import Let, Quantifier, free_variables
from doxa.logic.syntax._tree import Expr, postorder
from doxa.logic.unfold._domains import Universe

ENTRIES = 2_000_000
LITERALS = 8
"""How many literals of clauses are one entry."""


def check_entries(wanted: int, entries: int, what: str, remedy: str) -> None:
    """Refuse what would take more entries than the limit."""
    if wanted > entries:
        shown = f"{wanted:,}" if wanted < 10**15 else f"more than 10^{int(math.log10(wanted))}"
        raise BudgetError("entries", f"{what} takes {shown} entries, more than entries={entries:,}; {remedy}")


class Clock:
    """Stops work that takes too long; it decides nothing else.

    >>> Clock(None).check()
    >>> Clock(1e-9).check()
    Traceback (most recent call last):
    doxa.errors.BudgetError: could not decide within 1e-09 seconds; raise seconds, or ask about fewer objects
    """

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not seconds > 0:
            raise ConfigError(f"seconds={seconds!r} must be a positive number, or None for no limit")
        self._seconds = seconds
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def check(self) -> None:
        if self._end < math.inf and time.monotonic() > self._end:
            remedy = "raise seconds, or ask about fewer objects"
            raise BudgetError("seconds", f"could not decide within {self._seconds:g} seconds; {remedy}")


def check_grounding(formulas: Iterable[Expr], universe: Universe, entries: int) -> None:
    """Refuse formulas that would be too large without their variables, before anything is built.

    A subformula is built once for each choice of the variables that it mentions; guards are not counted on to exclude
    any, and what arithmetic takes is counted while it is done.
    """
    total = 0
    for formula in formulas:
        sizes = _choices(formula, universe)
        stands_for = _drawn_from(formula)
        for node, free in _mentioned(formula):
            over = frozenset().union(*[stands_for.get(name, frozenset((name,))) for name in free])
            here = math.prod([sizes.get(name, 1) for name in over])
            total += here
            if total > entries:
                binder = node if isinstance(node, Quantifier) else formula
                shown = f"{binder}" if len(f"{binder}") <= 80 else f"{str(binder)[:77]}..."
                remedy = "give its sorts fewer objects, nest fewer variables, or raise entries"
                check_entries(total, entries, f"grounding {shown}", remedy)


def _mentioned(formula: Expr) -> Iterable[tuple[Expr, frozenset[str]]]:
    """Every inner node with the variables on which its instances depend."""
    free = free_variables(formula)
    for node in postorder(formula):
        if isinstance(node, Quantifier):
            yield node, free[id(node)].union(node.names)
        elif node.children:
            yield node, free[id(node)]


def _choices(formula: Expr, universe: Universe) -> dict[str, int]:
    """How many objects each variable of a quantifier ranges over; the most, where several have its name."""
    sizes: dict[str, int] = {}
    for node in postorder(formula):
        for group in node.groups if isinstance(node, Quantifier) else ():
            size = universe.size(group)
            sizes.update({name: max(size, sizes.get(name, 0)) for name in group.names})
    return sizes


def _drawn_from(formula: Expr) -> dict[str, frozenset[str]]:
    """The variables of quantifiers that each ``x := f(t)`` depends on."""
    free = free_variables(formula)
    found: dict[str, frozenset[str]] = {}
    for node in reversed(list(postorder(formula))):  # outer ones first
        for name, value in zip(node.names, node.values, strict=True) if isinstance(node, Let) else ():
            below = [found.get(v, frozenset((v,))) for v in free[id(value)]]
            found[name] = found.get(name, frozenset()).union(*below)
    return found
