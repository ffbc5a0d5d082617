"""Which objects there are when a formula is grounded, and limits: how much may be built, and how long it may take.

An *entry* is about a kilobyte: a subformula for one choice of its variables, a case of a table, or eight literals of
clauses. With the default limit, grounding, clauses and solver together stay below 4 GB.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from doxa.errors import BindingError, BudgetError, ConfigError
from doxa.logic.syntax._binders import Binder, Group, Let, Quantifier, free_variables
from doxa.logic.syntax._diagnostics import nearest
from doxa.logic.syntax._symbols import Signature, Sort
from doxa.logic.syntax._tree import Expr, Name, postorder

Domains = Mapping[str, "int | Sequence[Any]"]
"""By name of an open sort: how many objects, or their names. By name of data rows: a sequence of mappings by field."""

Value = Any
"""What a term can be: a name of an object (str), a number, a `Row`, or a tuple of values."""


ENTRIES = 2_000_000
LITERALS = 8
"""How many literals of clauses are one entry."""


def check_entries(wanted: int, entries: int, what: str, remedy: str) -> None:
    """Refuse what would take more entries than the limit."""
    if wanted > entries:
        shown = f"{wanted:,}" if wanted < 10**15 else f"more than 10^{int(math.log10(wanted))}"
        raise BudgetError("entries", f"{what} takes {shown} entries, more than entries={entries:,}; {remedy}")


class Clock:
    """Stops work that takes too long; it decides nothing else."""

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not seconds > 0:
            raise ConfigError(f"seconds={seconds!r} must be a positive number, or None for no limit")
        self._seconds = seconds
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def check(self) -> None:
        if self._end < math.inf and time.monotonic() > self._end:
            remedy = "raise seconds, or ask about fewer objects"
            raise BudgetError("seconds", f"could not decide within {self._seconds:g} seconds; {remedy}")


ENDLESS = Clock(None)


class Row:
    """One data row. Rows are compared by identity: two rows with equal fields are two rows."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self.name = name
        self.fields = {k: _value(v) for k, v in fields.items()}

    def get(self, field: str) -> Value:
        if field not in self.fields:
            raise BindingError(f"{self.name} has no field {field!r}{_nearest(field, self.fields)}")
        return self.fields[field]


class Universe:
    """The objects of every sort, and the data rows.

    Range and enumerated sorts have their values. Open sorts (and Int, Real) have the objects that ``domains`` gives; an
    open sort that is not given has its declared constants. A number n stands for the declared constants first and then
    ``Image3``, ``Image4``, ... up to n objects in all.
    """

    def __init__(self, signature: Signature, domains: Domains | None, entries: int = sys.maxsize) -> None:
        self._signature = signature
        self._entries = entries
        self._longest = 0
        self._given: dict[str, tuple[Value, ...]] = {}
        self._constants: dict[str, list[str]] = {}
        self._sets: dict[str, frozenset[Value]] = {}
        for constant in signature.constants.values():
            self._constants.setdefault(constant.sort.name, []).append(constant.name)
        for name, objects in (domains or {}).items():
            sort = signature.sorts.get(name)
            if sort is not None and not sort.is_open:
                raise BindingError(f"domains: sort {name} has its own {sort.size} values; leave it out")
            if sort is None and (isinstance(objects, int) or not all(isinstance(o, Mapping) for o in objects)):
                known = [s.name for s in signature.sorts.values() if s.is_open]
                raise BindingError(
                    f"domains: there is no open sort {name!r}{_nearest(name, known)} (data rows are given as a "
                    "sequence of mappings by field)"
                )
            listed = self._count(sort, objects) if sort and isinstance(objects, int) else _row_list(name, objects)
            if len(set(listed)) != len(listed):
                raise BindingError(f"domains: {name} lists an object twice")
            self._given[name] = listed
            fields = [value for o in listed if isinstance(o, Row) for value in o.fields.values()]
            self._longest = max([self._longest, *[len(v) for v in fields if isinstance(v, tuple)]])

    def _count(self, sort: Sort, size: int) -> tuple[Value, ...]:
        names = self._constants.get(sort.name, [])
        if isinstance(size, bool) or size < 0:
            raise BindingError(f"domains: {sort.name} needs a number of objects that is not negative, got {size!r}")
        self._check_size(sort.name, size)
        if size < len(names):
            raise BindingError(f"domains: {sort.name} has {len(names)} declared constants, more than {size} objects")
        return (*names, *[f"{sort.name}{i}" for i in range(len(names), size)])

    def sort(self, sort: Sort) -> tuple[Value, ...] | None:
        """The objects of a sort, or None when nothing says which there are."""
        if sort.values is not None:
            self._check_size(sort.name, sort.size or 0)
            return tuple(sort.values)
        if sort.name not in self._given and sort.name in self._constants:
            self._given[sort.name] = tuple(self._constants[sort.name])
        return self._given.get(sort.name)

    def objects(self, name: str) -> tuple[Value, ...]:
        """The objects that variables of a sort range over."""
        sort = self._signature.sorts.get(name)
        if sort is None:
            raise BindingError(f"there is no sort {name!r}{_nearest(name, self._signature.sorts)}")
        objects = self.sort(sort)
        if objects is None:
            raise BindingError(
                f"sort {name} is open, and nothing says which objects it has. Declare constants, or give their number "
                f"or names: domains={{{name!r}: 3}}"
            )
        return objects

    def size(self, group: Group) -> int:
        """How many objects the variables of a group range over; of fields the most that there are, 0 if unknown."""
        if group.sort is not None:
            sort = self._signature.sorts.get(group.sort)
            size = None if sort is None else sort.size
            return len((sort and self.sort(sort)) or ()) if size is None else size
        if isinstance(group.domain, Name) and group.domain.name in self._given:
            return len(self._given[group.domain.name])
        return self._longest

    def _check_size(self, name: str, size: int) -> None:
        if size > self._entries:
            message = f"sort {name} has {size:,} objects, more than entries={self._entries:,}"
            raise BudgetError("entries", f"{message}; give it fewer objects, or raise entries")

    def rows(self, name: str) -> tuple[Value, ...]:
        """The data rows of a name."""
        if name not in self._given:
            raise BindingError(f"no data rows {name!r}; give them: domains={{{name!r}: [{{...}}, ...]}}")
        return self._given[name]

    def contains(self, sort: Sort, value: Value) -> bool:
        """Is the value an object of the sort? Of a sort whose objects nothing tells, everything is."""
        if isinstance(sort.values, range):
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            return isinstance(whole, int) and whole in sort.values
        if sort.name not in self._sets:
            objects = self.sort(sort)
            if objects is None:
                return True
            self._sets[sort.name] = frozenset(objects)
        return value in self._sets[sort.name]


def check_grounding(formulas: Iterable[Expr], universe: Universe, entries: int) -> None:
    """Refuse formulas that would be too large without their variables, before anything is built.

    A subformula is built once for each choice of the variables that it mentions; guards are not counted on to exclude
    any, and what arithmetic takes is counted while it is done.
    """
    total = 0
    for formula in formulas:
        order, free = list(postorder(formula)), free_variables(formula)
        sizes: dict[str, int] = {}  # how many objects each variable has; the most, where several have its name
        for group in [g for node in order if isinstance(node, Binder) for g in node.groups]:
            size = universe.size(group)
            sizes.update({name: max(size, sizes.get(name, 0)) for name in group.names})
        drawn = _drawn_from(order, free)
        for node in order:
            if not node.children:
                continue
            mentioned = free[id(node)].union(node.names) if isinstance(node, Binder) else free[id(node)]
            over: set[str] = set().union(*[drawn.get(name, {name}) for name in mentioned])
            total += math.prod([sizes.get(name, 1) for name in over])
            if total > entries:
                shown = str(node if isinstance(node, Quantifier) else formula)
                shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
                remedy = "give its sorts fewer objects, nest fewer variables, or raise entries"
                check_entries(total, entries, f"grounding {shown}", remedy)


def _drawn_from(order: list[Expr], free: Mapping[int, Iterable[str]]) -> dict[str, set[str]]:
    """The variables of quantifiers that each ``x := f(t)`` depends on."""
    found: dict[str, set[str]] = {}
    for node in reversed(order):  # outer ones first
        for name, value in zip(node.names, node.values, strict=True) if isinstance(node, Let) else ():
            found[name] = found.get(name, set()).union(*[found.get(v, {v}) for v in free[id(value)]])
    return found


def _row_list(name: str, objects: Any) -> tuple[Value, ...]:
    if isinstance(objects, str) or not isinstance(objects, Sequence):
        raise BindingError(f"domains: {name} must be a number or a sequence, got {type(objects).__name__}")
    return tuple([Row(name, o) if isinstance(o, Mapping) else _value(o) for o in objects])


def _value(value: Any) -> Value:
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if isinstance(value, Mapping):
        return Row("a row", value)
    if isinstance(value, Sequence):
        return tuple([_value(v) for v in value])
    raise BindingError(
        f"cannot ground over {value!r} of type {type(value).__name__}; "
        "wanted names of objects (str), numbers, mappings by field, or sequences of these"
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near!r}?"
